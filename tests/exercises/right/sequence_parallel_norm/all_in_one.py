import torch
import torch.distributed as dist


class NormAndGather(torch.autograd.Function):
    """Everything by hand, with lists of tensors."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        centred = x - x.mean(1, keepdim=True)
        scale = torch.rsqrt(centred.pow(2).mean(1, keepdim=True) + 1e-5)
        normal = centred * scale
        ctx.save_for_backward(normal, scale, weight)
        mine = (normal * weight + bias).contiguous()
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        normal, scale, weight = ctx.saved_tensors
        mine = torch.empty_like(normal, memory_format=torch.contiguous_format)
        dist.reduce_scatter(mine, [part.contiguous() for part in gradient.chunk(dist.get_world_size())])
        both = torch.cat([(mine * normal).sum(0), mine.sum(0)])
        work = dist.all_reduce(both, async_op=True)
        g = mine * weight
        of_x = scale * (g - g.mean(1, keepdim=True) - normal * (g * normal).mean(1, keepdim=True))
        work.wait()
        return of_x, *both.chunk(2)


def sequence_parallel_norm(x, weight, bias):
    return NormAndGather.apply(x, weight, bias)
