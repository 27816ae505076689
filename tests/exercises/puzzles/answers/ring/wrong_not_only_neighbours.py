# wrong: breaks the rule: neighbours only
def all_reduce(x):
    p = world_size
    c = tensor_split(x, p)
    mine, new = clone(c[rank]), empty_like(c[rank])
    for d in range(1, p):
        out = isend(c[(rank + d) % p], (rank + d) % p)
        recv(new, (rank - d) % p)
        mine += new
        wait(out)
    c[rank].copy_(mine)
    for d in range(1, p):
        out = isend(mine, (rank + d) % p)
        recv(c[(rank - d) % p], (rank - d) % p)
        wait(out)
