# wrong: each rank subtracts another number
def softmax(x):
    p = world_size
    m = x.max()
    e = exp(x - m)
    s = e.sum()
    t = s.clone()
    for other in range(p):
        if other != rank:
            out = isend(s, other)
            new = empty_like(s)
            recv(new, other)
            t += new
            wait(out)
    return e / t
