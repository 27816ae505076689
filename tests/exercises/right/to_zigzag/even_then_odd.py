import torch
import torch.distributed as dist


def to_zigzag(tensor):
    """The even chunks first, then the odd ones: in each half a rank sends one chunk and receives one."""
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = len(tensor) // 2
    result = torch.empty(tensor.shape, dtype=tensor.dtype)
    for odd in (0, 1):
        chunk = 2 * rank + odd
        to = chunk if chunk < p else 2 * p - 1 - chunk
        wanted = rank if rank % 2 == odd else 2 * p - 1 - rank
        source, place = wanted // 2, 0 if wanted == rank else rows
        piece = tensor[odd * rows : (odd + 1) * rows].clone(memory_format=torch.contiguous_format)
        if to == rank:
            result[place : place + rows] = piece
            continue
        come = torch.empty_like(piece)
        sending = dist.isend(piece, to)
        dist.recv(come, source)
        sending.wait()
        result[place : place + rows] = come
    return result
