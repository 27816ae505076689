"""Swing (De Sensi et al., NSDI 2024) on a square torus: halving and doubling, with partners that swing to the left and the right.

In step s a rank of a ring exchanges with the rank (1 - (-2)^(s+1)) / 3 away, to the right if it is even and to the left if it is odd, so that
partners stay near. Steps alternate between rows and columns. The paper also runs mirrored copies on the other links; this is one.
"""

from allranks.theory.schedules import Move, Schedule

SIDE = 8


def peer(rank, step):
    row, column = divmod(rank, SIDE)
    far = (1 - (-2) ** (step // 2 + 1)) // 3
    if step % 2 == 0:
        return row * SIDE + (column + (far if column % 2 == 0 else -far)) % SIDE
    return (row + (far if row % 2 == 0 else -far)) % SIDE * SIDE + column


def schedule(task):
    p, rounds = task.ranks, 6
    # which ranks a rank answers for after so many halvings: those that it reaches in the steps that are left
    reach = [[{r} for r in range(p)]]
    for step in reversed(range(rounds)):
        reach.append([reach[-1][r] | reach[-1][peer(r, step)] for r in range(p)])
    moves = []
    for step in range(rounds):
        left = rounds - 1 - step
        for r in range(p):
            q = peer(r, step)
            moves.append(Move(step, r, q, tuple(sorted(reach[left][q])), reduce=True))
            moves.append(Move(2 * rounds - 1 - step, r, q, tuple(sorted(reach[left][r]))))
    moves.sort(key=lambda m: m.step)
    return Schedule("all_reduce", "swing", p, p, tuple(moves))
