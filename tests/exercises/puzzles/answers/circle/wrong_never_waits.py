# wrong: never waits for a message at 5
def pass_right(x):
    p = world_size
    y = empty_like(x)
    isend(x, (rank + 1) % p)
    recv(y, (rank - 1) % p)
    return y
