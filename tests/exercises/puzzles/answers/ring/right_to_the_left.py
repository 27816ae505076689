# right
def all_reduce(x):
    p = world_size
    down, up = (rank - 1) % p, (rank + 1) % p
    c = tensor_split(x, p)
    new = zeros_like(c[0])
    for s in range(p - 1):
        wait(isend(c[(rank + s) % p], down), irecv(new, up))
        c[(rank + s + 1) % p].add_(new)
    for s in range(p - 1):
        wait(batch([P2POp(isend, c[(rank + s - 1) % p], down), P2POp(irecv, c[(rank + s) % p], up)]))
