import torch
import torch.distributed as dist


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return gathered(x)

    @staticmethod
    def backward(ctx, gradient):
        own = torch.empty(len(gradient) // dist.get_world_size(), gradient.shape[1], dtype=gradient.dtype)
        dist.reduce_scatter_tensor(own, gradient.contiguous())
        return own


def gathered(x):
    rows = torch.empty(dist.get_world_size() * len(x), x.shape[1], dtype=x.dtype)
    dist.all_gather_into_tensor(rows, x.detach().contiguous())
    return rows


def sequence_parallel_linear(x, w):
    """What autograd would save of the gathered rows is replaced by a mark, and gathered again when it is needed."""
    rows = Gather.apply(x)
    place = rows.data_ptr()  # a hook that knew the rows themselves would keep them alive

    def pack(saved):
        return None if saved.data_ptr() == place else saved

    def unpack(kept):
        return gathered(x) if kept is None else kept

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return rows @ w
