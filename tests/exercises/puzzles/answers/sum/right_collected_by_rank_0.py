# right
def all_sum(x):
    if rank == 0:
        part = empty_like(x)
        for other in range(1, world_size):
            recv(part, other)
            x += part
        for other in range(1, world_size):
            send(x, other)
    else:
        send(x, 0)
        recv(x, 0)
