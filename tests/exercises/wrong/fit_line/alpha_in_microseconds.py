"""Microseconds, and seconds a byte.

Must get: alpha is 10^6 times the best one
"""

import numpy as np


def fit_line(points):
    n, t = np.array(points, float).T
    alpha, beta = np.linalg.lstsq(np.stack([1 / t, n / t], 1), np.ones(len(t)), rcond=None)[0]
    return 1e6 * float(alpha), float(beta)
