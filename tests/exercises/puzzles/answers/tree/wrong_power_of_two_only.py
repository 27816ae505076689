# wrong: results are only right if the number of ranks is a power of two
def broadcast(x):
    d = 1
    while d < world_size:
        if rank < d:
            send(x, rank + d)
        elif rank < 2 * d:
            recv(x, rank - d)
        d *= 2
