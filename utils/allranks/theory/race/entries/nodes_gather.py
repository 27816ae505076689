"""All-gather on nodes of eight: first between nodes, each rank with those of its own place, then inside the node."""

from allranks.theory.schedules import Move, Schedule


def schedule(task):
    p, g = task.ranks, 8
    nodes = p // g
    moves = []
    for step in range(1, nodes):
        for r in range(p):
            moves.append(Move(step - 1, r, (r + step * g) % p, (r,)))
    for i in range(1, g):
        for r in range(p):
            node, place = divmod(r, g)
            same_place = tuple(other * g + place for other in range(nodes))
            moves.append(Move(nodes - 2 + i, r, node * g + (place + i) % g, same_place))
    return Schedule("all_gather", "nodes gather", p, p, tuple(moves))
