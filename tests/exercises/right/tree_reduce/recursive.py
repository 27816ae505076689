import torch
import torch.distributed as dist


def tree_reduce(tensor: torch.Tensor, dst: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    total = tensor.contiguous().clone()

    def gather(first, last):
        """Leaves the sum of [first, last) on `first`."""
        if last - first < 2:
            return
        middle = (first + last + 1) // 2
        gather(*((first, middle) if me < middle else (middle, last)))
        if me == middle:
            dist.send(total, (first + dst) % p)
        elif me == first:
            incoming = torch.empty_like(total)
            dist.recv(incoming, (middle + dst) % p)
            total.add_(incoming)

    gather(0, p)
    if me == 0:
        tensor.copy_(total)
