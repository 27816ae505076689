"""The hierarchical all-to-all with both levels at once: while parts go to one group, those for the next are collected.

For groups of eight: nodes, or the nodes below a leaf switch. A rank collects from its group what it sends to the rank with its own
place in another group.
"""

from allranks.theory.schedules import Move, Schedule


def schedule(task):
    p, g = task.ranks, 8
    groups = p // g
    moves = []
    for step in range(groups + 1):
        for r in range(p):
            group, place = divmod(r, g)
            if step < groups:  # what is for the group so much further on goes to the place that will send it there
                far = (group + step + 1) % groups
                for i in range(1, g):
                    to = (place + i) % g
                    moves.append(Move(step, r, group * g + to, (r * p + far * g + to,)))
            if 1 <= step < groups:
                dst = (group + step) % groups * g + place
                moves.append(Move(step, r, dst, tuple((group * g + near) * p + dst for near in range(g))))
    return Schedule("all_to_all", "overlapped exchange", p, p * p, tuple(moves))
