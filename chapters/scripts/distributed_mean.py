"""The mean of a tensor over all ranks, as a script of its own, without this course.

    torchrun --standalone --nproc-per-node 4 distributed_mean.py

On GPUs it uses NCCL, one rank on each; elsewhere gloo.
"""

import os

import torch
import torch.distributed as dist


def distributed_mean(tensor):
    """Returns the elementwise mean over all ranks; the tensor stays as it is."""
    mean = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


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
    mean = distributed_mean(torch.full((3,), float(rank)))
    if rank == 0:  # one rank prints, else every line comes p times
        print(f"{p} ranks on {device.type} with {dist.get_backend()}: the mean of 0 to {p - 1} is {mean.tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
