# right
def straggler(x):
    p = world_size
    best = tensor([x.sum().item(), rank])
    for _ in range(p - 1):
        new = empty_like(best)
        wait(isend(best, (rank + 1) % p), irecv(new, (rank - 1) % p))
        if new[0] < best[0]:
            best = new
    return int(best[1])
