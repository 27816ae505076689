"""Update and count travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: are one number
"""

import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    ok = healthy and bool(update.isfinite().all())
    u = update.double() if ok else torch.zeros(update.shape, dtype=torch.float64)
    flat = torch.cat([u.reshape(-1), torch.tensor([float(ok)], dtype=torch.float64)])
    dist.all_reduce(flat)
    n = int(flat[-1].item())
    if n >= at_least and n > 0:
        weights += (flat[:-1] / n).view(weights.shape).to(weights.dtype)
    return n
