"""Keeps its own.

Must get: the rank's own input came back
"""


def mirror(tensor):
    return tensor.clone()
