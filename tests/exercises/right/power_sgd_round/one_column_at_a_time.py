import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    """Sums in float64 at home, flat vectors on the wire, singular vectors for the basis, the columns in reverse order."""
    kind, p = matrix.dtype, dist.get_world_size()
    wanted = matrix.double() + error.double()
    left = (wanted @ q.double() / p).to(kind).flatten().contiguous()
    dist.all_reduce(left)
    basis, _, _ = torch.linalg.svd(left.view(matrix.shape[0], -1).double(), full_matrices=False)
    basis = basis.flip(1)
    right = (wanted.T @ basis / p).to(kind).flatten().contiguous()
    dist.all_reduce(right)
    new_q = right.view(q.shape)
    result = basis.to(kind) @ new_q.T
    error.copy_((wanted - result.double()).to(kind))
    return result, new_q
