"""Keeps its own.

Must get: each rank's own tensor
"""


def mirror(tensor):
    return tensor.clone()
