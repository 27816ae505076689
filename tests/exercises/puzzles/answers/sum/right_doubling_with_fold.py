# right
def all_sum(x):
    # recursive doubling with fold for odd
    p = world_size
    q = 1
    while q * 2 <= p:
        q *= 2
    new = empty_like(x)
    if rank >= q:
        send(x, rank - q)
        recv(x, rank - q)
        return
    if rank + q < p:
        recv(new, rank + q)
        x += new
    d = 1
    while d < q:
        other = rank ^ d
        mine = x.clone()
        r = irecv(new, other)
        send(mine, other) if rank < other else None
        if rank > other:
            send(mine, other)
        wait(r)
        x += new
        d *= 2
    if rank + q < p:
        send(x, rank + q)
