# wrong: a buffer was read before wait()
def all_sum(x):
    mine, new = clone(x), empty_like(x)
    for other in range(world_size):
        if other != rank:
            out = isend(mine, other)
            r = irecv(new, other)
            x += new
            wait(out, r)
