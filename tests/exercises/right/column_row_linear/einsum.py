import torch
import torch.distributed as dist


class TensorParallel:
    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows

    def __call__(self, x):
        hidden = torch.einsum("nd,dh->nh", x, self.columns).clamp(min=0)
        result = torch.zeros((x.shape[0], self.rows.shape[1]), dtype=x.dtype)
        result += torch.einsum("nh,ho->no", hidden, self.rows)
        dist.all_reduce(result)
        return result


def column_row_linear(x: torch.Tensor, a_shard: torch.Tensor, b_shard: torch.Tensor) -> torch.Tensor:
    return TensorParallel(a_shard, b_shard)(x)
