"""Adds its own part twice.

Must get: the tensor of the rank that adds it up counts twice
"""


def two_shot_all_reduce(tensor, memory):
    r, p = memory.rank, memory.ranks
    if p == 1:
        return
    flat = tensor.reshape(-1).clone()
    n = flat.numel()
    other = n + p
    cut = [n * i // p for i in range(p + 1)]

    def barrier():
        memory.fence()
        d = 1
        while d < p:
            memory.signal((r + d) % p)
            memory.wait((r - d) % p)
            d *= 2

    memory.put(r, 0, flat)
    barrier()
    a, b = cut[r], cut[r + 1]
    mine = flat[a:b].clone()
    for q in range(p):
        if True:
            mine += memory.get(q, a, b - a)
    memory.put(r, other + a, mine)
    barrier()
    for q in range(p):
        flat[cut[q] : cut[q + 1]] = mine if q == r else memory.get(q, other + cut[q], cut[q + 1] - cut[q])
    tensor.copy_(flat.view(tensor.shape))
