# wrong: by one step only
def straggler(x):
    got = zeros(world_size)
    got[rank] = x.min()
    others = [r for r in range(world_size) if r != rank]
    wait([isend(got[rank : rank + 1], r) for r in others], [irecv(got[r : r + 1], r) for r in others])
    return argmin(got)
