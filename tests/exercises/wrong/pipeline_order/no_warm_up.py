"""Each micro-batch forward and at once backward, on every rank.

Must get: rank 0 runs B0 after only 1 forward
Must get: but 1F1B takes 3(m+p-1) = 15
"""


def pipeline_order(rank, stages, micro_batches):
    order = []
    for i in range(micro_batches):
        order += [f"F{i}", f"B{i}"]
    return order
