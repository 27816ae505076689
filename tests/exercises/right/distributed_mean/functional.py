import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol


def distributed_mean(tensor: torch.Tensor) -> torch.Tensor:
    total = funcol.all_reduce(tensor.contiguous(), "sum", dist.group.WORLD)
    return total / dist.get_world_size()
