"""Takes the micro-batch that was kept last, not that of the action.

Must get: the backward passes use the newest input that is kept
"""

import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    w = weight.clone().requires_grad_()
    graph, pending = {}, []
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
                pending.append(dist.isend(y.detach().clone(), rank + 1))
        else:
            g = upstream[i].clone()
            if rank < p - 1:
                dist.recv(g, rank + 1)
            x, y = graph.popitem()[1]
            y.backward(g)
            if rank > 0:
                pending.append(dist.isend(x.grad.clone(), rank - 1))
    for work in pending:
        work.wait()
    return w.grad
