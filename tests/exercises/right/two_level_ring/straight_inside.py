import torch
import torch.distributed as dist


def batch(*ops):
    for w in dist.batch_isend_irecv(list(ops)) if ops else ():
        w.wait()


def two_level_ring(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    me, base = rank % g, rank - rank % g
    flat = tensor.contiguous().view(-1).clone()
    parts = flat.tensor_split(g)
    # straight reduce-scatter inside the node, at distance 1, 2, ...
    for d in range(1, g):
        box = torch.empty_like(parts[me])
        batch(
            dist.P2POp(dist.isend, parts[(me + d) % g].clone(), base + (me + d) % g),
            dist.P2POp(dist.irecv, box, base + (me - d) % g),
        )
        parts[me].add_(box)
    nodes = p // g
    node = rank // g
    mine = parts[me].tensor_split(nodes)
    for s in range(nodes - 1):
        into = mine[(node - s - 1) % nodes]
        box = torch.empty_like(into)
        batch(
            dist.P2POp(dist.isend, mine[(node - s) % nodes], (rank + g) % p),
            dist.P2POp(dist.irecv, box, (rank - g) % p),
        )
        into.add_(box)
    for s in range(nodes - 1):
        batch(
            dist.P2POp(dist.isend, mine[(node + 1 - s) % nodes], (rank + g) % p),
            dist.P2POp(dist.irecv, mine[(node - s) % nodes], (rank - g) % p),
        )
    for d in range(1, g):
        batch(
            dist.P2POp(dist.isend, parts[me], base + (me + d) % g),
            dist.P2POp(dist.irecv, parts[(me - d) % g], base + (me - d) % g),
        )
    tensor.copy_(flat.view(tensor.shape))
