"""The last rank runs ahead, not the first.

Must get: deadlock
"""


def zero_bubble_order(rank, stages, micro_batches):
    ahead = min(rank, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            order.append(f"F{ahead + i}")
        order += [f"I{i}", f"W{i}"]
    return order
