"""An empty rank counts as one sample of zero.

Must get: an empty rank counted as one sample
"""

import torch
import torch.distributed as dist


def mean_of_samples(samples):
    """Avoids a division by zero: an empty rank counts as one sample of zero."""
    total = torch.stack([samples.sum(), samples.new_tensor(max(len(samples), 1))])
    dist.all_reduce(total)
    return total[0] / total[1]
