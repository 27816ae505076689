# wrong: NaN came out, as of 0/0, of infinity minus infinity or of zero times infinity
def softmax(x):
    largest = tensor([float(x.max())])
    for other in range(1, world_size):
        if rank == 0:
            send(largest, other)
        elif rank == other:
            recv(largest, 0)
    e = exp(x - largest[0])
    mine = tensor([float(e.sum())])
    total, new = clone(mine), empty(1)
    for other in range(world_size):
        if other != rank:
            out = isend(mine, other)
            recv(new, other)
            wait(out)
            total += new
    return e / total[0]
