"""Value and index travel as two numbers of the tensor's dtype.

Must get: the index travelled as bfloat16 and lost digits: send each in its own dtype
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    """The index travels beside the value, in the value's dtype."""
    p = dist.get_world_size()
    flat = tensor.flatten()
    index = flat.argmax()
    pair = torch.stack([flat[index], index.to(flat.dtype)])
    pairs = [torch.empty_like(pair) for _ in range(p)]
    dist.all_gather(pairs, pair)
    pairs = torch.stack(pairs)
    rank = int(pairs[:, 0].argmax())
    return pairs[rank, 0].item(), rank, int(pairs[rank, 1])
