"""The dense gradients go through two all_reduces: in the expert group, then among the replicas.

Must get: dense gradients are averaged over all ranks
"""

import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = [dist.new_group(list(range(first, first + ep))) for first in range(0, p, ep)]
    columns = [dist.new_group(list(range(place, p, ep))) for place in range(ep)]
    for x in [*dense, *experts]:
        x.grad = torch.zeros_like(x) if x.grad is None else x.grad
    for x in dense:
        dist.all_reduce(x.grad, group=rows[rank // ep])
    for x in [*dense, *experts]:
        dist.all_reduce(x.grad, group=columns[rank % ep])
        x.grad /= p
