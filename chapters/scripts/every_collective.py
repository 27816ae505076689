"""What every collective does to each rank's tensor: the cheat sheet as a script of its own, without this course.

    torchrun --standalone --nproc-per-node 4 every_collective.py

On GPUs it uses NCCL, one rank on each; elsewhere gloo. Rank 0 prints what all ranks had before and after each call.
"""

import os

import torch
import torch.distributed as dist


def broadcast(rank, p):
    x = torch.tensor([rank + 1])
    before = x.tolist()
    dist.broadcast(x, src=0)
    return before, x.tolist()


def scatter(rank, p):
    whole, x = torch.arange(p), torch.zeros(1, dtype=torch.int64)
    dist.scatter(x, list(whole.chunk(p)) if rank == 0 else None, src=0)
    return whole.tolist() if rank == 0 else None, x.tolist()


def gather(rank, p):
    x = torch.tensor([rank + 1])
    room = [torch.zeros_like(x) for _ in range(p)] if rank == 0 else None
    dist.gather(x, room, dst=0)
    return x.tolist(), torch.cat(room).tolist() if rank == 0 else None


def reduce(rank, p):
    x = torch.tensor([rank + 1])
    before = x.tolist()
    dist.reduce(x, dst=0)
    return before, x.tolist() if rank == 0 else None  # elsewhere it is undefined


def all_reduce(rank, p):
    x = torch.tensor([rank + 1])
    before = x.tolist()
    dist.all_reduce(x)
    return before, x.tolist()


def all_gather(rank, p):
    x, y = torch.tensor([rank + 1]), torch.empty(p, dtype=torch.int64)
    dist.all_gather_single(y, x)  # all_gather_into_tensor before torch 2.13
    return x.tolist(), y.tolist()


def reduce_scatter(rank, p):
    x, y = 10 * rank + torch.arange(p), torch.empty(1, dtype=torch.int64)
    dist.reduce_scatter_single(y, x)  # reduce_scatter_tensor before torch 2.13
    return x.tolist(), y.tolist()


def all_to_all(rank, p):
    x = 10 * rank + torch.arange(p)
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    return x.tolist(), y.tolist()


COLLECTIVES = (broadcast, scatter, gather, reduce, all_reduce, all_gather, reduce_scatter, all_to_all)


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    torch.set_default_device(device)

    rank, p = dist.get_rank(), dist.get_world_size()
    for collective in COLLECTIVES:
        seen = [None] * p if rank == 0 else None
        dist.gather_object(collective(rank, p), seen)
        if rank == 0:
            print(collective.__name__)
            for other, (before, after) in enumerate(seen):
                print(f"  rank {other}: {before} -> {after}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
