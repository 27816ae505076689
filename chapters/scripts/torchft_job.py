"""A job of two replicas under torchft, one of which dies and comes back: `pip install torchft`, then start this file.

Without arguments it starts a lighthouse and the replicas; with arguments it is one replica. On the CPU with Gloo.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

DIES_IN, QUIET = 20, {**os.environ, "RUST_LOG": "error", "PYTHONWARNINGS": "ignore"}


def replica(name: str, lighthouse: str, steps: int, dies_in: int) -> None:
    """Adds 1 to a weight in each step, as an average over the replicas that are there."""
    from torchft import Manager, ProcessGroupGloo

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    weight = torch.zeros(1)

    def load(state: dict[str, torch.Tensor]) -> None:
        weight.copy_(state["weight"])
        print(f"{name}: healed, the weight is {weight.item():g}", flush=True)

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"weight": weight.clone()},
        min_replica_size=1,
        replica_id=name,
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        use_async_quorum=False,
    )
    while manager.current_step() < steps:
        began = time.monotonic()
        manager.start_quorum()  # and heals, if this replica came late
        step = manager.current_step()
        time.sleep(0.1)  # forward and backward
        gradient = torch.ones(1)
        if step == dies_in:
            print(f"{name}: dies in step {dies_in}", flush=True)
            os._exit(1)
        manager.allreduce(gradient).wait()
        committed = manager.should_commit()  # an error in the all-reduce is noted, and this vote says no
        if committed:
            weight += gradient
        took, members = time.monotonic() - began, manager.num_participants()
        if not committed or took > 0.5 or step % 20 == 0 or manager.current_step() == steps:
            said = "committed" if committed else "not committed"
            print(f"{name}: step {step} {said}, {members} replicas, weight {weight.item():g}, {took:.1f} s", flush=True)
    manager.shutdown()


def job(steps: int = 120) -> None:
    """The lighthouse, two replicas, and the second one's next life."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=1000, heartbeat_timeout_ms=1000)

    def start(name: str, dies_in: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, name, lighthouse.address(), str(steps), str(dies_in)]
        return subprocess.Popen(command, env=QUIET, stderr=subprocess.DEVNULL)

    first, second = start("replica A", -1), start("replica B", DIES_IN)
    second.wait()
    again = start("replica B", -1)
    codes = first.wait(), again.wait()
    lighthouse.shutdown()
    if any(codes):
        sys.exit(f"a replica ended with code {max(codes)}; run one alone to see its messages")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        job()
    else:
        replica(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
