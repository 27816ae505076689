"""Flight-recorder dumps of live gloo ranks that stop in a collective, each written by the rank itself."""

from __future__ import annotations

import datetime
import json
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


def dump(folder: Path, rank: int) -> None:
    """Write this rank's recorder in both forms."""
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

    (folder / f"trace_rank{rank}").write_bytes(_dump_fr_trace())
    (folder / f"trace_rank{rank}.json").write_bytes(_dump_fr_trace_json())


def waits_in_the_last_call() -> bool:
    """Whether the fifth call of all ranks has been made and every one before it has ended."""
    from torch._C._distributed_c10d import _dump_fr_trace_json

    calls = json.loads(_dump_fr_trace_json())["entries"]
    return [call["collective_seq_id"] for call in calls if not call["retired"]] == [5]


def program(rank: int, pair: dist.ProcessGroup) -> None:
    """Three all-reduces, a broadcast in a sub-group, and then rank 1 makes another call than the others."""
    for size in (8, 9, 10):
        dist.all_reduce(torch.ones(size))
    if rank < 2:
        dist.broadcast(torch.ones(4, 2, dtype=torch.int32), 0, group=pair)
    if rank == 1:
        dist.broadcast(torch.ones(5), 1)
        dist.all_reduce(torch.ones(7))
    else:
        dist.all_reduce(torch.ones(7))


def main(rank: int, ranks: int, store: str, folder: Path) -> None:
    """One rank: its dump is written while it waits."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=170),
    )
    pair = dist.new_group([0, 1], group_desc="pair")
    dist.barrier()
    threading.Thread(target=program, args=(rank, pair), daemon=True).start()
    while not waits_in_the_last_call():  # the group's time limit bounds this
        time.sleep(0.02)
    dump(folder, rank)
    sys.stdout.write("written\n")
    sys.stdout.flush()
    sys.stdin.readline()  # all ranks stay until everyone has written


if __name__ == "__main__":
    import os

    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    os._exit(0)
