# wrong: sends something else at 7
def pass_on(x):
    new = empty_like(x)
    if rank > 0:
        recv(new, rank - 1)
    if rank < world_size - 1:
        send(x, rank + 1)
    return new
