import torch
import torch.distributed as dist


def bruck_all_gather(tensor):
    """PAT: the farthest partner comes first and gets one tensor, the neighbour comes last and gets the most."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = {rank: tensor.contiguous()}
    distance = 1 << max(p - 1, 0).bit_length()
    while distance > 1:
        distance //= 2
        offsets = range(0, p - distance, 2 * distance)
        leaving = torch.cat([parts[(rank + i) % p] for i in offsets])
        arriving = torch.empty_like(leaving)
        ops = [
            dist.P2POp(dist.isend, leaving, (rank - distance) % p),
            dist.P2POp(dist.irecv, arriving, (rank + distance) % p),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for i, part in zip(offsets, arriving.chunk(len(offsets)), strict=False):
            parts[(rank + distance + i) % p] = part.reshape(tensor.shape)
    return torch.cat([parts[r] for r in range(p)])
