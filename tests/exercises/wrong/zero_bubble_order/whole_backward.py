"""1F1B's actions: B is not cut in two.

Must get: write F, I or W
"""


def zero_bubble_order(rank, stages, micro_batches):
    ahead = min(stages - 1 - rank, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            order.append(f"F{ahead + i}")
        order.append(f"B{i}")
    return order
