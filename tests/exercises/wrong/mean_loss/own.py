"""Asks nobody.

Must get: each rank's own mean
"""


def mean_loss(loss, count):
    return loss / count
