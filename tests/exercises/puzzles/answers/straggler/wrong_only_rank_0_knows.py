# wrong: nothing was returned
def straggler(x):
    mine = tensor([x.sum()])
    if rank != 0:
        send(mine, 0)
        return
    sums = [mine]
    for other in range(1, world_size):
        new = empty_like(mine)
        recv(new, other)
        sums.append(new)
    return argmin(cat(sums))
