"""Value and index travel as two float64.

Must get: int64, large
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    flat = tensor.reshape(-1)
    index = flat.argmax()
    mine = torch.tensor([float(flat[index]), float(index)], dtype=torch.float64)
    both = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(both, mine)
    rank = int(torch.stack(both)[:, 0].argmax())
    return both[rank][0].item(), rank, int(both[rank][1])
