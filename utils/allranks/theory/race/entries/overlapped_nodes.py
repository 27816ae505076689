"""The hierarchical all-reduce in segments, so that NVLink and the network cards work at the same time.

A segment takes four stages: halving inside the node (three steps), reduce-scatter between nodes, all-gather between nodes, doubling inside
(three steps). While one segment is between nodes, others are inside: the messages between nodes are spread over the three steps.
"""

from allranks.theory.schedules import Move, Schedule


def schedule(task):
    g, nodes = 8, task.ranks // 8
    segments = 12 if task.nbytes < 1 << 30 else 96
    moves = []

    def part(segment, place, steps):
        """The chunks of the segment that `place` still works on after so many halvings."""
        first, end = segment * g * nodes, (segment + 1) * g * nodes
        for k in range(steps):
            middle = (first + end) // 2
            first, end = (middle, end) if place >> k & 1 else (first, middle)
        return range(first, end)

    def inside(step, segment, k, reduce):
        for r in range(task.ranks):
            other = r % g ^ 1 << k
            moves.append(Move(step, r, r - r % g + other, part(segment, other if reduce else r % g, k + 1), reduce))

    def between(step, sub, segment, reduce):
        for r in range(task.ranks):
            node, place = divmod(r, g)
            mine = part(segment, place, 3)
            for further in range(1 + (sub if reduce else 2 - sub), nodes, 3):
                to = (node + further) % nodes
                chunk = mine[to if reduce else node]
                moves.append(Move(step, r, to * g + place, range(chunk, chunk + 1), reduce))

    for time in range(segments + 3):
        for sub in range(3):
            if time < segments:
                inside(3 * time + sub, time, sub, True)
            if 0 <= time - 3 < segments:
                inside(3 * time + sub, time - 3, 2 - sub, False)
            if 0 <= time - 1 < segments:
                between(3 * time + sub, sub, time - 1, True)
            if 0 <= time - 2 < segments:
                between(3 * time + sub, sub, time - 2, False)
    moves.sort(key=lambda m: m.step)
    return Schedule("all_reduce", "overlapped nodes", task.ranks, segments * task.ranks, tuple(moves))
