"""One more forward ahead than the later stages need.

Must get: rank 0 keeps 3 activations, but min(p-rank, m) = 2 are enough
Must get: before F2 it must run a backward
"""


def pipeline_order(rank, stages, micro_batches):
    ahead = min(stages - rank, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches - ahead):
        order += [f"F{ahead + i}", f"B{i}"]
    return order + [f"B{i}" for i in range(micro_batches - ahead, micro_batches)]
