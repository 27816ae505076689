# ring all-reduce
from allranks.theory.schedules import Move, Schedule


def schedule(task):
    p = task.ranks
    moves = []
    for step in range(p - 1):
        for r in range(p):
            moves.append(Move(step, r, (r + 1) % p, ((r - step) % p,), reduce=True))
    for step in range(p - 1):
        for r in range(p):
            moves.append(Move(p - 1 + step, r, (r + 1) % p, ((r + 1 - step) % p,)))
    return Schedule("all_reduce", "my ring", p, chunks=p, moves=tuple(moves))
