# wrong: only rank 0 has the result
def all_sum(x):
    if rank == 0:
        part = empty_like(x)
        for other in range(1, world_size):
            recv(part, other)
            x += part
    else:
        send(x, 0)
