"""Micro-batches numbered from 1.

Must get: has F3, but 3 micro-batches are numbered from 0 to 2
"""


def pipeline_order(rank, stages, micro_batches):
    ahead = stages - 1 - rank
    order = [f"F{i + 1}" for i in range(ahead)]
    for i in range(micro_batches - ahead):
        order += [f"F{ahead + i + 1}", f"B{i + 1}"]
    return order + [f"B{i + 1}" for i in range(micro_batches - ahead, micro_batches)]
