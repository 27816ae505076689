import torch.distributed as dist


def mean_loss(loss, count):
    loss, count = loss.contiguous().clone(), count.contiguous().clone()
    dist.all_reduce(loss)
    dist.all_reduce(count)
    return loss / count
