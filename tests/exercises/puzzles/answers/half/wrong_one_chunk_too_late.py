# wrong: off by one chunk
def reduce_scatter(x):
    p = world_size
    right, left = (rank + 1) % p, (rank - 1) % p
    c = tensor_split(x, p)
    for s in range(p - 1):
        new = empty_like(c[(rank - s - 1) % p])
        out = isend(c[(rank - s) % p], right)
        recv(new, left)
        c[(rank - s - 1) % p] += new
        wait(out)
    return c[rank]
