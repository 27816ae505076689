"""Slope first, as polyfit does.

Must get: changed places
"""


def fit_line(points):
    (_, alpha), (longest, time) = min(points), max(points)
    return (time - alpha) / longest, alpha
