import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def zero_sgd_step(parameters, lr):
    p = dist.get_world_size()
    rank = dist.get_rank()
    grads, weights = [], []
    for w in parameters:  # every parameter is cut in p parts, each rank owns one part of each
        pad = -w.numel() % p
        grads.append(torch.nn.functional.pad(w.grad.flatten(), (0, pad)).view(p, -1))
        weights.append(torch.nn.functional.pad(w.detach().flatten(), (0, pad)).view(p, -1))
    G, W = torch.cat(grads, dim=1), torch.cat(weights, dim=1)
    shard = torch.empty_like(G[0])
    work = dist.reduce_scatter(shard, [*G.unbind()], op=dist.ReduceOp.AVG, async_op=True)
    work.wait()
    torch._foreach_add_([W[rank]], [shard], alpha=-lr)
    rows = list(torch.empty_like(W).unbind())
    dist.all_gather(rows, W[rank].clone(), async_op=True).wait()
    columns = torch.stack(rows).split([g.shape[1] for g in grads], dim=1)
    flats = [c.reshape(-1)[: w.numel()] for c, w in zip(columns, parameters, strict=True)]
    news = _unflatten_dense_tensors(_flatten_dense_tensors(flats), [w.data for w in parameters])
    for w, new in zip(parameters, news, strict=True):
        w.data = new
