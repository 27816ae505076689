import torch.distributed as dist


def pipelined_broadcast(tensor, src, segments):
    rank, p = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % p
    work = tensor.flatten().clone()
    pieces = work.tensor_split(segments)
    receives = [dist.irecv(piece, (rank - 1) % p) for piece in pieces] if place else []
    for i, piece in enumerate(pieces):
        if place:
            receives[i].wait()
        if place + 1 < p:
            dist.send(piece, (rank + 1) % p)
    if place:
        tensor.copy_(work.reshape(tensor.shape))
