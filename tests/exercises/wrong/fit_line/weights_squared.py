"""Weights of 1/t², where polyfit wants 1/t.

Must get: returned is wrong
Must not get: divides the size
"""

import numpy as np


def fit_line(points):
    nbytes, seconds = np.array(points).T
    beta, alpha = np.polyfit(nbytes, seconds, 1, w=1 / seconds**2)
    return alpha, beta
