"""Rabenseifner's algorithm with the farthest partner first: the largest pieces take the longest way."""

from allranks.theory.schedules import Move, Schedule, ceil_lg


def schedule(task):
    p, rounds = task.ranks, ceil_lg(task.ranks)
    moves = []
    for k in reversed(range(rounds)):
        for r in range(p):
            first = (r ^ 1 << k) >> k << k
            moves.append(Move(rounds - 1 - k, r, r ^ 1 << k, range(first, first + (1 << k)), reduce=True))
    for k in range(rounds):
        for r in range(p):
            moves.append(Move(rounds + k, r, r ^ 1 << k, range(r >> k << k, (r >> k << k) + (1 << k))))
    return Schedule("all_reduce", "rabenseifner far first", p, p, tuple(moves))
