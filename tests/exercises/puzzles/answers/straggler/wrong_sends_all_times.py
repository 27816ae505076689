# wrong: breaks the rule: 2(p−1) numbers
def straggler(x):
    others = [r for r in range(world_size) if r != rank]
    got = {r: empty_like(x) for r in others}
    wait([isend(x, r) for r in others], [irecv(got[r], r) for r in others])
    got[rank] = x
    return min(range(world_size), key=lambda r: got[r].sum())
