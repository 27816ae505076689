from torch.distributed import all_reduce, get_world_size


def distributed_mean(tensor):
    share = tensor.contiguous() / get_world_size()
    all_reduce(share)
    return share
