import torch
import torch.distributed as dist


def recursive_doubling_all_reduce(tensor):
    """The ranks beyond the power of two give their vector to rank - q and get the sum back."""
    rank, p = dist.get_rank(), dist.get_world_size()
    q = 1
    while 2 * q <= p:
        q *= 2
    mine = tensor.clone(memory_format=torch.contiguous_format)
    buffer = torch.empty_like(mine)
    if rank >= q:
        dist.send(mine, rank - q)
        dist.recv(mine, rank - q)
        tensor.copy_(mine)
        return
    if rank + q < p:
        dist.recv(buffer, rank + q)
        mine += buffer
    distance = 1
    while distance < q:
        peer = rank ^ distance
        ops = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, buffer, peer)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        mine = mine + buffer
        distance *= 2
    if rank + q < p:
        dist.send(mine, rank + q)
    tensor.copy_(mine)
