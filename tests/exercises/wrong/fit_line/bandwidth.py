"""Bytes a second.

Must get: a bandwidth instead of beta
"""


def fit_line(points):
    (_, alpha), (longest, time) = min(points), max(points)
    return alpha, longest / (time - alpha)
