"""Sum and count travel as float64.

Must get: send values in the tensor's own dtype, and indices and counts in an integer dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def mean_of_samples(samples):
    both = torch.stack([samples.double().sum(), torch.tensor(len(samples), dtype=torch.float64)])
    dist.all_reduce(both)
    return (both[0] / both[1]).to(samples.dtype)
