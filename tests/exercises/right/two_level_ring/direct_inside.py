"""Inside a node everybody sends to everybody in one batch; between the nodes a ring."""

import torch
import torch.distributed as dist


def everybody(parts, arriving, others):
    ops = [dist.P2POp(dist.isend, parts[i], peer) for i, peer in others]
    ops += [dist.P2POp(dist.irecv, arriving[i], peer) for i, peer in others]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()


def two_level_ring(tensor: torch.Tensor, ranks_per_node: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    node, place = divmod(rank, ranks_per_node)
    nodes = p // ranks_per_node
    vector = tensor.reshape(-1).clone()
    parts = vector.tensor_split(ranks_per_node)
    # in turn, so that not everybody sends to one rank at the same time
    others = [
        (i % ranks_per_node, node * ranks_per_node + i % ranks_per_node)
        for i in range(place + 1, place + ranks_per_node)
    ]
    mine = parts[place]
    came = [torch.empty_like(mine) for _ in parts]
    everybody(parts, came, others)
    for i, _ in others:
        mine += came[i]
    chunks = mine.tensor_split(nodes)
    to, source = (rank + ranks_per_node) % p, (rank - ranks_per_node) % p
    for step in range(2 * (nodes - 1)):
        into = chunks[(node - step - 1) % nodes]
        arrived = torch.empty_like(into)
        ops = [dist.P2POp(dist.isend, chunks[(node - step) % nodes], to), dist.P2POp(dist.irecv, arrived, source)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        into.copy_(into + arrived if step < nodes - 1 else arrived)
    everybody([mine] * ranks_per_node, parts, others)
    tensor.copy_(vector.view_as(tensor))
