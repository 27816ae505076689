"""Every rank gets whole tensors.

Must get: 2(p-1)/p of the bytes
Must get: are enough
"""


def two_shot_all_reduce(tensor, memory):
    n, half = tensor.numel(), tensor.numel()
    memory.put(memory.rank, 0, tensor.reshape(-1))
    for _ in range(2):
        memory.fence()
        others = [r for r in range(memory.ranks) if r != memory.rank]
        for other in others:
            memory.signal(other)
        for other in others:
            memory.wait(other)
        if half:
            total = sum((memory.get(r, 0, n) for r in range(1, memory.ranks)), memory.get(0, 0, n))
            half = 0
    tensor.copy_(total.view(tensor.shape) if n else tensor)
