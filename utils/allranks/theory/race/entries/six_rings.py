"""NCCL's rings on a DGX-1: the double NVLinks form one ring of all GPUs, the single ones another, each used both ways.

A sixth of each part goes each way round the single ring, two sixths each way round the double one, in seven steps.
"""

from allranks.theory.schedules import Move, Schedule

DOUBLE = (0, 1, 3, 2, 6, 7, 5, 4)
SINGLE = (0, 2, 1, 5, 6, 4, 7, 3)


def schedule(task):
    moves = []
    for ring, way, first, end in ((DOUBLE, 1, 0, 2), (DOUBLE, -1, 2, 4), (SINGLE, 1, 4, 5), (SINGLE, -1, 5, 6)):
        for step in range(7):
            for place, src in enumerate(ring):
                owner = ring[(place - way * step) % 8]
                moves.append(Move(step, src, ring[(place + way) % 8], range(6 * owner + first, 6 * owner + end)))
    moves.sort(key=lambda m: m.step)
    return Schedule("all_gather", "six rings", 8, 48, tuple(moves))
