import torch.distributed as dist


def tree_broadcast(tensor, src):
    """Receives once, then starts all its sends, the farthest first, and waits for them at the end."""
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    work = tensor.contiguous()
    distance = 1
    while distance < p:
        if me & distance:
            dist.recv(work, (rank - distance) % p)
            break
        distance *= 2
    sending = []
    while distance > 1:
        distance //= 2
        if me + distance < p:
            sending.append(dist.isend(work, (rank + distance) % p))
    for one in sending:
        one.wait()
    if me:
        tensor.copy_(work)
