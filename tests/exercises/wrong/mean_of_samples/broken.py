"""As it was.

Must get: ranks 1 and 2 have returned without calling it
"""

import torch
import torch.distributed as dist


def mean_of_samples(samples):
    if len(samples) == 0:
        return torch.tensor(0.0)
    total = torch.stack([samples.sum(), torch.tensor(float(len(samples)))])
    dist.all_reduce(total)
    return total[0] / total[1]
