import torch
import torch.distributed as dist


def tree_broadcast(tensor: torch.Tensor, src: int) -> torch.Tensor:
    rank, p = dist.get_rank(), dist.get_world_size()
    buffer = tensor.contiguous()

    def spread(first, last):
        """The root of [first, last) is `first`, counted from src."""
        if last - first < 2:
            return
        middle = (first + last + 1) // 2
        me = (rank - src) % p
        if me == first:
            dist.send(buffer, (middle + src) % p)
        elif me == middle:
            dist.recv(buffer, (first + src) % p)
        if me < middle:
            spread(first, middle)
        else:
            spread(middle, last)

    spread(0, p)
    if rank != src:
        tensor.copy_(buffer)
    return tensor
