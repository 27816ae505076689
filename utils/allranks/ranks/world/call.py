"""One call on all ranks: sends it, waits for it, and explains why it does not return."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from allranks.base.errors import capital, name_ranks
from allranks.ranks.world import hang, panels
from allranks.ranks.world.cluster import Engines, WorldError
from allranks.ranks.world.failures import RankDied, RanksError, RanksStuck, describe
from allranks.ranks.world.faults import InjectedFault
from allranks.ranks.world.rank_status import (
    RankStatus,
    ask_ranks,
    dump_stacks,
    from_answer,
    from_stacks,
)
from allranks.ranks.world.screen import Screen

# how long the other ranks may go on after one has failed, before we check whether they wait for it
GRACE_S = 1.0
POLL_S = 0.02
REPORT_S = 2.0  # how long the ranks may take to answer for a report, which comes once; a picture comes again


class Call:
    """Calls `function(*args)` on every rank at once.

    `source` is the cell's text: the notebook can't read its lines elsewhere. With `undisturbed` nobody asks the ranks what they
    do while they run: that takes them some time.
    """

    def __init__(
        self,
        engines: Engines,
        function,
        args: tuple,
        deadline_s: float,
        source: str | None = None,
        fault: InjectedFault | None = None,
        undisturbed: bool = False,
    ) -> None:
        self.engines, self.function, self.args, self.deadline_s = engines, function, args, deadline_s
        self.source, self.fault = source, fault
        self.ranks, self.described = engines.placement.ranks, engines.described
        self.screen = Screen(self.ranks, None if undisturbed else self._picture)
        self.since: dict[int, tuple[object, float]] = {}  # what each rank was seen doing, and from when on
        self.outcomes: dict[int, tuple] = {}
        self.oom_kills = _oom_kills()
        self.began = time.monotonic()
        self.pending: list = []

    @property
    def errors(self) -> dict[int, dict]:
        """The errors that ranks have raised so far."""
        return {rank: error for rank, (kind, error) in self.outcomes.items() if kind == "error"}

    @property
    def gone(self) -> bool:
        """Whether the ranks of this call were stopped or replaced from outside the call."""
        return self.engines.described is not self.described

    def results(self) -> list:
        """What each rank returned.

        Raises RanksError, RanksStuck or RankDied; after the last two, the ranks must be replaced.
        """
        try:
            self.pending = self.engines.submit(self.function, [self.args] * self.ranks)
            self._wait()
        except KeyboardInterrupt:
            statuses = self._statuses()
            self.screen.finish(self.pending, {})
            lines = ["Stopped by you. Where each rank was:", *map(_indent, statuses), self.engines.afterwards]
            raise RanksStuck("\n".join(lines), statuses) from None
        failed = self.errors
        self.screen.finish(self.pending, failed)
        if failed:
            afterwards = [self.engines.afterwards] if breaks_group(failed) else []
            raise RanksError("\n".join([describe(failed, self.ranks, self.source), *afterwards]), failed)
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
            self._inject_fault(now - self.began)
            self.screen.update(self.pending, now - self.began, self.deadline_s)
            if now - self.began > self.deadline_s:
                self._give_up(f"Not every rank returned within {self.deadline_s:g} s. What each rank is doing:")
            if failed_at is not None and not dead and now - failed_at > GRACE_S:
                failed_at = now
                waiting = self._unfinished()
                if waiting and all(s.waits for s in waiting):
                    self._give_up("The other ranks wait for something that can't come any more:", waiting)
            first = next(reply for rank, reply in enumerate(self.pending) if rank not in self.outcomes)
            first.wait(POLL_S)

    def _inject_fault(self, elapsed_s: float) -> None:
        fault = self.fault
        if fault is not None and fault.is_signal and elapsed_s > fault.after_s:
            self.fault = None
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.engines.pids[fault.rank], signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)

    def _give_up(self, reason: str, statuses: list[RankStatus] | None = None) -> None:
        statuses = self._unfinished() if statuses is None else statuses
        lines = [describe(self.errors, self.ranks, self.source)] if self.errors else []
        said = self._describe_statuses(statuses)
        lines += [reason, *said]
        self.screen.finish(self.pending, self.errors, self._report(statuses, said[-1] if said else reason))
        raise RanksStuck("\n".join([*lines, self.engines.afterwards]), statuses, self.errors)

    def _died(self, dead: dict[int, str]) -> None:
        statuses = [s for s in self._unfinished() if s.rank not in dead]
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
        if statuses:
            lines += ["The others:", *self._describe_statuses(statuses, dead)]
        raise RankDied("\n".join([*lines, self.engines.afterwards]))

    def _picture(self, elapsed_s: float) -> str:
        """What each rank does at this moment, drawn."""
        answers = ask_ranks({rank: self.engines.watch(rank) for rank in range(self.ranks)})
        statuses = []
        for rank in range(self.ranks):
            if rank not in self.outcomes:
                known = rank in answers
                status = from_answer(rank, answers[rank], self.source) if known else RankStatus(rank, known=False)
                statuses.append(status)
        waited = hang.awaited(statuses)
        return panels.live(self._panels(statuses, elapsed_s), waited, elapsed_s, self.deadline_s)

    def _panels(self, statuses: list[RankStatus], elapsed_s: float) -> list[panels.Panel]:
        at = {status.rank: status for status in statuses}
        found = []
        for rank in range(self.ranks):
            status = at.get(rank)
            ended = "failed" if rank in self.errors else "done" if rank in self.outcomes else None
            doing = (ended, status and (status.op, status.line, status.seq))
            if self.since.get(rank, (None, 0.0))[0] != doing:
                self.since[rank] = (doing, elapsed_s if rank in self.since else 0.0)
            found.append(panels.Panel((rank,), status, ended, elapsed_s - self.since[rank][1]))
        return found

    def _report(self, statuses: list[RankStatus], said: str) -> str:
        """The report that takes the panels' place."""
        drawn = self._panels(statuses, time.monotonic() - self.began)
        inside = [s for s in statuses if s.collective is not None]
        absent = hang.awaited(statuses).get(inside[0].rank, ()) if inside else ()
        reached = next((s.line for s in (inside or statuses) if s.line and s.waits), None)
        if not absent:
            return panels.report(said, "", drawn, {}, self.source, None, reached)
        first = inside[0]
        together = [s.rank for s in inside if (s.op, s.collective) == (first.op, first.collective)]
        wait = "waits" if len(together) == 1 else "wait"
        headline = (
            f"{capital(name_ranks(absent))} never came to the {first.op or 'collective'} that "
            f"{name_ranks(together)} {wait} in."
        )
        other = next((s.op for s in inside if s.collective == first.collective and s.op != first.op), None)
        if other:  # nobody is late: they called different collectives
            there = [s.rank for s in inside if (s.op, s.collective) == (other, first.collective)]
            headline = (
                f"{capital(name_ranks(together))} {wait} in {first.op}, and {name_ranks(there)} in {other}: "
                "calls with one number that do not match."
            )
        blamed = self._blamed(absent, reached)
        # a rank may be in a call of another group: it counts that group's calls, and never came to this one
        counted = {s.rank: s.seq or 0 for s in inside if s.group == first.group}
        drawn = [panel for panel in drawn if panel.ranks[0] in (first.group or range(self.ranks))]
        detail = self._absence(absent, statuses, first.group)
        return panels.report(headline, detail, drawn, counted, self.source, blamed, reached)

    def _blamed(self, absent: tuple[int, ...], reached: int | None) -> int | None:
        """The line of the cell that keeps the absent ranks away: where one failed, else what lets them pass the call by."""
        for rank in sorted(set(absent) & set(self.errors)):
            frames = self.errors[rank]["frames"]
            return frames[-1][1] if frames else None
        return hang.keeps_away(self.source, reached) if self.source and reached else None

    def _absence(self, absent: tuple[int, ...], statuses: list[RankStatus], group: tuple[int, ...] | None) -> str:
        """What ranks do that are not where the others of the group wait."""
        if not set(absent) & set(self.errors) and set(absent) <= set(self.outcomes):
            done = "It is" if len(absent) == 1 else "They are"
            return f"{done} done with the cell. Look first at a rank that does not wait."
        for rank in sorted(set(absent) & set(self.errors)):
            error = self.errors[rank]
            at = f" in line {error['frames'][-1][1]}" if error["frames"] else ""
            return (
                f"{'It' if len(absent) == 1 else f'Rank {rank}'} raised {error['type']}{at}: {error['message'][:200]}"
            )
        alike: dict[str, list[int]] = {}  # of 512 ranks most do the same
        for s in statuses:
            if s.rank in absent:
                doing = str(s).partition(": ")[2]
                other = s.op and s.group and s.group != group
                alike.setdefault(f"{doing} (a call of {name_ranks(s.group)} only)" if other else doing, []).append(
                    s.rank
                )
        elsewhere = [f"{name_ranks(ranks)}: {doing}" for doing, ranks in alike.items()]
        return "; ".join(map(capital, elsewhere))

    def _describe_statuses(self, statuses: list[RankStatus], dead: dict[int, str] | None = None) -> list[str]:
        done = sorted(self.outcomes.keys() - self.errors.keys())
        lines = [_indent(s) for s in statuses]
        if done:
            lines.append(f"    {name_ranks(done, self.ranks)}: done")
        gone = {**dict.fromkeys(done, "is done"), **dict.fromkeys(self.errors, "failed"), **(dead or {})}
        return lines + hang.sentences(statuses, gone, self.ranks)

    def _unfinished(self) -> list[RankStatus]:
        return [s for s in self._statuses() if s.rank not in self.outcomes]

    def _statuses(self) -> list[RankStatus]:
        everyone = range(self.ranks)
        answers = ask_ranks({rank: self.engines.watch(rank) for rank in everyone}, REPORT_S)
        silent = [rank for rank in everyone if rank not in answers]
        pids = [d["pid"] for d in self.described]
        texts = dump_stacks({rank: pids[rank] for rank in silent}, {rank: self.engines.stacks(rank) for rank in silent})
        return [
            from_answer(rank, answers[rank], self.source)
            if rank in answers
            else from_stacks(rank, texts.get(rank), self.source)
            for rank in everyone
        ]


def breaks_group(errors: dict[int, dict]) -> bool:
    """Whether the ranks that raised these errors can't go on in the same group."""
    return any(error.get("breaks_group") for error in errors.values())


def _open(reply, loads) -> tuple:
    """The outcome of one rank: ("value", result) or ("error", details)."""
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


def _indent(status: RankStatus) -> str:
    return f"    {status}"


def _oom_kills() -> int:
    """How many processes of our control group the kernel has killed because memory ran out."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        for line in Path("/sys/fs/cgroup/memory.events").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
