"""W before I of the same micro-batch.

Must get: has W0 before I0
"""


def zero_bubble_order(rank, stages, micro_batches):
    ahead = min(stages - 1 - rank, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            order.append(f"F{ahead + i}")
        order += [f"W{i}", f"I{i}"]
    return order
