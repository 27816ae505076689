import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    row = table[0].clone()
    if rank == 0 and p > 1:
        ops = [dist.P2POp(dist.isend, table[peer].clone(), peer) for peer in range(1, p)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    elif rank > 0:
        dist.irecv(row, 0).wait()
    return row
