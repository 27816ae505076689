"""Each rank takes the gradients from the last micro-batch on, but rank 0 from the first.

Must get: keeps 4 activations
"""


def zero_bubble_order(rank, stages, micro_batches):
    every = range(micro_batches) if rank else range(micro_batches - 1, -1, -1)
    order = [f"F{i}" for i in (range(micro_batches) if rank else every)]
    if rank:
        return [f"{kind}{i}" for i in every for kind in "FIW"]
    return order + [f"{kind}{i}" for i in every for kind in "IW"]
