"""Asks nobody.

Must get: each rank's own mean
"""


def mean_of_samples(samples):
    return samples.mean()
