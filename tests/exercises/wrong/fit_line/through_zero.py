"""Forgets alpha.

Must get: even an empty message takes alpha
"""


def fit_line(points):
    return 0.0, sum(t / n for n, t in points) / len(points)
