"""A line through the logarithms.

Must get: a power law
"""

import math

import torch


def fit_line(points):
    x = torch.tensor([[1.0, math.log(n)] for n, t in points], dtype=torch.float64)
    y = torch.tensor([[math.log(t)] for n, t in points], dtype=torch.float64)
    intercept, slope = torch.linalg.lstsq(x, y).solution.flatten().tolist()
    return math.exp(intercept), slope
