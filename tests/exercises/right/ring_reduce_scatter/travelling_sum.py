import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor: torch.Tensor) -> torch.Tensor:
    """One sum travels: each rank adds its part of the chunk that came and passes it on."""
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = tensor.tensor_split(p)
    travelling = mine[(rank - 1) % p].clone(memory_format=torch.contiguous_format)
    for step in range(2, p + 1):
        part = mine[(rank - step) % p]
        incoming = torch.empty(part.shape, dtype=part.dtype)
        receiving = dist.irecv(incoming, (rank - 1) % p)
        dist.send(travelling, (rank + 1) % p)
        receiving.wait()
        travelling = incoming + part
    return travelling
