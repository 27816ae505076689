import torch
import torch.distributed as dist


def vocab_cross_entropy(logits_shard, targets):
    """Computed in float64, through the logarithm of the softmax; sent in the logits' dtype."""
    n, w = logits_shard.shape
    wide = logits_shard.double()
    own = torch.logsumexp(wide, 1)
    top = own.to(logits_shard.dtype, copy=True)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    total = (own - top).exp().to(logits_shard.dtype)
    dist.all_reduce(total)
    log_p = wide - (top.double() + total.double().log())[:, None]
    ones = torch.zeros_like(log_p)
    for row, target in enumerate(targets.tolist()):
        owner, column = divmod(target, w)
        if owner == dist.get_rank():
            ones[row, column] = 1
    losses = -(torch.where(ones > 0, log_p, 0)).sum(1).to(logits_shard.dtype)
    dist.all_reduce(losses)
    return losses.mean().to(logits_shard.dtype), ((log_p.exp() - ones) / n).to(logits_shard.dtype)
