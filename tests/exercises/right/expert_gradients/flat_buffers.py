import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    """Two flat buffers, both in flight; scaled before they are added, as Megatron does: by edp/p after the mean of edp."""
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = None
    for place in range(ep):
        group = dist.new_group(list(range(place, p, ep)))
        if rank % ep == place:
            mine = group
    works = []
    for parameters, group in ((dense, dist.group.WORLD), (experts, mine)):
        flat = torch.cat([(torch.zeros_like(x) if x.grad is None else x.grad).flatten() for x in parameters])
        works.append((parameters, flat, dist.all_reduce(flat, group=group, async_op=True)))
    for parameters, flat, work in works:
        work.wait()
        for x, piece in zip(parameters, flat.div(p).split([x.numel() for x in parameters]), strict=True):
            x.grad = piece.view(x.shape).clone()
