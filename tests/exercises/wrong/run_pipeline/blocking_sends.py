"""Each send waits for its receiver, which sends too.

Must get: wait for each other
"""

import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    w = weight.clone().requires_grad_()
    graph = {}
    for action in order:
        kind, i = action[0], int(action[1:])
        if kind == "F":
            x = batch[i].clone()
            if rank > 0:
                dist.recv(x, rank - 1)
            x.requires_grad_()
            y = x * w
            graph[i] = x, y
            if rank < p - 1:
                dist.send(y.detach().clone(), rank + 1)
        else:
            g = upstream[i].clone()
            if rank < p - 1:
                dist.recv(g, rank + 1)
            x, y = graph.pop(i)
            y.backward(g)
            if rank > 0:
                dist.send(x.grad.clone(), rank - 1)
    return w.grad
