import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    """The mean over the replicas, then times edp / p; where a rank has no replica, no message."""
    rank, p = dist.get_rank(), dist.get_world_size()
    edp = p // ep
    groups = [dist.new_group(list(range(place, p, ep))) for place in range(ep)]
    for x in [*dense, *experts]:
        x.grad = torch.zeros_like(x) if x.grad is None else x.grad
    for x in dense:
        dist.all_reduce(x.grad)
        x.grad.div_(p)
    for x in experts:
        if edp > 1:
            dist.all_reduce(x.grad, group=groups[rank % ep])
        x.grad.div_(edp).mul_(edp / p)
