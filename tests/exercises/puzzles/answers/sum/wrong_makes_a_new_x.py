# wrong: nothing changed
def all_sum(x):
    mine, new = clone(x), empty_like(x)
    for other in range(world_size):
        if other != rank:
            out = isend(mine, other)
            recv(new, other)
            x = x + new
            wait(out)
