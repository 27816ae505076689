"""Value and index travel as a pair of float32.

Must get: the value travelled as float32 and lost digits: send each in its own dtype
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    index = int(flat.argmax())
    mine = torch.tensor([float(flat[index]), float(index)], dtype=torch.float32)
    pairs = [torch.empty_like(mine) for _ in range(p)]
    dist.all_gather(pairs, mine)
    pairs = torch.stack(pairs)
    rank = int(pairs[:, 0].argmax())
    return pairs[rank, 0].item(), rank, int(pairs[rank, 1])
