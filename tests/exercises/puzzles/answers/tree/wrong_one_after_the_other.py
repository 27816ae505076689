# wrong: breaks the rule: ⌈lg p⌉ rounds
def broadcast(x):
    if rank == 0:
        for other in range(1, world_size):
            send(x, other)
    else:
        recv(x, 0)
