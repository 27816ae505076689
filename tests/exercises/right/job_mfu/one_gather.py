import torch
import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    mine = torch.stack([tokens.double(), seconds])
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine)
    counts, times = torch.stack(everybody).unbind(1)
    once = counts[::ranks_per_replica].sum(0)
    return once * flop_per_token / (times.max(0).values * len(everybody) * flop_per_s)
