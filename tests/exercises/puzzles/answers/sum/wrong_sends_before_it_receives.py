# wrong: sends before it receives at 6
def all_sum(x):
    mine, new = clone(x), empty_like(x)
    for other in range(world_size):
        if other != rank:
            send(mine, other)
            recv(new, other)
            x += new
