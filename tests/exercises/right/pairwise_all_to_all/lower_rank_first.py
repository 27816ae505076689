import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks: list[torch.Tensor]) -> list[torch.Tensor]:
    """Blocking: in each pair the lower rank sends first; pairs meet in one order on all ranks."""
    rank, p = dist.get_rank(), dist.get_world_size()
    received = list(chunks)
    for low in range(p):
        for high in range(low + 1, p):
            if rank not in (low, high):
                continue
            other = high if rank == low else low
            incoming = torch.empty_like(chunks[rank].contiguous())
            if rank == low:
                dist.send(chunks[other].contiguous(), other)
                dist.recv(incoming, other)
            else:
                dist.recv(incoming, other)
                dist.send(chunks[other].contiguous(), other)
            received[other] = incoming
    return received
