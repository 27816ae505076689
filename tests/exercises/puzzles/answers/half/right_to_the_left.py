# right
def reduce_scatter(x):
    p = world_size
    c = [clone(part) for part in tensor_split(x, p)]
    for s in range(1, p):
        give, take = c[(rank + s) % p], c[(rank + s + 1) % p]
        new = zeros_like(take)
        wait(isend(give, (rank - 1) % p), irecv(new, (rank + 1) % p))
        c[(rank + s + 1) % p] = take + new
    return c[rank]
