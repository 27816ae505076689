"""Nobody sends anything.

Must get: own tensor came back
"""


def ring_shift(tensor, k):
    return tensor.clone()
