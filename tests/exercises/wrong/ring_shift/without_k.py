"""Takes the tensor only.

Must get: Rank 0 raised TypeError: ring_shift() takes 1 positional argument but 2 were given
Must not get: line
"""


def ring_shift(tensor):
    return tensor.clone()
