import torch.distributed as dist

MINE = 5  # the slow rank


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    order = [(src + place) % p for place in range(p)]
    if MINE % p != src:
        order.remove(MINE % p)
        order.append(MINE % p)  # the last place of a tree sends nothing
    me = order.index(rank)
    buffer = tensor.contiguous()
    have = 1
    while have < p:
        if me < have and me + have < p:
            dist.send(buffer, order[me + have])
        elif have <= me < 2 * have:
            dist.recv(buffer, order[me - have])
        have *= 2
    if me:
        tensor.copy_(buffer)
