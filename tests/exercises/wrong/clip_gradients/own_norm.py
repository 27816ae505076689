"""torch.nn.utils.clip_grad_norm_, on each rank alone.

Must get: no rank sent a message
"""

import torch


def squares(parameters):
    total = torch.zeros(())
    for p in parameters:
        if p.grad is not None:
            total = total + p.grad.float().square().sum()
    return total


def clip_gradients(sharded, replicated, max_norm):
    replicated = list({id(q): q for q in replicated}.values())
    total = squares(sharded) + squares(replicated)
    # nothing is added
    norm = total.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for q in [*sharded, *replicated]:
        if q.grad is not None:
            q.grad.copy_(q.grad * factor)
    return norm
