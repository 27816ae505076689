# wrong: messages that nobody receives
def pass_on(x):
    if rank > 0:
        recv(x, rank - 1)
    out = isend(x, (rank + 1) % world_size)
    if rank < world_size - 1:
        wait(out)
    return x
