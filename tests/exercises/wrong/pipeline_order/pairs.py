"""Pairs instead of texts.

Must get: has an item that is a tuple of 2; it must be a list of actions
"""


def pipeline_order(rank, stages, micro_batches):
    return [("F", i) for i in range(micro_batches)] + [("B", i) for i in range(micro_batches)]
