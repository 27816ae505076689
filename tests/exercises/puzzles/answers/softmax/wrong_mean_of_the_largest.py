# wrong: NaN came out, as of 0/0, of infinity minus infinity or of zero times infinity
def over_all(value):
    mine = tensor([float(value)])
    total, new = clone(mine), empty(1)
    for other in range(world_size):
        if other != rank:
            out = isend(mine, other)
            recv(new, other)
            wait(out)
            total += new
    return total[0]


def softmax(x):
    e = exp(x - over_all(x.max()) / world_size)
    return e / over_all(e.sum())
