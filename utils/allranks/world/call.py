"""One call on all ranks: sent, waited for, and explained where it does not come back."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from allranks.world.cluster import Engines, WorldError
from allranks.world.failures import RankDied, RanksError, RanksStuck, describe, name_ranks
from allranks.world.faults import Fault
from allranks.world.rank_status import Standing, ask, dump, from_answer, missing, read
from allranks.world.screen import Screen

# after a rank failed, how long the others may go on before they are looked at
GRACE_S = 1.0
POLL_S = 0.02


class Call:
    """`function(*args)` on every rank at once. `source` is the cell it runs, for the text of lines only ranks know."""

    def __init__(
        self,
        engines: Engines,
        function,
        args: tuple,
        deadline_s: float,
        source: str | None = None,
        fault: Fault | None = None,
    ) -> None:
        self.engines, self.function, self.args, self.deadline_s = engines, function, args, deadline_s
        self.source, self.fault = source, fault
        self.ranks, self.described = engines.placement.ranks, engines.described
        self.screen = Screen(self.ranks)
        self.outcomes: dict[int, tuple] = {}
        self.oom_kills = _oom_kills()
        self.began = time.monotonic()
        self.pending: list = []

    @property
    def errors(self) -> dict[int, dict]:
        """What ranks raised so far."""
        return {rank: error for rank, (kind, error) in self.outcomes.items() if kind == "error"}

    @property
    def gone(self) -> bool:
        """Whether the ranks that it was sent to were stopped or replaced by somebody else."""
        return self.engines.described is not self.described

    def results(self) -> list:
        """What each rank returned. Raises RanksError; or RanksStuck or RankDied, after which the ranks are of no use."""
        try:
            self.pending = self.engines.submit(self.function, [self.args] * self.ranks)
            self._wait()
        except KeyboardInterrupt:
            standings = self._standings()
            self.screen.finish(self.pending, {})
            lines = ["Stopped by you. Where each rank was:", *map(_indent, standings), self.engines.afterwards]
            raise RanksStuck("\n".join(lines), standings) from None
        failed = self.errors
        self.screen.finish(self.pending, failed)
        if failed:
            raise RanksError(describe(failed, self.ranks, self.source), failed)
        return [self.outcomes[rank][1] for rank in range(self.ranks)]

    def _wait(self) -> None:
        import cloudpickle

        failed_at = died_at = None
        while True:
            now = time.monotonic()
            for rank, reply in enumerate(self.pending):
                if rank not in self.outcomes and reply.ready():
                    self.outcomes[rank] = _open(reply, cloudpickle.loads)
                    if self.outcomes[rank][0] == "error" and failed_at is None:
                        failed_at = now
            if len(self.outcomes) == self.ranks:
                return
            if self.gone:
                raise WorldError("The world was stopped or reset while this call ran.")
            dead = self.engines.dead()
            if dead:
                died_at = died_at or now
                if now - died_at > GRACE_S or len(self.outcomes.keys() | dead.keys()) == self.ranks:
                    self._died(dead)
            how = self.engines.controller_died()
            if how is not None and not dead:
                self.screen.finish(self.pending, self.errors)
                raise RankDied(
                    f"The world's controller {how}; nothing can reach the ranks any more.\n{self.engines.afterwards}"
                )
            self._do_harm(now - self.began)
            self.screen.update(self.pending, now - self.began, self.deadline_s)
            if now - self.began > self.deadline_s:
                self._give_up(f"Not every rank was back after {self.deadline_s:g} s. Where each rank stands:")
            if failed_at is not None and not dead and now - failed_at > GRACE_S:
                failed_at = now
                waiting = self._waiting()
                if waiting and all(s.waits for s in waiting):
                    self._give_up("The others wait for what can't come any more:", waiting)
            first = next(reply for rank, reply in enumerate(self.pending) if rank not in self.outcomes)
            first.wait(POLL_S)

    def _do_harm(self, elapsed_s: float) -> None:
        fault = self.fault
        if fault is not None and fault.sent_by_us and elapsed_s > fault.after_s:
            self.fault = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.engines.pids[fault.rank], signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)

    def _give_up(self, reason: str, standings: list[Standing] | None = None) -> None:
        standings = self._waiting() if standings is None else standings
        lines = [describe(self.errors, self.ranks, self.source)] if self.errors else []
        lines += [reason, *self._say_standings(standings)]
        self.screen.finish(self.pending, self.errors)
        raise RanksStuck("\n".join([*lines, self.engines.afterwards]), standings, self.errors)

    def _died(self, dead: dict[int, str]) -> None:
        standings = [s for s in self._waiting() if s.rank not in dead]
        self.screen.finish(self.pending, {**self.errors, **{rank: {} for rank in dead}})
        lines = []
        for rank, how in dead.items():
            last = self.screen.grid.ranks[rank].text.splitlines()[-1:]
            said = f" Its last output: {last[0][:200]}" if last else ""
            lines.append(f"Rank {rank} {how}, so the group is broken.{said}")
        if _oom_kills() > self.oom_kills:
            lines.append("The system killed it because memory ran out: use smaller tensors or fewer ranks.")
        if self.errors:
            lines.append(describe(self.errors, self.ranks, self.source))
        if standings:
            lines += ["The others:", *self._say_standings(standings, dead)]
        raise RankDied("\n".join([*lines, self.engines.afterwards]))

    def _say_standings(self, standings: list[Standing], dead: dict[int, str] | None = None) -> list[str]:
        done = sorted(self.outcomes.keys() - self.errors.keys())
        lines = [_indent(s) for s in standings]
        if done:
            lines.append(f"    {name_ranks(done, self.ranks)}: done")
        gone = {**dict.fromkeys(done, "is done"), **dict.fromkeys(self.errors, "failed"), **(dead or {})}
        return lines + missing(standings, gone)

    def _waiting(self) -> list[Standing]:
        return [s for s in self._standings() if s.rank not in self.outcomes]

    def _standings(self) -> list[Standing]:
        everyone = range(self.ranks)
        answers = ask({rank: self.engines.watch(rank) for rank in everyone})
        silent = [rank for rank in everyone if rank not in answers]
        pids = [d["pid"] for d in self.described]
        texts = dump({rank: pids[rank] for rank in silent}, {rank: self.engines.stacks(rank) for rank in silent})
        return [
            from_answer(rank, answers[rank], self.source)
            if rank in answers
            else read(rank, texts.get(rank), self.source)
            for rank in everyone
        ]


def _open(reply, loads) -> tuple:
    """The outcome that a rank sent: ("value", result) or ("error", details)."""
    try:
        packed = reply.get(0)
    except Exception as error:  # the engine itself could not call our function
        kind = getattr(error, "ename", type(error).__name__)
        return "error", {"type": kind, "message": getattr(error, "evalue", str(error)), "hint": None, "frames": []}
    try:
        return loads(packed)
    except Exception as error:
        hint = "while the result was unpacked in the notebook"
        return "error", {"type": type(error).__name__, "message": str(error), "hint": hint, "frames": []}


def _indent(standing: Standing) -> str:
    return f"    {standing}"


def _oom_kills() -> int:
    """How many processes of our control group the kernel has killed for want of memory."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        for line in Path("/sys/fs/cgroup/memory.events").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
