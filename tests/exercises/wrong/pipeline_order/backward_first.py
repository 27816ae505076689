"""In each pair the backward comes first, which the last rank can't do.

Must get: what rank 2 returned has B0 before F0
"""


def pipeline_order(rank, stages, micro_batches):
    ahead = stages - 1 - rank
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches - ahead):
        order += [f"B{i}", f"F{ahead + i}"]
    return order + [f"B{i}" for i in range(micro_batches - ahead, micro_batches)]
