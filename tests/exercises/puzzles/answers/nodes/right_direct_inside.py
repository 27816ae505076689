# right
def all_reduce(x):
    g = node_size
    here = [r for r in range(world_size) if r // g == rank // g and r != rank]
    c = tensor_split(x, g)
    mine = c[rank % g]
    got = [empty_like(mine) for _ in here]
    wait([isend(c[r % g], r) for r in here], [irecv(new, r) for new, r in zip(got, here)])
    for new in got:
        mine += new
    other, new = (rank + g) % world_size, empty_like(mine)
    wait(isend(mine, other), irecv(new, other))
    mine += new
    wait([isend(mine, r) for r in here], [irecv(c[r % g], r) for r in here])
