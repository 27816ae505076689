"""Reduce-scatter in two levels, for ranks that are a square: first among ranks with the same last digit's column, then in the row.

With p = q * q ranks a rank sends 2(q-1) messages instead of p-1, and little more than the least bytes.
"""

from math import isqrt

from allranks.theory.schedules import Move, Schedule


def schedule(task):
    p, q = task.ranks, isqrt(task.ranks)
    moves = []
    for r in range(p):
        row, column = divmod(r, q)
        for i in range(1, q):
            to = (row + i) % q  # all that the ranks of that row must end with
            moves.append(Move(0, r, to * q + column, range(to * q, to * q + q), reduce=True))
            there = row * q + (column + i) % q
            moves.append(Move(1, r, there, (there,), reduce=True))
    moves.sort(key=lambda m: m.step)
    return Schedule("reduce_scatter", "rows and columns", p, p, tuple(moves))
