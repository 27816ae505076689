# right
def over_rank_0(value, join):
    new = empty_like(value)
    if rank == 0:
        for other in range(1, world_size):
            recv(new, other)
            value = join(value, new)
        for other in range(1, world_size):
            send(value, other)
        return value
    send(value, 0)
    recv(new, 0)
    return new


def softmax(x):
    high = over_rank_0(x.max(), maximum)
    e = (x - high).exp()
    return e / over_rank_0(e.sum(), lambda a, b: a + b)
