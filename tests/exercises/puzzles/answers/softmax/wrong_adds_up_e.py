# wrong: does not add up to one
def softmax(x):
    m, t = x.max(), zeros(1)
    for r in range(world_size):
        if r != rank:
            o = isend(x.max(), r)
            n = empty_like(m)
            recv(n, r)
            m = maximum(m, n)
            wait(o)
    return x - m
