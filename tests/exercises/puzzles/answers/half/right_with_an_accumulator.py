# right
def reduce_scatter(x):
    p = world_size
    c = tensor_split(x, p)
    acc = clone(c[(rank - 1) % p])
    for s in range(2, p + 1):
        out = isend(acc, (rank + 1) % p)
        nxt = c[(rank - s) % p]
        buf = empty_like(nxt)
        recv(buf, (rank - 1) % p)
        out.wait()
        acc = buf + nxt
    return acc
