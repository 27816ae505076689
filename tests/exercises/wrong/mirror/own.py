"""Keeps its own.

Must get: no rank sent a message
"""


def mirror(tensor):
    return tensor.clone()
