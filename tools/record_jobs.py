"""Records the eight jobs of lab 11 on live gloo ranks, each with a fault planted in it, and measures their noise.

    python tools/record_jobs.py                # writes utils/allranks/exercises/planted/static/planted_jobs.json.gz
    python tools/record_jobs.py --only healthy --out /tmp/healthy.json.gz

Six ranks, in rows of three and columns of two, make the calls of a training step. Compute is a wait, as if a GPU worked
while the CPU is idle. The faults: a rank whose compute takes twice as long (straggler), one that leaves out a call
(desync), one that is killed by `world.fault` (missing rank), a call for each small tensor (tiny calls), gradients that
are reduced after the backward pass (no overlap), messages that `world.fault` delays on one rank (wrong interface),
tokens of which most go to one rank (skewed all-to-all). A recording that is too near a limit of the contract is made
again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from allranks import World
from allranks.exercises.planted import RECORDINGS
from allranks.jobs.root_cause import RECORDED_LIMITS, Kind, decide, is_clear, measure
from allranks.ranks.world import RanksError, WorldError

ROWS, COLUMNS = ((0, 1, 2), (3, 4, 5)), ((0, 3), (1, 4), (2, 5))
BLAMED = {
    Kind.STRAGGLER: 4,
    Kind.DESYNC: 2,
    Kind.MISSING_RANK: 5,
    Kind.WRONG_INTERFACE: 1,
    Kind.SKEWED_ALL_TO_ALL: 3,
}
STEPS, WARM_UP = 6, 5
SHIFT_US = {"node0": 4_182_730.4, "node1": 4_071_318.9}  # added to the clocks, as if each row were a host
TRIES = 12
WITHIN = (0.8, 1.4)  # noise further out is cut off: it is the recording machine's other work
DEADLINE_S = 12.0


class JobRank:
    """One rank of a job with a planted fault. Each call's start and end is written at once, in case it hangs."""

    def __init__(self, kind: str, folder: str, blamed: int, rows: tuple, columns: tuple) -> None:
        self.kind, self.blamed = kind, blamed
        self.rank, world_size = dist.get_rank(), dist.get_world_size()
        self.file = os.open(f"{folder}/{self.rank}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.groups: dict[str, Any] = {}
        self.members: dict[str, tuple[int, ...]] = {}
        for name, ranks in {"world": (tuple(range(world_size)),), "row": rows, "column": columns}.items():
            for several in ranks:
                made = dist.new_group(list(several))
                if self.rank in several:
                    self.groups[name], self.members[name] = made, several
        self.count = dict.fromkeys(self.groups, 0)

    def write(self, **entry: Any) -> None:
        """A line of the rank's file."""
        os.write(self.file, (json.dumps(entry) + "\n").encode())

    def compute(self, ms: float) -> None:
        """A wait, as if a GPU worked."""
        start = _now_us()
        time.sleep(ms / 1e3)
        self.write(compute=[start, _now_us()], wanted=1e3 * ms)

    def around(self, name: str, into: int, out: int, op: str, call: Any, overlapped: bool = False) -> Any:
        """Makes the call; notes its start, and its end when it ends."""
        number, start = self.count[name], _now_us()
        self.count[name] += 1
        self.write(of=name, op=op, ranks=self.members[name], seq=number, start=start, into=into, out=out)
        work = call()

        def ended(_: Any = None) -> None:
            self.write(of=name, seq=number, end=_now_us())

        if overlapped:
            return work.get_future().then(ended)
        if work is not None:
            work.wait()
        ended()
        return None

    def ring(self, tensor: torch.Tensor, name: str, reduces: bool) -> None:
        """An all-gather of parts, after a reduce-scatter if it reduces, by messages over the default group."""
        team = self.members[name]
        me, n = team.index(self.rank), len(team)
        parts = list(tensor.chunk(n))
        right, left = team[(me + 1) % n], team[(me - 1) % n]
        for round_ in range((2 if reduces else 1) * (n - 1)):
            adds = reduces and round_ < n - 1
            outgoing = parts[(me - round_) % n]
            arrived = torch.empty_like(outgoing)
            send, receive = dist.isend(outgoing.clone(), right), dist.irecv(arrived, left)
            send.wait()
            receive.wait()
            place = (me - round_ - 1) % n
            parts[place].copy_(parts[place] + arrived if adds else arrived)

    def all_reduce(self, name: str, elements: int, overlapped: bool = False) -> Any:
        """By messages where the interface is at fault, whose messages alone can be delayed."""
        tensor = torch.ones(elements)

        def call() -> Any:
            if self.kind == "WRONG_INTERFACE" and name != "world":
                return self.ring(tensor, name, True)
            return dist.all_reduce(tensor, group=self.groups[name], async_op=True)

        return self.around(name, 4 * elements, 4 * elements, "all_reduce", call, overlapped)

    def all_gather(self, name: str, elements: int) -> None:
        """As `all_reduce`; `elements` are one rank's."""
        n = len(self.members[name])
        whole = torch.ones(n * elements)

        def call() -> Any:
            if self.kind == "WRONG_INTERFACE":
                return self.ring(whole, name, False)
            return dist.all_gather(list(whole.chunk(n)), torch.ones(elements), group=self.groups[name], async_op=True)

        self.around(name, 4 * elements, 4 * n * elements, "all_gather", call)

    def reduce_scatter(self, name: str, elements: int) -> None:
        """`elements` are one rank's part."""
        n = len(self.members[name])
        whole, part = torch.ones(n * elements), torch.empty(elements)

        def call() -> Any:
            return dist.reduce_scatter(part, list(whole.chunk(n)), group=self.groups[name], async_op=True)

        self.around(name, 4 * n * elements, 4 * elements, "reduce_scatter", call)

    def all_to_all(self, elements: int) -> None:
        """Over the row; with the skew most goes to the blamed rank."""
        team = self.members["row"]
        n = len(team)
        share = [elements // n] * n
        if self.kind == "SKEWED_ALL_TO_ALL" and self.blamed in team:
            share = [elements // 20] * n
            share[team.index(self.blamed)] = elements - (n - 1) * (elements // 20)
        into, out = share, [share[team.index(self.rank)]] * n
        sent, got = torch.ones(sum(into)), torch.empty(sum(out))

        def call() -> Any:
            return dist.all_to_all_single(got, sent, out, into, group=self.groups["row"], async_op=True)

        self.around("row", 4 * sum(into), 4 * sum(out), "all_to_all", call)

    def step(self, number: int) -> None:
        """The calls of one training step, with the fault."""
        if self.kind == "TINY_CALLS":
            self.compute(20)
            self.all_gather("row", 100_000)
            self.compute(20)
            for tensor in range(24):
                self.all_reduce("column", 16 * (tensor % 7 + 1))
        else:
            slower = 2.2 if self.kind == "STRAGGLER" and self.rank == self.blamed else 1.0
            self.forward(number, slower)
            self.backward(slower)
        self.all_reduce("world", 1)

    def forward(self, number: int, slower: float) -> None:
        """The parameters, or the tokens of a mixture of experts."""
        if self.kind == "SKEWED_ALL_TO_ALL":
            self.compute(20)
            self.all_to_all(300_000)
            self.compute(20 * (2.4 if self.rank == self.blamed else 1))
            self.all_to_all(300_000)
            return
        if not (self.kind == "DESYNC" and self.rank == self.blamed and number == 3):
            self.all_gather("row", 100_000)
        self.compute(20 * slower)
        (self.all_gather if self.kind == "WRONG_INTERFACE" else self.reduce_scatter)("row", 100_000)

    def backward(self, slower: float) -> None:
        """The gradients: reduced while the next ones are computed, or after all."""
        works = []
        overlapped = self.kind not in ("NO_OVERLAP", "WRONG_INTERFACE")
        for _ in range(3):
            self.compute((8 if self.kind == "NO_OVERLAP" else 25) * slower)
            if overlapped:
                works.append(self.all_reduce("column", 500_000, True))
        if not overlapped:
            for _ in range(3):
                self.all_reduce("column", 3_000_000 if self.kind == "NO_OVERLAP" else 500_000)
        self.compute(25 if overlapped else 5)
        for work in works:
            work.wait()


def _now_us() -> float:
    return time.perf_counter_ns() / 1e3


def on_rank(kind: str, folder: str, blamed: int, steps: int, warm_up: int, rows: tuple, columns: tuple) -> None:
    """The job on one rank."""
    job = JobRank(kind, folder, blamed, rows, columns)
    for _ in range(warm_up):
        job.all_reduce("world", 1)
    for number in range(steps):
        job.step(number)
    os.close(job.file)


def read_back(folder: Path, without: int | None) -> dict[str, Any]:
    """The job of the files that the ranks wrote: times from the first call on, in microseconds."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        rank = int(path.stem)
        if rank != without:
            found.append((rank, [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]))
    begin = min(entry["start"] for _, lines in found for entry in lines if "start" in entry)
    names = {("world", tuple(range(6))): "0"} | {
        (of, row): str(1 + i)
        for i, (of, row) in enumerate([("row", r) for r in ROWS] + [("column", c) for c in COLUMNS])
    }
    files = []
    for rank, lines in found:
        calls = {
            (e["of"], e["seq"]): {
                "op": e["op"],
                "group": names[e["of"], tuple(e["ranks"])],
                "ranks": e["ranks"],
                "seq": e["seq"],
                "start_us": round(e["start"] - begin, 1),
                "end_us": None,
                "in_bytes": e["into"],
                "out_bytes": e["out"],
            }
            for e in lines
            if "start" in e
        }
        for e in lines:
            if "end" in e:
                calls[e["of"], e["seq"]]["end_us"] = round(e["end"] - begin, 1)
        work = [[round(t - begin, 1) for t in e["compute"]] for e in lines if "compute" in e]
        files.append({"rank": rank, "host": f"node{rank // 3}", "calls": list(calls.values()), "compute": work})
    return {"world_size": 6, "files": files}


def record(world: World, kind: Kind) -> tuple[dict[str, Any], list[float]]:
    """One recording, and how much longer than wanted each compute took."""
    blamed = BLAMED.get(kind, -1)
    with tempfile.TemporaryDirectory() as folder:
        if kind is Kind.WRONG_INTERFACE:
            world.fault(blamed, "slow", delay_s=0.03)
        if kind is Kind.MISSING_RANK:
            world.fault(blamed, "kill", after_s=1.5)
        arguments = (kind.name, folder, blamed, STEPS if kind is not Kind.MISSING_RANK else 40, WARM_UP, ROWS, COLUMNS)
        try:
            with world.undisturbed():
                world.run(on_rank, *arguments, deadline=DEADLINE_S if kind is not Kind.DESYNC else 5.0)
        except (RanksError, WorldError) as error:
            if kind not in (Kind.DESYNC, Kind.MISSING_RANK):
                raise
            print(f"  as planned: {type(error).__name__}")
        job = read_back(Path(folder), blamed if kind is Kind.MISSING_RANK else None)
        if kind is Kind.MISSING_RANK:
            _last_steps(job)
        lines = [json.loads(line) for path in Path(folder).glob("*.jsonl") for line in path.read_text().splitlines()]
        took = [(e["compute"][1] - e["compute"][0]) / e["wanted"] for e in lines if "compute" in e]
    return job, took


def _last_steps(job: dict[str, Any]) -> None:
    """Keeps the last second: the kill comes at a time, not at a step."""
    from_us = max(call["start_us"] for file in job["files"] for call in file["calls"]) - 1e6
    for file in job["files"]:
        file["calls"] = [call for call in file["calls"] if call["start_us"] >= from_us]
        file["compute"] = [interval for interval in file["compute"] if interval[0] >= from_us]


def moving_noise(job: dict[str, Any]) -> list[float]:
    """How long each large call moved bytes, from its last rank's start to its end, over the median of its like."""
    calls: dict[tuple, list[dict]] = defaultdict(list)
    for file in job["files"]:
        for call in file["calls"]:
            calls[call["group"], call["seq"]].append(call)
    like: dict[tuple, list[float]] = defaultdict(list)
    for several in calls.values():
        us = max(c["end_us"] for c in several) - max(c["start_us"] for c in several)
        like[several[0]["op"], several[0]["in_bytes"]].append(us)
    return [us / statistics.median(some) for some in like.values() if len(some) > 8 for us in some]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=[kind.name.lower() for kind in Kind], help="record this kind only")
    parser.add_argument("--out", type=Path, default=RECORDINGS, help="the file to write")
    options = parser.parse_args()
    kinds = [kind for kind in Kind if options.only in (None, kind.name.lower())]
    jobs, tries, compute, moving = {}, {}, [], []
    with World(6, backend="gloo") as world:
        for kind in kinds:
            clear, attempts = False, 0
            while not clear:
                if attempts == TRIES:
                    print(f"{kind.name}: no clear recording in {TRIES} tries; is the machine busy?", file=sys.stderr)
                    return 1
                attempts += 1
                job, took = record(world, kind)
                measured = measure(job)
                told = decide(measured)
                clear = is_clear(measured, kind, RECORDED_LIMITS) and told.blamed == BLAMED.get(kind, -1)
                figures = {k.name: round(f.value, 3) for k, f in measured.figures.items()}
                print(
                    kind.name, "clear" if clear else "not clear", told, figures, round(measured.overlap, 2), flush=True
                )
            jobs[kind.name.lower()], tries[kind.name.lower()] = job, attempts
            if kind in (Kind.HEALTHY, Kind.STRAGGLER, Kind.NO_OVERLAP):
                compute += took
                moving += moving_noise(job)
    noise = {
        name: [round(min(max(x, WITHIN[0]), WITHIN[1]), 4) for x in values]
        for name, values in (("compute", compute), ("moving", moving))
    }
    made = {
        "command": "python tools/record_jobs.py",
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, gloo, 6 ranks on the CPU",
        "blamed": {kind.name.lower(): BLAMED.get(kind, -1) for kind in kinds},
        "recordings_until_clear": tries,
        "noise_cut_to": WITHIN,
        "noise_cut": {
            n: sum(not WITHIN[0] <= x <= WITHIN[1] for x in v) for n, v in (("compute", compute), ("moving", moving))
        },
        "shift_us": SHIFT_US,
    }
    options.out.parent.mkdir(exist_ok=True)
    text = json.dumps({"made": made, "jobs": jobs, "noise": noise}, separators=(",", ":")).encode()
    options.out.write_bytes(gzip.compress(text, mtime=0))
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
