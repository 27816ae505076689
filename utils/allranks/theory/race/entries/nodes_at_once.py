"""Small vectors on nodes of eight: add inside the node, let each rank exchange with another node, add inside again.

After three steps all eight ranks of a node hold its sum. In one round over eight cards the node sends it to all seven others;
each rank has then the sum of one other node (rank 0 keeps its own), and three more steps inside add these.
"""

from allranks.theory.schedules import Move, Schedule


def schedule(task):
    g, nodes = 8, task.ranks // 8
    moves = []
    for k in range(3):
        moves += [Move(k, r, r ^ 1 << k, (0,), reduce=True) for r in range(task.ranks)]
    for node in range(nodes):
        for place in range(1, nodes):  # the rank with this place stores the sum of the node so much further on
            moves.append(Move(3, (node + place) % nodes * g + place, node * g + place, (0,)))
    for k in range(3):
        moves += [Move(4 + k, r, r ^ 1 << k, (0,), reduce=True) for r in range(task.ranks)]
    return Schedule("all_reduce", "nodes at once", task.ranks, 1, tuple(moves))
