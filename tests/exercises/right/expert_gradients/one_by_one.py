import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    """One all_reduce for each parameter."""
    rank, p = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(place, p, ep))) for place in range(ep)]
    for parameters, group in ((dense, None), (experts, groups[rank % ep])):
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= p
