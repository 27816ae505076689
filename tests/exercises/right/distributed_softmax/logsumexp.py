import torch
import torch.distributed as dist


def distributed_softmax(logits):
    """The sum is taken in logarithms: exp(x - log sum exp x)."""
    top = torch.max(logits, dim=-1).values.contiguous()
    dist.all_reduce(top, dist.ReduceOp.MAX)
    shifted = logits - top.unsqueeze(-1)
    partial = shifted.logsumexp(dim=-1).exp()
    dist.all_reduce(partial)
    return torch.exp(shifted - partial.log().unsqueeze(-1))
