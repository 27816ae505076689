"""The forward of the last micro-batch is left out.

Must get: lacks F2
Must not get: before F
"""


def pipeline_order(rank, stages, micro_batches):
    warm = min(stages - rank, micro_batches)
    order = [f"F{i}" for i in range(warm)]
    for i in range(micro_batches):
        order.append(f"B{i}")
        if warm + i < micro_batches:
            order.append(f"F{warm + i}")
    return [x for x in order if x != f"F{micro_batches - 1}"]
