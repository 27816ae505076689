# wrong: off by one chunk
def all_reduce(x):
    g, node = node_size, rank // node_size
    me = rank % g
    here = [node * g + i for i in range(g)]
    right, left = here[(me + 1) % g], here[(me - 1) % g]
    c = tensor_split(x, g)
    for s in range(g - 1):
        new = empty_like(c[(me - s - 2) % g])
        out = isend(c[(me - s - 1) % g], right)
        recv(new, left)
        c[(me - s - 2) % g] += new
        wait(out)

    other = (rank + g) % world_size
    new = empty_like(c[me])
    wait(isend(c[me], other), irecv(new, other))
    c[(me + 1) % g] += new

    for s in range(g - 1):
        out = isend(c[(me - s) % g], right)
        recv(c[(me - s - 1) % g], left)
        wait(out)
