import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = list(tensor.clone(memory_format=torch.contiguous_format).tensor_split(p))
    for step in range(p - 1):
        target = (rank + step + 2) % p
        arrived = torch.zeros_like(chunks[target])
        ops = [
            dist.P2POp(dist.irecv, arrived, (rank + 1) % p),
            dist.P2POp(dist.isend, chunks[(rank + step + 1) % p], (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        chunks[target] = chunks[target] + arrived
    return chunks[rank].clone()
