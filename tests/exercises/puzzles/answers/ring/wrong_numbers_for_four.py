# wrong: results are only right for p = 4
def all_reduce(x):
    p = world_size
    right, left = (rank + 1) % 4, (rank - 1) % 4
    c = tensor_split(x, 4)
    new = empty_like(c[0])

    for s in range(3):  # add
        out = isend(c[(rank - s) % 4], right)
        recv(new, left)
        c[(rank - s - 1) % 4] += new
        wait(out)

    for s in range(3):  # hand out
        out = isend(c[(rank + 1 - s) % 4], right)
        recv(c[(rank - s) % 4], left)
        wait(out)
