# ring all-gather
from allranks.theory.schedules import Move, Schedule


def schedule(task):
    p, moves = task.ranks, []
    for step in range(p - 1):
        for r in range(p):
            moves.append(Move(step, r, (r + 1) % p, ((r - step) % p,)))
    return Schedule("all_gather", "my all-gather", p, chunks=p, moves=tuple(moves))
