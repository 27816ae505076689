"""All forward, then I and W in turn.

Must get: activations, but min(p, m) = 2 are enough
"""


def zero_bubble_order(rank, stages, micro_batches):
    order = [f"F{i}" for i in range(micro_batches)] + [f"I{i}" for i in range(micro_batches)]
    return order + [f"W{i}" for i in range(micro_batches)]
