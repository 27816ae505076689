"""The barrier goes through rank 0: all signal to it, it signals to all."""

import torch


class Meeting:
    def __init__(self, memory):
        self.memory = memory

    def __call__(self):
        m = self.memory
        m.fence()
        if m.rank:
            m.signal(0)
            m.wait(0)
            return
        for other in range(1, m.ranks):
            m.wait(other)
        for other in range(1, m.ranks):
            m.signal(other)


def two_shot_all_reduce(tensor, memory):
    meet = Meeting(memory)
    n, p, r = tensor.numel(), memory.ranks, memory.rank
    size = -(-n // p)
    spans = [(min(i * size, n), min((i + 1) * size, n)) for i in range(p)]
    a, b = spans[r]
    memory.put(r, 0, tensor.reshape(-1))
    meet()
    added = sum((memory.get(q, a, b - a) for q in range(1, p)), memory.get(0, a, b - a))
    memory.put(r, n + a, added)
    meet()
    whole = torch.empty(n, dtype=tensor.dtype)
    for q, (first, last) in enumerate(spans):
        whole[first:last] = memory.get(q, n + first, last - first)
    tensor.copy_(whole.reshape(tensor.shape))
