"""The reader signals that a slot is free, but the writer never waits for that.

Must get: a race: rank
Must get: and the next put for one of every reader; rank
Must get: never waits, and a signal without a wait orders nothing
Must not get: so the next call takes
"""

import torch

FREE = 1  # the channel that says that a slot is free


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
        memory.signal(left, FREE)
    return torch.cat(came).view(tensor.shape)
