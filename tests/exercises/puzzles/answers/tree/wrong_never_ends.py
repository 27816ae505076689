# wrong: an endless loop
def broadcast(x):
    d = 1
    while d < world_size:
        if rank < d:
            if rank + d < world_size:
                send(x, rank + d)
        elif rank < 2 * d:
            recv(x, rank - d)
