"""A line through the shortest and the longest message.

Must get: only the shortest and the longest message count
"""


def fit_line(points):
    (n0, t0), (n1, t1) = min(points), max(points)
    beta = (t1 - t0) / (n1 - n0)
    return t0, beta
