"""All W at the end: as short, but everything is kept.

Must get: activations, but min(p, m) = 2 are enough
"""


def zero_bubble_order(rank, stages, micro_batches):
    ahead = min(stages - 1 - rank, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            order.append(f"F{ahead + i}")
        order.append(f"I{i}")
    return order + [f"W{i}" for i in range(micro_batches)]
