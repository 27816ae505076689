# wrong: NaN came out, as of 0/0, of infinity minus infinity or of zero times infinity
def everybody(mine):
    got = [empty(1) for _ in range(world_size)]
    got[rank].copy_(mine)
    others = [r for r in range(world_size) if r != rank]
    wait([isend(got[rank], r) for r in others], [irecv(got[r], r) for r in others])
    return cat(got)


def softmax(x):
    e = exp(x)
    return e / everybody(e.sum()).sum()
