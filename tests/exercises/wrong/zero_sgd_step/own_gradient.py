"""Steps with the own gradient.

Must get: own gradient
"""

import torch


def zero_sgd_step(parameters, lr):
    with torch.no_grad():
        for parameter in parameters:
            parameter -= lr * parameter.grad
