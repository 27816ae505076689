import numpy as np


def fit_line(points):
    points = sorted(set(points))
    n, t = np.array(points).T
    beta, alpha = np.polyfit(n, t, 1, w=1 / t)
    return alpha, beta
