# wrong: nothing was returned
def pass_on(x):
    if rank > 0:
        recv(x, rank - 1)
    if rank < world_size - 1:
        send(x, rank + 1)
