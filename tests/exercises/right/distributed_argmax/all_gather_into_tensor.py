import torch
import torch.distributed as dist


def first_max(flat):
    """The first maximum; torch.argmax promises no order among equals."""
    if flat.is_floating_point() and flat.isnan().any():
        return int(flat.isnan().nonzero()[0])
    return int((flat == flat.max()).nonzero()[0])


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.flatten()
    index = first_max(flat)
    values = torch.empty(p, dtype=tensor.dtype)
    indices = torch.empty(p, dtype=torch.int64)
    dist.all_gather_into_tensor(values, flat[index : index + 1].clone())
    dist.all_gather_into_tensor(indices, torch.tensor([index]))
    rank = first_max(values)
    return values[rank], rank, indices[rank].item()
