# wrong: breaks the rule: 2(p−1) numbers
def softmax(x):
    others = [r for r in range(world_size) if r != rank]
    parts = {r: empty_like(x) for r in others}
    wait([isend(x, r) for r in others], [irecv(parts[r], r) for r in others])
    row = cat([x, *parts.values()])
    return exp(x - row.max()) / exp(row - row.max()).sum()
