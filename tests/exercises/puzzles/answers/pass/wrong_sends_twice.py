# wrong: breaks the rule: once over each link at 7
def pass_on(x):
    for _ in range(2):
        if rank > 0:
            recv(x, rank - 1)
        if rank < world_size - 1:
            send(x, rank + 1)
    return x
