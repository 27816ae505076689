"""Asks nobody.

Must get: of its own arguments only: nothing of the other ranks is in it
"""


def mean_of_samples(samples):
    return samples.mean()
