"""Forgets the shape: all elements are there, in one dimension.

Must get: the elements are right, and in the right order, but not their shape
Must not get: the last piece is missing
"""

import torch


def shift_through_slots(tensor, memory, slots):
    rank, p = memory.rank, memory.ranks
    if p == 1 or tensor.numel() == 0:
        return tensor.clone()
    right, left, size = (rank + 1) % p, (rank - 1) % p, memory.numel // slots
    pieces, received = tensor.reshape(-1).split(size), []
    for i, piece in enumerate(pieces):
        if i >= slots:
            memory.wait(right, 1)
        memory.put(right, i % slots * size, piece)
        memory.fence()
        memory.signal(right, 0)
        memory.wait(left, 0)
        received.append(memory.get(rank, i % slots * size, piece.numel()))
        memory.signal(left, 1)
    for _ in range(min(slots, len(pieces))):
        memory.wait(right, 1)
    return torch.cat(received)
