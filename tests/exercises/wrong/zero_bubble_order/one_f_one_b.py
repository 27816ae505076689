"""1F1B with both parts at once: the rank before waits for W too.

Must get: but ZB-H1 takes 3m+p-1
Must get: for which rank 0 waits: with W
"""


def zero_bubble_order(rank, stages, micro_batches):
    ahead = min(stages - 1 - rank, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            order.append(f"F{ahead + i}")
        order += [f"I{i}", f"W{i}"]
    return order
