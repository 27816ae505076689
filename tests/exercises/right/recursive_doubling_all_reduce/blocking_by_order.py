import torch
import torch.distributed as dist


def exchange(mine, rank, peer):
    incoming = torch.zeros_like(mine)
    if rank < peer:
        sending = dist.isend(mine, peer)
        receiving = dist.irecv(incoming, peer)
    else:
        receiving = dist.irecv(incoming, peer)
        sending = dist.isend(mine, peer)
    receiving.wait()
    sending.wait()
    return incoming


def recursive_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    rounds = p.bit_length() - 1
    core = 2**rounds
    work = tensor.flatten().clone()
    if rank < core:
        if rank + core < p:
            extra = torch.zeros_like(work)
            dist.recv(extra, rank + core)
            work.add_(extra)
        for bit in reversed(range(rounds)):
            work.add_(exchange(work.clone(), rank, rank ^ (1 << bit)))
        if rank + core < p:
            dist.send(work, rank + core)
    else:
        dist.send(work, rank - core)
        dist.recv(work, rank - core)
    tensor.copy_(work.reshape(tensor.shape))
