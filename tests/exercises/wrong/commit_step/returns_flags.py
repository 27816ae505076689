"""Returns how many ranks say that they are healthy.

Must get: the number of ranks that say that they are healthy came back
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    ok = healthy and bool(update.isfinite().all())
    u = update if ok else torch.zeros_like(update)
    flat = torch.cat([u.reshape(-1), torch.tensor([float(ok)], dtype=update.dtype)])
    dist.all_reduce(flat)
    n = int(flat[-1].item())
    if n >= at_least and n > 0:
        weights += (flat[:-1] / n).view(weights.shape)
    said = torch.tensor([int(healthy)])
    dist.all_reduce(said)
    return int(said)
