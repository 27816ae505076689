import torch


def shift_through_slots(tensor, memory, slots):
    rank, p = memory.rank, memory.ranks
    right, left = (rank + 1) % p, (rank - 1) % p
    size = memory.numel // slots
    flat = tensor.reshape(-1)
    if p == 1:
        return tensor.clone()
    out = torch.empty(flat.numel(), dtype=flat.dtype)
    pieces = list(flat.split(size)) if flat.numel() else []
    places = list(out.split(size)) if flat.numel() else []
    n, sent, freed = len(pieces), 0, 0
    for i in range(n):
        while sent < n and sent < i + slots:
            if sent >= slots:
                memory.wait(right, 1)
                freed += 1
            memory.put(right, sent % slots * size, pieces[sent])
            memory.fence()
            memory.signal(right, 0)
            sent += 1
        memory.wait(left, 0)
        places[i].copy_(memory.get(rank, i % slots * size, places[i].numel()))
        memory.signal(left, 1)
    while freed < n:
        memory.wait(right, 1)
        freed += 1
    return out.view(tensor.shape)
