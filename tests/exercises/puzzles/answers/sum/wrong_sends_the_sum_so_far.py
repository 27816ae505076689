# wrong: adds a contribution twice
def all_sum(x):
    new = empty_like(x)
    for other in range(world_size):
        if other != rank:
            out = isend(clone(x), other)
            recv(new, other)
            x += new
            wait(out)
