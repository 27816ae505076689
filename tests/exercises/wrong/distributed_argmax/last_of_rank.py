"""Takes the last index of equal values.

Must get: this is the last index of that rank
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.contiguous().flatten()
    i = (flat == flat.max()).nonzero()[-1, 0] if not torch.isnan(flat).any() else flat.argmax()
    vals = [torch.empty(1, dtype=flat.dtype) for _ in range(p)]
    idxs = [torch.empty(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(vals, flat[i].reshape(1))
    dist.all_gather(idxs, i.reshape(1))
    best = int(torch.cat(vals).argmax())
    return vals[best].item(), best, idxs[best].item()
