# right
def broadcast(x):
    low, high = 0, world_size
    while high - low > 1:
        middle = (low + high + 1) // 2
        if rank == low:
            send(x, middle)
        elif rank == middle:
            recv(x, low)
        low, high = (low, middle) if rank < middle else (middle, high)
