# wrong: raises ValueError at 5
def pass_on(x):
    if rank > 0:
        recv(x, rank - 1)
    send(x, rank + 1)
    return x
