"""Start-up: from nothing to the first all-reduce of 4 ranks, ours against torchrun, MPI and ipyparallel as it comes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from bench.common import Result, alternate, clock, compared, median

RANKS = 4
PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
dist.all_reduce(tensor)
assert tensor.item() == dist.get_world_size()
dist.destroy_process_group()
"""
MPI = """
import torch
from mpi4py import MPI

tensor = torch.ones(1)
MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, tensor.numpy())
assert tensor.item() == MPI.COMM_WORLD.Get_size()
"""
COLD = """
from allranks import World

def first():
    import torch
    import torch.distributed as dist
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()

with World(ranks=4) as world:
    assert world.run(first) == [4.0] * 4
"""


def first_all_reduce() -> float:
    """What each rank does once it is there."""
    import torch
    import torch.distributed as dist

    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()


def join_and_reduce(rank: int, world_size: int, store: str) -> float:
    """The same on an engine of ipyparallel's own, which has no group yet."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()


def run(rounds: int, progress) -> Result:
    """Measures in turns; the stop of each is measured apart."""
    from allranks import World
    from allranks.ranks.engines.forkserver.client import ForkServer

    stops: dict[str, list[float]] = {"ours": [], "ipyparallel": []}

    def ours() -> float:
        began = time.perf_counter()
        world = World(ranks=RANKS)
        assert world.run(first_all_reduce) == [float(RANKS)] * RANKS  # noqa: S101 - a bench of a wrong sum is void
        elapsed_s = time.perf_counter() - began
        stops["ours"].append(clock(world.stop))
        return elapsed_s

    def torchrun() -> float:
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "program.py"
            program.write_text(PROGRAM)
            options = ["--standalone", f"--log-dir={directory}", f"--nproc-per-node={RANKS}"]
            command = ["-m", "torch.distributed.run", *options, str(program)]
            return clock(lambda: subprocess.run([sys.executable, *command], check=True, capture_output=True))

    def mpiexec() -> float:
        # Open MPI refuses root, and more ranks than cores, unless it is told
        options = ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        command = ["mpiexec", *options, "-n", str(RANKS), sys.executable, "-c", MPI]
        return clock(lambda: subprocess.run(command, check=True, capture_output=True))

    def ipyparallel() -> float:
        import logging

        import ipyparallel as ipp

        with tempfile.TemporaryDirectory() as directory:
            began = time.perf_counter()
            cluster = ipp.Cluster(n=RANKS, profile_dir=directory, log_level=logging.ERROR)
            client = cluster.start_and_connect_sync(activate=False)
            client.wait_for_engines(RANKS, interactive=False)
            store = str(Path(directory) / "store")
            replies = [client[i].apply_async(join_and_reduce, i, RANKS, store) for i in range(RANKS)]
            assert [r.get() for r in replies] == [float(RANKS)] * RANKS  # noqa: S101
            elapsed_s = time.perf_counter() - began
            client.close()
            stops["ipyparallel"].append(clock(cluster.stop_cluster_sync))
            return elapsed_s

    def cold() -> float:
        command = [sys.executable, "-c", textwrap.dedent(COLD)]
        return clock(lambda: subprocess.run(command, check=True, capture_output=True))

    ForkServer.ensure().wait_warm()
    ours()  # the first call of a process imports ipyparallel's client: that belongs to `cold`
    stops["ours"].clear()
    variants = {
        "World, warm": ours,
        "World, first in a cold process": cold,
        "torchrun --standalone": torchrun,
        "ipyparallel as it comes": ipyparallel,
    }
    with_mpi = shutil.which("mpiexec") is not None and importlib.util.find_spec("mpi4py") is not None
    if with_mpi:
        variants["mpiexec, mpi4py and torch"] = mpiexec
    times_s = alternate(variants, rounds, progress)
    result = Result(
        f"Start-up: {RANKS} ranks to their first all-reduce (gloo)",
        ("variant", "median s", "spread s", "World, warm, is this times as fast"),
    )
    result.rows += compared(times_s)
    result.notes.append(
        f"{rounds} rounds in alternation. Stop: World {median(stops['ours']):.2f} s, ipyparallel as it comes "
        f"{median(stops['ipyparallel']):.2f} s. The cold World, like torchrun, includes Python's start and its end."
    )
    if not with_mpi:
        result.notes.append("mpiexec was left out: it needs Open MPI (apt install openmpi-bin) and pip install mpi4py.")
    return result
