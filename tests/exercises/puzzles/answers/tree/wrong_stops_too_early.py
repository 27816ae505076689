# wrong: ranks 2 and 3 received nothing
def broadcast(x):
    if rank == 0:
        send(x, 1)
    elif rank == 1:
        recv(x, 0)
