# wrong: divides by another sum
def everybody(mine):
    got = [empty(1) for _ in range(world_size)]
    got[rank].copy_(mine)
    others = [r for r in range(world_size) if r != rank]
    wait([isend(got[rank], r) for r in others], [irecv(got[r], r) for r in others])
    return cat(got)


def softmax(x):
    e = exp(x - x.max())
    return e / (e.sum() + everybody(e.sum())[0])
