"""Steps with the own gradient.

Must get: no rank sent a message
"""

import torch


def zero_sgd_step(parameters, lr):
    with torch.no_grad():
        for parameter in parameters:
            parameter -= lr * parameter.grad
