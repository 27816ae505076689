# wrong: the ranks disagree
def straggler(x):
    mine, new = tensor([x.sum()]), zeros(1)
    wait(isend(mine, (rank + 1) % world_size), irecv(new, (rank - 1) % world_size))
    return rank if mine[0] < new[0] else (rank - 1) % world_size
