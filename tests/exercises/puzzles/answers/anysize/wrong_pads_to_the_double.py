# wrong: breaks the rule: 2(p−1)/p of the bytes
def all_reduce(x):
    p = world_size
    n = 2 * -(-numel(x) // p)
    big = zeros(n * p)
    big[: numel(x)] = x
    c = big.split(n)
    new = empty(n)
    for s in range(p - 1):
        out = isend(c[(rank - s) % p], (rank + 1) % p)
        recv(new, (rank - 1) % p)
        c[(rank - s - 1) % p] += new
        wait(out)
    for s in range(p - 1):
        out = isend(c[(rank + 1 - s) % p], (rank + 1) % p)
        recv(c[(rank - s) % p], (rank - 1) % p)
        wait(out)
    x.copy_(big[: numel(x)])
