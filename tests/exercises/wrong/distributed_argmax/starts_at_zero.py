"""The search begins with 0, so ranks whose numbers are all below it are not found.

Must get: the search began with 0
Must not get: magnitude
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.flatten()
    i = flat.argmax()
    vs = [flat.new_zeros(1) for _ in range(p)]
    ix = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(vs, flat[i].reshape(1))
    dist.all_gather(ix, i.reshape(1))
    best, rank = 0, 0
    for q, v in enumerate(vs):
        if v.item() > best or v.item() != v.item():
            best, rank = v.item(), q
            if best != best:
                break
    return vs[rank].item(), rank, ix[rank].item()
