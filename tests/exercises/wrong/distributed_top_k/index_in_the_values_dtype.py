"""Values and indices travel in the tensor's dtype, and padding is the least finite number.

Must get: the indices travelled as bfloat16 and lost digits: send each in its own dtype
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    """Indices travel in the values' dtype, and places to fill hold the least finite number."""
    p = dist.get_world_size()
    flat = tensor.flatten()
    own = torch.sort(flat, descending=True, stable=True).indices[:k]
    info = torch.finfo(flat.dtype) if flat.is_floating_point() else torch.iinfo(flat.dtype)
    packet = torch.full((2, k), info.min, dtype=flat.dtype)
    packet[0, : len(own)] = flat[own]
    packet[1, : len(own)] = own.to(flat.dtype)
    packets = [torch.empty_like(packet) for _ in range(p)]
    dist.all_gather(packets, packet)
    values = torch.cat([x[0] for x in packets])
    indices = torch.cat([x[1] for x in packets])
    best = torch.sort(values, descending=True, stable=True).indices[:k]
    return values[best], best // max(k, 1), indices[best].long()
