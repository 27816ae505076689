"""Exchanges nothing.

Must get: nothing was exchanged
"""


def pairwise_all_to_all(chunks):
    return [chunk.clone() for chunk in chunks]
