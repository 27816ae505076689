"""Times all_reduce for a few sizes. On GPUs the variables of the environment (NCCL_ALGO, NCCL_PROTO, ...) decide how.

    NCCL_ALGO=Ring torchrun --standalone --nproc-per-node 8 sweep_all_reduce.py 1024 1048576 1073741824

Rank 0 prints a line for each size: bytes and microseconds, the median of ten calls.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist


def microseconds(tensor, calls=10):
    took = []
    for _ in range(3 + calls):
        dist.barrier()
        if tensor.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        dist.all_reduce(tensor)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return 1e6 * statistics.median(took[3:])


def main():
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    for nbytes in map(int, sys.argv[1:]):
        tensor = torch.zeros(nbytes // 4, device="cuda" if on_gpu else "cpu")
        took = microseconds(tensor)
        if dist.get_rank() == 0:
            print(nbytes, f"{took:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
