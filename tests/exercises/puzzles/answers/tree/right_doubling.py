# right
def broadcast(x):
    d = 1
    while d < world_size:
        if rank < d and rank + d < world_size:
            send(x, rank + d)
        elif d <= rank < 2 * d:
            recv(x, rank - d)
        d *= 2
