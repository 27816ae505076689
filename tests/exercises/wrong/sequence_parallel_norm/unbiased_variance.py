"""Takes the variance of torch.var.

Must get: divided by the width less one
"""

import torch
import torch.distributed as dist


def sequence_parallel_norm(x, weight, bias):
    p = dist.get_world_size()

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, mine):
            parts = [torch.empty(mine.shape, dtype=mine.dtype) for _ in range(p)]
            dist.all_gather(parts, mine.contiguous())
            return torch.cat(parts)

        @staticmethod
        def backward(ctx, g):
            pieces = [c.contiguous() for c in g.chunk(p)]
            mine = torch.empty_like(pieces[0])
            dist.reduce_scatter(mine, pieces)
            return mine

    class Par(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, b):
            return w.view_as(w), b.view_as(b)

        @staticmethod
        def backward(ctx, gw, gb):
            both = torch.stack([gw, gb])
            dist.all_reduce(both)
            return both[0], both[1]

    w, b = Par.apply(weight, bias)
    y = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5)
    return Gather.apply(y * w + b)
