"""Halving and doubling, with the nearest partner first where the rank count is a power of two; else everything round a ring."""

import torch
import torch.distributed as dist


def swap(sent, arrived, partner):
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, partner), dist.P2POp(dist.irecv, arrived, partner)]
    ):
        work.wait()


def by_halves(flat, bit):
    rank, p = dist.get_rank(), dist.get_world_size()
    if 1 << bit == p:
        return
    halves, up = flat.tensor_split(2), rank >> bit & 1
    mine, other, arrived = halves[up], halves[1 - up], torch.empty_like(halves[up])
    swap(other, arrived, rank ^ 1 << bit)
    mine += arrived
    by_halves(mine, bit + 1)
    swap(mine, other, rank ^ 1 << bit)


def ring(flat, members):
    p, me = len(members), members.index(dist.get_rank())
    chunks = flat.tensor_split(p)
    for step in range(2 * (p - 1)):
        into = chunks[(me - step - 1) % p]
        arrived = torch.empty_like(into)
        ops = [
            dist.P2POp(dist.isend, chunks[(me - step) % p], members[(me + 1) % p]),
            dist.P2POp(dist.irecv, arrived, members[(me - 1) % p]),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        into.copy_(into + arrived if step < p - 1 else arrived)


def two_level_ring(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    flat = tensor.reshape(-1).clone()
    if p & (p - 1) == 0:
        by_halves(flat, 0)
    elif g == 1 or g == p:
        ring(flat, list(range(p)))
    else:  # each rank's part of the node's sum, to everybody in the node, and back
        first = rank // g * g
        node, parts = range(first, first + g), flat.tensor_split(g)
        mine = parts[rank - first]
        coming = {peer: torch.empty_like(mine) for peer in node if peer != rank}
        ops = [dist.P2POp(dist.isend, parts[peer - first], peer) for peer in coming]
        ops += [dist.P2POp(dist.irecv, coming[peer], peer) for peer in coming]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for part in coming.values():
            mine += part
        ring(mine, list(range(rank % g, p, g)))
        ops = [dist.P2POp(dist.isend, mine, peer) for peer in coming]
        ops += [dist.P2POp(dist.irecv, parts[peer - first], peer) for peer in coming]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    tensor.copy_(flat.reshape(tensor.shape))
