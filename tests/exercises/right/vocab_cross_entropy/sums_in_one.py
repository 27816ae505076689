import torch
import torch.distributed as dist


def vocab_cross_entropy(logits_shard, targets):
    """Both sums in one call; a comparison with the column numbers is the ones at the targets."""
    width = logits_shard.shape[1]
    columns = torch.arange(width) + dist.get_rank() * width
    ones = columns == targets[:, None]
    top = logits_shard.max(dim=1, keepdim=True).values.contiguous()
    dist.all_reduce(top, dist.ReduceOp.MAX)
    low = logits_shard - top
    sums = torch.stack([low.exp().sum(1), torch.where(ones, low, 0).sum(1)])
    dist.all_reduce(sums)
    loss = (sums[0].log() - sums[1]).mean()
    return loss, (low.exp() / sums[0][:, None] - ones.to(low.dtype)) / len(targets)
