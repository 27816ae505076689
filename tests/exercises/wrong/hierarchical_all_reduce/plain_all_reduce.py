"""One all_reduce over everything.

Must get: spans nodes
"""

import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    total = tensor.contiguous().clone()
    dist.all_reduce(total)
    tensor.copy_(total)
