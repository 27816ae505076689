# wrong: breaks the rule: 2(p−1)/p of the bytes
def all_reduce(x):
    g, new = node_size, empty_like(x)
    head = rank // g * g
    if rank != head:
        send(x, head)
        recv(x, head)
        return
    for other in range(head + 1, head + g):
        recv(new, other)
        x += new
    wait(isend(x, (rank + g) % world_size), irecv(new, (rank + g) % world_size))
    x += new
    for other in range(head + 1, head + g):
        send(x, other)
