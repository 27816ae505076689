# right
from dataclasses import dataclass


@dataclass
class Half:
    of: object
    first: bool

    def numbers(self):
        middle = len(self.of) // 2
        return self.of[:middle] if self.first else self.of[middle:]


def pass_on(x):
    for first in True, False:
        half = Half(x, first).numbers()
        if rank:
            recv(half, rank - 1)
        if rank + 1 < world_size:
            send(half, rank + 1)
    return x
