import torch


def fit_line(points):
    # (alpha + n beta) / t should be 1
    rows = torch.tensor([[1 / t, n / t] for n, t in points], dtype=torch.float64)
    ones = torch.ones(len(points), 1, dtype=torch.float64)
    alpha, beta = torch.linalg.lstsq(rows, ones).solution.flatten().tolist()
    return alpha, beta
