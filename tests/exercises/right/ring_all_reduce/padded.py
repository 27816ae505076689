import torch
import torch.distributed as dist
import torch.nn.functional as F


def ring_all_reduce(tensor):
    """All chunks of one length: the vector is padded with zeros up to a multiple of p."""
    rank, p = dist.get_rank(), dist.get_world_size()
    n = tensor.numel()
    length = -(-n // p)
    padded = F.pad(tensor.reshape(-1), (0, length * p - n)).reshape(p, length)
    buffer = torch.empty_like(padded[0])
    for step in range(2 * (p - 1)):
        reducing = step < p - 1
        send = (rank - step) % p if reducing else (rank + 1 - (step - p + 1)) % p
        take = (send - 1) % p
        receiving = dist.irecv(buffer, (rank - 1) % p)
        dist.send(padded[send].contiguous(), (rank + 1) % p)
        receiving.wait()
        if reducing:
            padded[take] += buffer
        else:
            padded[take] = buffer
    tensor.copy_(padded.reshape(-1)[:n].reshape(tensor.shape))
