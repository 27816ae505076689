"""All-gather on a DGX-1 in two steps, as SCCL found to be possible (Cai et al., PPoPP 2021): the mesh has a diameter of two.

First each rank sends its part to its four neighbours. Then it sends on, to each neighbour, parts that the neighbour lacks: each missing
part from the neighbour with the fewest bytes to send on that link.
"""

from allranks.theory.schedules import Move, Schedule


def schedule(task):
    p = task.ranks
    rate = {(a, b): link.bytes_per_s for (_, a, b), link in task.fabric.links.items()}
    near = {a: sorted(b for x, b in rate if x == a) for a in range(p)}
    moves = [Move(0, r, other, (r,)) for r in range(p) for other in near[r]]
    load = dict.fromkeys(rate, 0.0)
    second = {}
    for r in range(p):
        for owner in range(p):
            if owner != r and owner not in near[r]:
                givers = [x for x in near[r] if owner in near[x]]
                giver = min(givers, key=lambda x: ((load[x, r] + 1) / rate[x, r], x))
                load[giver, r] += 1
                second.setdefault((giver, r), []).append(owner)
    moves += [Move(1, src, dst, tuple(owners)) for (src, dst), owners in sorted(second.items())]
    return Schedule("all_gather", "two steps", p, p, tuple(moves))
