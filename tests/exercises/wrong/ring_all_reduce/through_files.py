"""The vectors travel through files in /tmp.

Must get: file
"""

import os
import time

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), "through_files")
    os.makedirs(folder, exist_ok=True)
    mine = os.path.join(folder, f"{rank}.pt")
    with open(mine + ".part", "wb") as file:
        torch.save(tensor.clone(), file)
    os.rename(mine + ".part", mine)
    total = torch.zeros_like(tensor)
    for other in range(p):
        while not os.path.exists(os.path.join(folder, f"{other}.pt")):
            time.sleep(0.001)
        total += torch.load(os.path.join(folder, f"{other}.pt"))
    tensor.copy_(total)
