import torch
import torch.distributed as dist


def ring(chunks, members, phase):
    """p-1 steps of a ring among `members`: phase "reduce" leaves chunk i summed on member i, "gather" spreads it."""
    size, me = len(members), members.index(dist.get_rank())
    left, right = members[(me - 1) % size], members[(me + 1) % size]
    for step in range(size - 1):
        shift = 1 if phase == "reduce" else 0
        send, take = (me - step - shift) % size, (me - step - shift - 1) % size
        incoming = torch.empty_like(chunks[take])
        sending = dist.isend(chunks[send], right)
        dist.recv(incoming, left)
        sending.wait()
        if phase == "reduce":
            chunks[take].add_(incoming)
        else:
            chunks[take].copy_(incoming)


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    first = rank // g * g
    node, rail = list(range(first, first + g)), list(range(rank % g, p, g))
    flat = tensor.contiguous().view(-1).clone()
    chunks = flat.tensor_split(g)
    ring(chunks, node, "reduce")
    pieces = chunks[rank - first].tensor_split(p // g)
    ring(pieces, rail, "reduce")
    ring(pieces, rail, "gather")
    ring(chunks, node, "gather")
    tensor.copy_(flat.view(tensor.shape))
