"""The products travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    y = torch.relu(x @ a_shard).double() @ b_shard.double()
    dist.all_reduce(y)
    return y.to(x.dtype)
