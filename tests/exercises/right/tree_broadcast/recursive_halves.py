import torch.distributed as dist


def _give(buf, lo, hi, me, to_rank):
    """Virtual rank lo has the tensor; the upper half gets it from lo."""
    if hi - lo <= 1:
        return
    mid = lo + (hi - lo + 1) // 2
    if me == lo:
        dist.send(buf, to_rank(mid))
    elif me == mid:
        dist.recv(buf, to_rank(lo))
    if me < mid:
        _give(buf, lo, mid, me, to_rank)
    else:
        _give(buf, mid, hi, me, to_rank)


def tree_broadcast(tensor, src):
    p = dist.get_world_size()
    buf = tensor.contiguous()
    _give(buf, 0, p, (dist.get_rank() - src) % p, lambda v: (v + src) % p)
    if buf.data_ptr() != tensor.data_ptr():
        tensor.copy_(buf)
