# wrong: wrong values
def pass_right(x):
    p = world_size
    y = empty_like(x)
    out = isend(x, (rank - 1) % p)
    recv(y, (rank + 1) % p)
    wait(out)
    return y
