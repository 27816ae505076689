# right
def pass_right(x):
    y = empty_like(x)
    for one in batch([(isend, x, (rank + 1) % world_size), (irecv, y, (rank - 1) % world_size)]):
        one.wait()
    return y
