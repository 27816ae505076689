# wrong: hands out what is not complete at 15
def all_reduce(x):
    p = world_size
    right, left = (rank + 1) % p, (rank - 1) % p
    c = tensor_split(x, p)
    new = empty_like(c[0])

    for s in range(p - 1):  # add
        out = isend(c[(rank - s) % p], right)
        recv(new, left)
        new += c[(rank - s - 1) % p]
        wait(out)

    for s in range(p - 1):  # hand out
        out = isend(c[(rank + 1 - s) % p], right)
        recv(c[(rank - s) % p], left)
        wait(out)
