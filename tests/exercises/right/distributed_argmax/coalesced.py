import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    index = flat.argmax(dim=0, keepdim=True)
    best = torch.index_select(flat, 0, index)
    values, indices = torch.empty(p, dtype=flat.dtype), torch.empty(p, dtype=index.dtype)
    with dist._coalescing_manager(async_ops=True) as both:
        dist.all_gather_into_tensor(values, best)
        dist.all_gather_into_tensor(indices, index)
    both.wait()
    rank = values.argmax().item()
    return values[rank].item(), rank, indices[rank].item()
