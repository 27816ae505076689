"""A line through the shortest and the longest message.

Must get: times that scatter
"""


def fit_line(points):
    (first, quick), *_, (last, slow) = sorted(points)
    beta = (slow - quick) / (last - first)
    return quick - first * beta, beta
