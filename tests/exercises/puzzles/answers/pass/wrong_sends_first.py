# wrong: sends something else
def pass_on(x):
    if rank < world_size - 1:
        send(x, rank + 1)
    if rank > 0:
        recv(x, rank - 1)
    return x
