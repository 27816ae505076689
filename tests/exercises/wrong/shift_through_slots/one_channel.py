"""One channel for both signals: with two ranks the neighbour to the left is the one to the right.

Must get: a race
Must get: 2 ranks
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
        if number >= slots:
            memory.wait(right)  # it is done with what was in this slot
        memory.put(right, place, piece)
        memory.fence()
        memory.signal(right)
        memory.wait(left)
        came.append(memory.get(memory.rank, place, len(piece)))
        memory.signal(left)
    for _ in range(min(slots, len(pieces))):
        memory.wait(right)
    return torch.cat(came).view(tensor.shape)
