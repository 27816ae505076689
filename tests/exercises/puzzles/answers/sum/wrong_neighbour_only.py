# wrong: contributions are missing
def all_sum(x):
    p = world_size
    new = empty_like(x)
    out = isend(clone(x), (rank + 1) % p)
    recv(new, (rank - 1) % p)
    x += new
    wait(out)
