# right
def pass_on(x):
    got = x
    if rank:
        got = empty_like(x)
        wait(irecv(got, rank - 1))
    if rank + 1 < world_size:
        out = isend(got, rank + 1)
        out.wait()
    return got
