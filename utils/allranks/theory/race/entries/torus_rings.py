"""All-reduce on a torus over all four links: a quarter of the vector goes each way, rows first or columns first.

Sack and Gropp (2015) and others use a torus so: each quarter does a reduce-scatter along its first dimension, an all-reduce along the second
and an all-gather along the first, in its own direction.
"""

from allranks.theory.schedules import Move, Schedule

SIDE = 8


def schedule(task):
    n = SIDE
    moves = []
    for quarter in range(4):
        way, rows_first = (1, -1)[quarter % 2], quarter < 2
        base = quarter * n * n

        def rank(along, across, rows_first=rows_first):
            along, across = along % n, across % n
            return across * n + along if rows_first else along * n + across

        def part(index, base=base):
            return range(base + index % n * n, base + index % n * n + n)

        for across in range(n):
            for i in range(n):
                for step in range(n - 1):
                    # along the first dimension: part i ends complete at place i
                    src, dst = rank(i, across), rank(i + way, across)
                    moves.append(Move(step, src, dst, part(i - way * (step + 1)), reduce=True))
                    moves.append(Move(3 * (n - 1) + step, src, dst, part(i - way * step)))
                    # along the second, for the part of this place
                    src, dst = rank(across, i), rank(across, i + way)
                    for first, shift, reduce in ((n - 1, 1, True), (2 * (n - 1), 0, False)):
                        chunk = base + across * n + (i - way * (step + shift)) % n
                        moves.append(Move(first + step, src, dst, (chunk,), reduce))
    moves.sort(key=lambda m: m.step)
    return Schedule("all_reduce", "torus rings", task.ranks, 4 * n * n, tuple(moves))
