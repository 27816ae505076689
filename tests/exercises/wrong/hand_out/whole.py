"""Sends the whole table.

Must get: but its row has
"""

import torch
import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    everything = table.clone(memory_format=torch.contiguous_format)
    if rank > 0:
        dist.recv(everything, 0)
    else:
        for peer in range(1, p):
            dist.send(everything, peer)
    return everything[rank].clone()
