"""Broadcast on a torus over four spanning trees that share no link, each with a quarter of the vector in segments.

A tree goes along the root's row (or column), from each rank of it along the column, and from the last column on to the root's: so that its links
are free for the tree that starts the other way.
"""

from allranks.theory.schedules import Move, Schedule

SIDE, SEGMENTS = 8, 128


def schedule(task):
    n = SIDE
    moves = []
    for quarter in range(4):
        way, rows_first = (1, -1)[quarter % 2], quarter < 2

        def rank(along, across, way=way, rows_first=rows_first):
            along, across = way * along % n, way * across % n
            return across * n + along if rows_first else along * n + across

        edges = [(a - 1, rank(a - 1, 0), rank(a, 0)) for a in range(1, n)]
        edges += [(a + b - 1, rank(a, b - 1), rank(a, b)) for a in range(1, n) for b in range(1, n)]
        edges += [(n - 1 + b, rank(n - 1, b), rank(0, b)) for b in range(1, n)]
        for segment in range(SEGMENTS):
            chunk = quarter * SEGMENTS + segment
            moves += [Move(segment + depth, src, dst, (chunk,)) for depth, src, dst in edges]
    moves.sort(key=lambda m: m.step)
    return Schedule("broadcast", "torus trees", task.ranks, 4 * SEGMENTS, tuple(moves), root=task.root)
