"""Every rank begins with one forward and its backward.

Must get: after only 1 forward
"""


def zero_bubble_order(rank, stages, micro_batches):
    return [f"{kind}{i}" for i in range(micro_batches) for kind in "FIW"]
