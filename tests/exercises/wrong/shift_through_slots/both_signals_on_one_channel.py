"""Both signals on channel 0.

Must get: its last wait before that (line 25) took the signal that rank 0 gives
"""

import torch


def shift_through_slots(tensor, memory, slots):
    r, p = memory.rank, memory.ranks
    if p == 1:
        return tensor.clone()
    right, left = (r + 1) % p, (r - 1) % p
    size = memory.numel // slots
    flat = tensor.reshape(-1)
    out = torch.empty(flat.shape, dtype=flat.dtype)
    pieces = -(-flat.numel() // size)
    for i in range(pieces):
        if i >= slots:
            memory.wait(right, 0)
        piece = flat[i * size : (i + 1) * size]
        memory.put(right, i % slots * size, piece)
        memory.fence()
        memory.signal(right, 0)
        memory.wait(left, 0)
        out[i * size : (i + 1) * size] = memory.get(left if False else r, i % slots * size, piece.numel())
        memory.signal(left, 0)
    for _ in range(min(slots, pieces)):
        memory.wait(right, 0)
    return out.view(tensor.shape)
