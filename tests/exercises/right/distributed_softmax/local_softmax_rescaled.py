import torch
import torch.distributed as dist


def distributed_softmax(logits: torch.Tensor) -> torch.Tensor:
    """The local softmax, scaled by this rank's share of the whole sum."""
    wide = logits.double()
    local = torch.softmax(wide, dim=-1)
    log_sum = torch.logsumexp(wide, dim=-1, keepdim=True)
    top = log_sum.to(logits.dtype, copy=True).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    share = torch.exp(log_sum - top)
    total = share.to(logits.dtype, copy=True).contiguous()
    dist.all_reduce(total)
    return (local * (share / total)).to(logits.dtype)
