"""A line through the second point and the last but one.

Must get: times that scatter
"""


def fit_line(points):
    (first, quick), (last, slow) = sorted(points)[1], sorted(points)[-2]
    beta = (slow - quick) / (last - first)
    return quick - first * beta, beta
