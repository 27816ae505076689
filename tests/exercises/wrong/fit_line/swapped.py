"""Slope first, as polyfit does.

Must get: alpha and beta are swapped
"""


def fit_line(points):
    (_, alpha), (longest, time) = min(points), max(points)
    return (time - alpha) / longest, alpha
