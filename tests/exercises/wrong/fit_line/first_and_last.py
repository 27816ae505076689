"""Trusts the order of the points.

Must get: only the shortest and the longest message count
"""


def fit_line(points):
    alpha, (longest, time) = points[0][1], points[-1]
    return alpha, (time - alpha) / longest
