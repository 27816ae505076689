import torch


def fit_line(points):
    """Newton-like steps on the logarithm of the error."""
    points = sorted(points)
    (_, alpha), (longest, time) = points[0], points[-1]
    beta = (time - alpha) / longest
    for _ in range(50):
        rows = torch.tensor([[alpha, n * beta] for n, t in points], dtype=torch.float64)
        model = rows.sum(1, keepdim=True)
        error = torch.tensor([[t] for _, t in points], dtype=torch.float64).log() - model.log()
        step = torch.linalg.lstsq(rows / model, error).solution.flatten().tolist()
        alpha, beta = alpha * (1 + step[0]), beta * (1 + step[1])
    return alpha, beta
