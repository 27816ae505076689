"""Exchanges nothing.

Must get: no rank sent a message
"""


def pairwise_all_to_all(chunks):
    return [chunk.clone() for chunk in chunks]
