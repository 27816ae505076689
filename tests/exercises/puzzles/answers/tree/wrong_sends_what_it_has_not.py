# wrong: sends something else
def broadcast(x):
    d = 1
    while d < world_size:
        if rank % (2 * d) == 0 and rank + d < world_size:
            send(x, rank + d)
        elif rank % (2 * d) == d:
            recv(x, rank - d)
        d *= 2
