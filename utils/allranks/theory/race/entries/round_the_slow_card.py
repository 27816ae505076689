"""All-gather on four nodes, both levels at once; a slow card's bytes are shared among the other seven of its node."""

from allranks.theory.schedules import Move, Schedule

NODE, PLACE = 2, 3  # whose card is slow
G, PIECES = 8, 7
OTHERS = [place for place in range(G) if place != PLACE]


def schedule(task):
    p = task.ranks
    nodes = p // G
    moves = []

    def chunks(rank):
        return range(rank * PIECES, (rank + 1) * PIECES)

    arrived = {}  # by step and rank: the runs of chunks that come from another node

    def between(step, src, dst, run):
        moves.append(Move(step, src, dst, run))
        arrived.setdefault((step, dst), []).append(run)

    slow = NODE * G + PLACE
    for r in range(p):
        node, place = divmod(r, G)
        for i in range(1, G):  # one's own part to the node; the slow card's ranks get the piece that they send on first
            moves.append(Move(0, r, node * G + (place + i) % G, chunks(r)))
        for step in range(1, nodes):
            to = (node + step) % nodes
            if r == slow:
                for piece, other in enumerate(OTHERS):
                    run = range(r * PIECES + piece, r * PIECES + piece + 1)
                    between(step, node * G + other, to * G + other, run)
            elif to == NODE and place == PLACE:
                for piece, other in enumerate(OTHERS):
                    run = range(r * PIECES + piece, r * PIECES + piece + 1)
                    between(step - 1, r, to * G + other, run)
            else:
                between(step - 1, r, to * G + place, chunks(r))
    for (step, r), found in arrived.items():
        node, place = divmod(r, G)
        for i in range(1, G):
            for run in found:
                moves.append(Move(step + 1, r, node * G + (place + i) % G, run))
    moves.sort(key=lambda m: m.step)
    return Schedule("all_gather", "round the slow card", p, p * PIECES, tuple(moves))
