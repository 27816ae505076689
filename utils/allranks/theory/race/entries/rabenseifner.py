"""Rabenseifner's algorithm, nearest partner first, for 2^k ranks: halve the vector in each step, then double it."""

from allranks.theory.schedules import Move, Schedule, ceil_lg


def schedule(task):
    p, rounds = task.ranks, ceil_lg(task.ranks)

    def part(rank, steps):
        first, end = 0, p
        for k in range(steps):
            middle = (first + end) // 2
            first, end = (middle, end) if rank >> k & 1 else (first, middle)
        return range(first, end)

    moves = [Move(k, r, r ^ 1 << k, part(r ^ 1 << k, k + 1), reduce=True) for k in range(rounds) for r in range(p)]
    moves += [Move(2 * rounds - 1 - k, r, r ^ 1 << k, part(r, k + 1)) for k in range(rounds) for r in range(p)]
    return Schedule("all_reduce", "rabenseifner", p, p, tuple(sorted(moves, key=lambda m: m.step)))
