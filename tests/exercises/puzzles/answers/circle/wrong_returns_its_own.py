# wrong: ends with its own numbers
def pass_right(x):
    p = world_size
    y = empty_like(x)
    if rank % 2:
        send(x, (rank + 1) % p)
        recv(y, (rank - 1) % p)
    else:
        recv(y, (rank - 1) % p)
        send(x, (rank + 1) % p)
    return x
