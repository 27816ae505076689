# right
def straggler(x):
    sums = zeros(world_size)
    sums[rank] = x.sum()
    for other in range(world_size):
        if other != rank:
            out = isend(sums[rank : rank + 1], other)
            recv(sums[other : other + 1], other)
            wait(out)
    return argmin(sums)
