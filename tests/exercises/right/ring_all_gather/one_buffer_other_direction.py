import torch
import torch.distributed as dist


def ring_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    whole = torch.empty((p, *tensor.shape), dtype=tensor.dtype)
    whole[rank] = tensor
    if p > 1:
        for step in range(p - 1):
            ops = [
                dist.P2POp(dist.isend, whole[(rank + step) % p], (rank - 1) % p),
                dist.P2POp(dist.irecv, whole[(rank + step + 1) % p], (rank + 1) % p),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
    return whole.reshape(p * tensor.shape[0], *tensor.shape[1:])
