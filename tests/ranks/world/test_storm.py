"""A storm of faults: after each one the world answers right, and no process is left that should not be.

`ALLRANKS_STORM=200 make test-all ARGS=tests/ranks/world/test_storm.py` for the long one; the count and the kinds are printed.
"""

import gc
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from allranks import World
from allranks.ranks.engines.forkserver.client import ForkServer
from allranks.ranks.world import WorldError

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

RANKS = 3
SUM = [[3.0 + 3 * 5] * 4] * RANKS


def add_up(value):
    import torch
    import torch.distributed as dist

    tensor = torch.full((4,), float(value + dist.get_rank()))
    dist.all_reduce(tensor)
    return tensor.tolist()


def keep_busy(how, seconds):
    import time

    import torch
    import torch.distributed as dist

    rank, end = dist.get_rank(), time.monotonic() + seconds
    if how == "c loop" and rank == 0:
        pow(7, 10**9, 10**400 + 7)  # holds the GIL for minutes
    if how == "waiting" and rank == 0:
        dist.recv(torch.ones(1), 1)
    while time.monotonic() < end:
        dist.all_reduce(torch.ones(1000))


def family(process):
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


class Storm:
    def __init__(self, world, seed):
        self.world, self.random, self.counts = world, random.Random(seed), Counter()
        # a browser that other tests of this worker keep open is none of ours, nor is what it starts meanwhile
        self.others = set(psutil.Process().children()) - {psutil.Process(self.processes()[0])}

    def processes(self):
        """(the fork server, the controller and its helper, the ranks) of this world, by process id."""
        forkserver = ForkServer.ensure()
        forkserver.wait_warm()
        children = psutil.Process(forkserver.pid).children(recursive=True)
        ranks = set(self.world.pids)
        return forkserver.pid, [c.pid for c in children if c.pid not in ranks], sorted(ranks)

    def busy(self, how, deadline=20.0, seconds=0.8):
        try:
            self.world.run(keep_busy, how, seconds, deadline=deadline)
        except WorldError:
            pass

    def later(self, signal_number, pid):
        """Sends a signal in the middle of what follows."""
        delay = self.random.uniform(0.0, 0.3)

        def send(*_):
            try:
                os.kill(pid, signal_number)
            except ProcessLookupError:
                pass

        signal.signal(signal.SIGALRM, send)
        signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-4))

    def kill_rank(self):
        self.later(signal.SIGKILL, self.random.choice(self.processes()[2]))
        self.busy("reducing")

    def stop_rank(self):
        self.later(signal.SIGSTOP, self.random.choice(self.processes()[2]))
        self.busy("reducing", deadline=1.0, seconds=5)

    def kill_controller(self):
        self.later(signal.SIGKILL, self.random.choice(self.processes()[1]))
        self.busy("reducing", deadline=5)

    def kill_parent(self):
        self.later(signal.SIGKILL, self.processes()[0])
        self.busy("reducing")

    def interrupt(self):
        self.later(signal.SIGINT, os.getpid())
        try:
            self.busy(self.random.choice(["reducing", "waiting"]))
            time.sleep(0.4)  # longer than any delay: the interrupt comes in here, or has come
        except KeyboardInterrupt:
            pass

    def interrupt_reset(self):
        self.later(signal.SIGINT, os.getpid())
        try:
            self.world.reset()
            time.sleep(0.4)  # longer than any delay: the interrupt comes in here, or has come
        except KeyboardInterrupt:
            pass

    def hang(self):
        self.busy("waiting", deadline=0.5, seconds=5)

    def c_loop(self):
        self.busy("c loop", deadline=0.5, seconds=5)

    def lose_files(self):
        shutil.rmtree(self.world._engines.directory, ignore_errors=True)

    def half_written_files(self):
        for file in Path(self.world._engines.directory).rglob("*.json"):
            file.write_text(file.read_text()[: file.stat().st_size // 2])

    def no_run_dir(self):
        """A run directory that can not be had: the reset must fail in one sentence, the next one work."""
        before = os.environ["ALLRANKS_RUN_DIR"]
        os.environ["ALLRANKS_RUN_DIR"] = "/proc/allranks"
        try:
            with pytest.raises(WorldError, match="ALLRANKS_RUN_DIR"):
                self.world.reset()
        finally:
            os.environ["ALLRANKS_RUN_DIR"] = before

    def full_disk(self):
        """A run directory in which nothing fits any more. Needs root for the tiny file system; else left out."""
        with tempfile.TemporaryDirectory() as mount:
            tiny = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", mount]
            if os.geteuid() != 0 or subprocess.run(tiny, capture_output=True).returncode != 0:
                self.counts["full_disk left out"] += 1
                return
            before = os.environ["ALLRANKS_RUN_DIR"]
            try:
                with pytest.raises(OSError), open(Path(mount) / "fill", "wb") as fill:
                    fill.write(b"x" * 100_000)
                os.environ["ALLRANKS_RUN_DIR"] = mount
                with pytest.raises(WorldError, match="No space left on device"):
                    self.world.reset()
            finally:
                os.environ["ALLRANKS_RUN_DIR"] = before
                subprocess.run(["umount", mount], check=True)

    FAULTS = (
        "kill_rank stop_rank kill_controller kill_parent interrupt interrupt_reset hang c_loop lose_files "
        "half_written_files no_run_dir full_disk"
    ).split()

    def answer(self):
        """The right sum, at the third attempt at the latest: one may report what broke, one finds the world stopped."""
        for _ in range(3):
            try:
                return self.world.run(add_up, 5, deadline=60)
            except WorldError:
                if not self.world.running:
                    self.world.reset()
        return self.world.run(add_up, 5, deadline=60)

    def expect_no_orphans(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            forkserver, helpers, ranks = self.processes()
            ours = [child for child in psutil.Process().children() if child not in self.others]
            mine = {p.pid for child in ours for p in (child, *family(child))}
            strangers = mine - {forkserver, *helpers, *ranks}
            if len(ranks) == RANKS and len(helpers) <= 2 and not strangers:
                return
            time.sleep(0.1)
        raise AssertionError(f"{helpers=} {ranks=} {strangers=}")


def test_a_storm(capsys):
    count, seed = int(os.environ.get("ALLRANKS_STORM", "12")), int(os.environ.get("ALLRANKS_STORM_SEED", "1"))
    before = signal.getsignal(signal.SIGALRM)
    slowest = 0.0
    try:
        with World(ranks=RANKS) as world:
            storm = Storm(world, seed)
            order = [Storm.FAULTS[i % len(Storm.FAULTS)] for i in range(count)]
            storm.random.shuffle(order)
            for name in order:
                getattr(storm, name)()
                signal.setitimer(signal.ITIMER_REAL, 0)
                storm.counts[name] += 1
                began = time.monotonic()
                assert storm.answer() == SUM, name
                slowest = max(slowest, time.monotonic() - began)
                storm.expect_no_orphans()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with capsys.disabled():
        print(f"\n{count} faults, seed {seed}: {dict(storm.counts)}; slowest recovery {slowest:.1f} s")


def test_many_calls_leave_memory_and_descriptors_flat(capsys):
    count = int(os.environ.get("ALLRANKS_CALLS", "400"))
    with World(ranks=2) as world:

        def load():
            gc.collect()
            processes = [psutil.Process(), *map(psutil.Process, world.pids)]
            return [(p.memory_info().rss, p.num_fds()) for p in processes]

        for _ in range(100):
            world.run(add_up, 5)
        before = load()
        for _ in range(count):
            world.run(add_up, 5)
        after = load()
    growth = [(b[0] - a[0]) / 2**20 for a, b in zip(before, after, strict=True)]
    with capsys.disabled():
        print(f"\n{count} calls: growth {[f'{g:.1f} MiB' for g in growth]}, descriptors {[f[1] for f in after]}")
    assert all(b[1] <= a[1] for a, b in zip(before, after, strict=True)), (before, after)  # an earlier test's may close
    assert max(growth) < 20 + 0.002 * count
