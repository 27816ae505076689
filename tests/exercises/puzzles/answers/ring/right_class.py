# right
class Ring:
    def __init__(self, x):
        self.p = world_size
        self.c = x.tensor_split(self.p)

    def step(self, out, into, add):
        buf = zeros_like(into)
        rs = [irecv(buf, (rank - 1) % self.p), isend(out, (rank + 1) % self.p)]
        for r in rs:
            r.wait()
        if add:
            into.add_(buf)
        else:
            into.copy_(buf)


def all_reduce(x):
    ring = Ring(x)
    for i in range(2 * (world_size - 1)):
        add = i < world_size - 1
        ring.step(ring.c[(rank - i + (not add) * 0) % ring.p], ring.c[(rank - i - 1) % ring.p], add)
