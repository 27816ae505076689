"""GPipe: as short, but all activations are kept.

Must get: rank 0 keeps 4 activations, but min(p-rank, m) = 2 are enough
"""


def pipeline_order(rank, stages, micro_batches):
    return [f"F{i}" for i in range(micro_batches)] + [f"B{i}" for i in range(micro_batches)]
