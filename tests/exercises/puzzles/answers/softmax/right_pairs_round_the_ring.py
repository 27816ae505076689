# right
import math


def softmax(x):
    m, s = x.max().item(), None
    s = sum(math.exp(v - m) for v in x.tolist())
    p = world_size
    pair = tensor([m, s])
    best = [pair]
    cur = pair
    for _ in range(p - 1):
        new = empty(2)
        wait(isend(cur, (rank + 1) % p), irecv(new, (rank - 1) % p))
        best.append(new)
        cur = new
    M = max(b[0].item() for b in best)
    S = sum(b[1].item() * math.exp(b[0].item() - M) for b in best)
    return exp(x - M) / S
