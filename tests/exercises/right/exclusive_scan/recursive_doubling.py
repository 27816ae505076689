"""MPICH's way: swaps sums with rank ^ mask, and keeps what comes from below beside the sum of the whole block."""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    block = tensor.clone(memory_format=torch.contiguous_format)
    result = torch.zeros_like(block)
    mask = 1
    while mask < p:
        peer = rank ^ mask
        if peer < p:
            other = torch.empty_like(block)
            pair = [dist.P2POp(dist.isend, block, peer), dist.P2POp(dist.irecv, other, peer)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()
            block = block + other
            if peer < rank:
                result = result + other
        mask <<= 1
    return result
