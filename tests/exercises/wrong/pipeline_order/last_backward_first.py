"""Backward begins with what was kept last.

Must get: the pipeline takes
Must get: because rank 1 runs B2 only after F2
"""


def pipeline_order(rank, stages, micro_batches):
    kept, order, begun = [], [], 0
    while begun < micro_batches or kept:
        if begun < micro_batches and len(kept) < stages - rank:
            order.append(f"F{begun}")
            kept.append(begun)
            begun += 1
        else:
            order.append(f"B{kept.pop()}")
    return order
