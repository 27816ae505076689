"""A window of eight segments under way; the oldest is finished before the next one starts."""

from collections import deque

import torch
import torch.distributed as dist

SEGMENTS = 8


def segmented_ring(tensor, add):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks = [chunk.tensor_split(SEGMENTS) for chunk in flat.tensor_split(p)]
    under_way = deque()

    def finish():
        number, works, arrived = under_way.popleft()
        for work in works:
            work.wait()
        step, j = divmod(number, SEGMENTS)
        into = chunks[(rank - step - 1) % p][j]
        if step < p - 1:
            add(into, arrived)
        else:
            into.copy_(arrived)

    for number in range(2 * (p - 1) * SEGMENTS):
        if number >= SEGMENTS:
            finish()
        step, j = divmod(number, SEGMENTS)
        arrived = torch.empty_like(chunks[(rank - step - 1) % p][j])
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p][j], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        under_way.append((number, dist.batch_isend_irecv(ops), arrived))
    while under_way:
        finish()
    tensor.copy_(flat.view(tensor.shape))
