"""Odd ranks take the micro-batches in the opposite order.

Must get: rank 1 begins with F3, which rank 0 does not run first
"""


def pipeline_order(rank, stages, micro_batches):
    order = [f"{kind}{i}" for kind in "FB" for i in range(micro_batches)]
    if rank % 2:
        order = [f"{kind}{i}" for kind in "FB" for i in reversed(range(micro_batches))]
    return order
