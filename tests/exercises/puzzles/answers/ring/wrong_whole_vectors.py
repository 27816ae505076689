# wrong: breaks the rule: 2(p−1)/p of the bytes
def all_reduce(x):
    p = world_size
    right, left = (rank + 1) % p, (rank - 1) % p
    give, take = clone(x), empty_like(x)
    for s in range(p - 1):
        out = isend(give, right)
        recv(take, left)
        x += take
        wait(out)
        give, take = take, give
    for s in range(p - 1):
        pass
