import torch.distributed as dist


def distributed_mean(tensor):
    mean = tensor.detach().contiguous().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean
