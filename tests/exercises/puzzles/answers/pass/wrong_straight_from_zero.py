# wrong: breaks the rule: neighbours only
def pass_on(x):
    if rank == 0:
        for other in range(1, world_size):
            send(x, other)
    else:
        recv(x, 0)
    return x
