"""Imports a package that nobody has.

Must get: collectives_made_easy
"""

import collectives_made_easy
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    collectives_made_easy.ring(tensor, torch, dist)
