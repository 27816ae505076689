"""Asks nobody.

Must get: no rank sent a message
"""


def mean_loss(loss, count):
    return loss / count
