"""A slot is filled again before it was read.

Must get: a race
Must get: for one of every reader
"""

import torch


def shift_through_slots(tensor, memory, slots):
    if memory.ranks == 1:
        return tensor.clone()
    right, left = (memory.rank + 1) % memory.ranks, (memory.rank - 1) % memory.ranks
    slot = memory.numel // slots
    pieces, came = tensor.reshape(-1).split(slot), []
    if not tensor.numel():
        return tensor.clone()
    for number, piece in enumerate(pieces):
        place = number % slots * slot
        memory.put(right, place, piece)
        memory.fence()
        memory.signal(right)
        memory.wait(left)
        came.append(memory.get(memory.rank, place, len(piece)))
    return torch.cat(came).view(tensor.shape)
