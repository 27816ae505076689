"""Times all_reduce, or all_gather, for a few sizes. On GPUs variables of the environment (NCCL_ALGO, ...) decide how.

    NCCL_ALGO=Ring torchrun --standalone --nproc-per-node 8 sweep_collective.py 1024 1048576 1073741824
    NCCL_CTA_POLICY=ZERO torchrun --standalone --nproc-per-node 8 sweep_collective.py --all-gather --window 1048576

With --window the tensors lie in memory that NCCL allocated and that all ranks registered as a window (GPUs only).
Rank 0 prints a line for each size: bytes of the full vector and microseconds, the median of ten. Each of the ten is one
call by the clock on the CPU, and on GPUs the mean of twenty calls between two events (fewer, if they are long).
"""

import functools
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist


def microseconds(call, on_gpu, times=10):
    calls = how_many(call) if on_gpu else 1
    took = [by_events(call, calls) if on_gpu else by_clock(call) for _ in range(3 + times)]
    return 1e6 * statistics.median(took[3:])


def how_many(call, most=20, together_s=0.05):
    """Calls between two events, the same number on all ranks: GPUs without NVLink take a second for a large one."""
    by_events(call, 1)  # connects
    once_s = torch.tensor(by_events(call, 1), device="cuda")
    dist.all_reduce(once_s, op=dist.ReduceOp.MAX)
    return max(1, min(most, int(together_s / max(once_s.item(), 1e-6))))


def by_clock(call):
    dist.barrier()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def by_events(call, calls):
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(10**7)  # milliseconds, until all calls are in the queue: a launch takes longer than a small call
    call()  # the ranks' GPUs begin together
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) * 1e-3 / calls


def tensors(sizes, device, window):
    """Tensors of so many numbers. The pool that holds those of a window is returned too: it must live as long."""
    if not window:
        return [torch.zeros(n, device=device) for n in sizes], None
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        made = [torch.zeros(n, device=device) for n in sizes]
    dist.barrier()  # the communicator must be there
    backend.register_mem_pool(pool, symm=True)
    return made, pool


def all_gather(whole, part):
    (getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor)(whole, part)


def main():
    window, gather = "--window" in sys.argv, "--all-gather" in sys.argv
    on_gpu = torch.cuda.is_available()
    if window and not on_gpu:
        sys.exit("a window needs GPUs: leave out --window")
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    p = dist.get_world_size()
    for nbytes in map(int, (word for word in sys.argv[1:] if word.isdigit())):
        sizes = [nbytes // 4, nbytes // 4 // p] if gather else [nbytes // 4]
        (whole, *part), pool = tensors(sizes, "cuda" if on_gpu else "cpu", window)
        call = functools.partial(all_gather, whole, *part) if gather else functools.partial(dist.all_reduce, whole)
        took = microseconds(call, on_gpu)
        if dist.get_rank() == 0:
            print(nbytes, f"{took:.1f}", flush=True)
        if pool is not None:
            dist.group.WORLD._get_backend(torch.device("cuda")).deregister_mem_pool(pool)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
