import torch
import torch.distributed as dist


def clip_gradients(sharded, replicated, max_norm):
    """Each rank counts a p-th of the replicated gradients' squares."""
    replicated = list(dict.fromkeys(replicated))

    def norm_of(parameters):
        gradients = [p.grad.flatten().double() for p in parameters if p.grad is not None]
        return torch.linalg.vector_norm(torch.cat(gradients)) if gradients else torch.tensor(0.0, dtype=torch.float64)

    total = norm_of(sharded) ** 2 + norm_of(replicated) ** 2 / dist.get_world_size()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    norm = total.sqrt().item()
    for p in [*sharded, *replicated]:
        if p.grad is not None and norm > max_norm:
            p.grad.mul_(max_norm / norm)
    return norm
