"""The later the rank, the more it runs ahead: the wrong way round.

Must get: deadlock: rank 0 waits
"""


def pipeline_order(rank, stages, micro_batches):
    order = [f"F{i}" for i in range(rank)]
    for i in range(micro_batches - rank):
        order += [f"F{rank + i}", f"B{i}"]
    return order + [f"B{i}" for i in range(micro_batches - rank, micro_batches)]
