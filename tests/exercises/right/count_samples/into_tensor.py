import torch
import torch.distributed as dist


def count_samples(samples):
    counts = torch.empty(dist.get_world_size(), dtype=torch.int64)
    dist.all_gather_into_tensor(counts, torch.tensor([samples.shape[0]]))
    return counts
