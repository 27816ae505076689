# right
def pass_on(x):
    try:
        recv(x, rank - 1)
    except ValueError:
        pass
    try:
        send(x, rank + 1)
    except ValueError:
        pass
    return x
