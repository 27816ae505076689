# wrong: changes a buffer before wait() at 9
def all_sum(x):
    new = empty_like(x)
    for other in range(world_size):
        if other != rank:
            out = isend(x, other)
            recv(new, other)
            x += new
            wait(out)
