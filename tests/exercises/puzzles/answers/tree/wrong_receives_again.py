# wrong: sends and receives name different ranks
def broadcast(x):
    d = 1
    while d < world_size:
        if rank < d:
            if rank + d < world_size:
                send(x, rank + d)
        else:
            recv(x, rank - d)
        d *= 2
