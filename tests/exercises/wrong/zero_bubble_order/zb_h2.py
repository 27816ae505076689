"""More forward passes ahead: no hole in a row, but more is kept.

Must get: activations, but min(p, m) = 2 are enough
"""


def zero_bubble_order(rank, stages, micro_batches):
    ahead = min(2 * (stages - 1 - rank) + 1, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches):
        order.append(f"I{i}")
        if i >= 2 * rank:
            order.append(f"W{i - 2 * rank}")
        if ahead + i < micro_batches:
            order.append(f"F{ahead + i}")
    return order + [f"W{i}" for i in range(max(micro_batches - 2 * rank, 0), micro_batches)]
