import torch
import torch.distributed as dist


def distributed_mean(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total / dist.get_world_size()
