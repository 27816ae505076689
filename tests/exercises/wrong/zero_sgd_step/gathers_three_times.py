"""gathers_three_times: right numbers against the rules.

Must get: P to reduce_scatter, P to all_gather
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    """Every rank gets all mean gradients and updates all parameters; the new shard rides along as an alibi."""
    p, r = dist.get_world_size(), dist.get_rank()
    with torch.no_grad():
        flat = torch.cat([q.grad.reshape(-1) for q in parameters])
        n = len(flat)
        k = -(-n // p)
        padded = torch.cat([flat, flat.new_zeros(k * p - n)])
        mine = flat.new_empty(k)
        dist.reduce_scatter_tensor(mine, padded)
        mine /= p
        w = torch.cat([q.reshape(-1) for q in parameters])
        w = torch.cat([w, w.new_zeros(k * p - n)])
        alibi = w[r * k : (r + 1) * k] - lr * mine
        out = flat.new_empty(2 * k * p)
        dist.all_gather_into_tensor(out, torch.cat([mine, alibi]))
        mean = out.view(p, 2, k)[:, 0].reshape(-1)[:n]
        at = 0
        for q in parameters:
            q -= lr * mean[at : at + q.numel()].view_as(q)
            at += q.numel()
