"""When each rank of a planned job makes its calls: the steps are played with noise that was measured on live ranks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any


class Draw:
    """Draws of one seed, made of `random()` only, so that they are the same with every version of Python.

    >>> Draw(random.Random("a")).whole(3, 3)
    3
    """

    def __init__(self, source: random.Random) -> None:
        self._random = source.random

    def between(self, low: float, high: float) -> float:
        """A number from low to high."""
        return low + (high - low) * self._random()

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        """True in this share of the draws."""
        return self._random() < share

    def one(self, items: Any) -> Any:
        """One of the items."""
        return items[int(self._random() * len(items))]

    def shuffled(self, items: list[Any]) -> list[Any]:
        """The items in another order."""
        return [items[i] for _, i in sorted((self._random(), i) for i in range(len(items)))]


@dataclass(frozen=True)
class Compute:
    """Work of a rank. `by_load`: on a rank with more tokens it takes longer."""

    us: float
    by_load: bool = False


@dataclass(frozen=True)
class Collective:
    """A call of every rank in its group `of` ("row", "column", "world", or "twin", a second group of a row's ranks).

    `waits`: the rank does nothing else meanwhile. `beside`: it need not wait for the rank's other calls. `out`: what a rank gets
    out, where that is not what its operation says.
    """

    of: str
    op: str
    nbytes: int
    waits: bool = True
    beside: bool = False
    out: int | None = None


@dataclass(frozen=True)
class Wait:
    """The rank waits for the calls that it has started."""


@dataclass(frozen=True)
class Break:
    """In this step, at this place of the program, the rank dies ("die"), or makes a call "skip", "swap" or "bytes" wrong.

    "op" is another operation with the same bytes; "out" and "into" differ only in what the rank gets out or puts in.
    """

    step: int
    place: int
    how: str


Op = Compute | Collective | Wait


@dataclass(frozen=True)
class Plan:
    """A job before it runs: a grid of ranks, the program of a step, and what is wrong. `blamed` is the rank to find, or -1."""

    grid: tuple[tuple[int, ...], ...]  # rows of ranks
    program: tuple[Op, ...]
    steps: int
    hosts: tuple[str, ...]  # of each rank
    alpha_us: float
    bytes_per_us: float
    blamed: int = -1
    slower: float = 1.0  # the blamed rank's compute, as a factor
    slow_every: int = 1  # ... in every so many steps
    slow_link: float = 1.0  # calls with the blamed rank take so many times longer
    load: tuple[float, ...] = ()  # what each rank gets in an all_to_all, as a factor
    broken: Break | None = None
    absent: tuple[int, ...] = ()  # ranks without a file
    warm_up: int = 0  # small calls before the first step
    late_once: tuple[int, float] = (0, 0.0)  # a rank, and how late it is once, in the first step
    bias: tuple[int, float] = (0, 1.0)  # a rank that is always a little slower, which costs next to nothing
    slow_host: float = 1.0  # the compute of the other ranks on the blamed rank's host, as a factor

    @property
    def ranks(self) -> int:
        return sum(len(row) for row in self.grid)

    def groups(self, of: str) -> list[tuple[int, ...]]:
        """The groups of this kind, each in order of its ranks."""
        if of == "world":
            return [tuple(range(self.ranks))]
        rows = self.grid if of in ("row", "twin") else tuple(zip(*self.grid, strict=True))
        return [tuple(sorted(row)) for row in rows]


@dataclass
class _Rank:
    """A rank while the job is played."""

    at: float = 0.0
    free: float = 0.0  # when its last call ends: calls of one rank are made one after the other
    stopped: bool = False  # it waits for ever, or is dead
    stuck: str | None = None  # a call that it started in a group of this kind never ends
    calls: list[dict[str, Any]] = field(default_factory=list)
    compute: list[list[float]] = field(default_factory=list)
    count: dict[str, int] = field(default_factory=dict)


class _Player:
    def __init__(self, plan: Plan, draw: Draw, noise: dict[str, list[float]]) -> None:
        self.plan, self.draw, self.noise = plan, draw, noise
        self.ranks = [_Rank(draw.between(0, 300)) for _ in range(plan.ranks)]
        kinds = [(of, members) for of in ("world", "row", "column") for members in plan.groups(of)]
        names = draw.shuffled([str(number) for number in range(1, len(kinds))])
        self.names = dict(zip(kinds, ["0", *names], strict=True))
        self.first = {name: draw.whole(3, 400) for name in self.names.values()}
        if any(isinstance(op, Collective) and op.of == "twin" for op in plan.program):
            for row in plan.groups("twin"):  # its numbers are in part those of the row's own group
                self.names["twin", row] = str(len(self.names))
                self.first[self.names["twin", row]] = self.first[self.names["row", row]] + draw.whole(1, 3)
        self.skipped: set[int] = set()

    def compute(self, op: Compute, step: int) -> None:
        for number, rank in enumerate(self.ranks):
            if rank.stopped:
                continue
            us = op.us * self.draw.one(self.noise["compute"])
            if number == self.plan.blamed and step % self.plan.slow_every == 0:
                us *= self.plan.slower
            elif self.plan.slow_host != 1.0 and self.plan.hosts[number] == self.plan.hosts[self.plan.blamed]:
                us *= self.plan.slow_host
            if op.by_load and self.plan.load:
                us *= self.plan.load[number]
            if number == self.plan.bias[0]:
                us *= self.plan.bias[1]
            rank.compute.append([rank.at, rank.at + us])
            rank.at += us

    def wait(self) -> None:
        for rank in self.ranks:
            rank.stopped = rank.stopped or rank.stuck is not None
            rank.at = max(rank.at, rank.free)

    def collective(self, op: Collective, odd: dict[int, Collective] | None = None) -> None:
        for members in self.plan.groups(op.of):
            # a rank with a call that never ends starts more of the same group's, which queue behind it
            here = [m for m in members if not self.ranks[m].stopped and self.ranks[m].stuck in (None, op.of)]
            if op.waits:
                here = [m for m in here if self.ranks[m].stuck is None]
            here = [m for m in here if m not in self.skipped or op.of != "row"]
            made = {m: self._begin(m, (odd or {}).get(m, op), members) for m in here}
            kinds = {(call["op"], call["in_bytes"], call["out_bytes"]) for call in made.values()}
            same = len(kinds) < 2 or op.op == "all_to_all"
            broken = any(self.ranks[m].stuck is not None for m in here)
            if len(here) == len(members) and same and not broken:
                self._end(op, members, made)
                continue
            for m in here:
                self.ranks[m].stuck = op.of
                self.ranks[m].stopped = op.waits

    def _begin(self, m: int, op: Collective, members: tuple[int, ...]) -> dict[str, Any]:
        rank, name = self.ranks[m], self.names[op.of, members]
        seq = rank.count.setdefault(name, self.first[name])
        rank.count[name] += 1
        into, out = _bytes(op, len(members))
        out = out if op.out is None else op.out
        if op.op == "all_to_all" and self.plan.load:
            out = int(out * self.plan.load[m])
        call = {
            "op": op.op,
            "group": name,
            "ranks": list(members),
            "seq": seq,
            "start_us": (rank.at if op.beside else max(rank.at, rank.free)) + self.draw.between(2, 12),
            "end_us": None,
            "in_bytes": into,
            "out_bytes": out,
        }
        rank.calls.append(call)
        return call

    def _end(self, op: Collective, members: tuple[int, ...], made: dict[int, dict[str, Any]]) -> None:
        most = max(max(call["in_bytes"], call["out_bytes"]) for call in made.values())
        us = (self.plan.alpha_us + most / self.plan.bytes_per_us) * self.draw.one(self.noise["moving"])
        us *= self.plan.slow_link if self.plan.blamed in members else 1.0
        end = max(call["start_us"] for call in made.values()) + us
        for m, call in made.items():
            call["end_us"] = end + self.draw.between(0, min(12.0, us / 4))
            self.ranks[m].free = max(self.ranks[m].free, call["end_us"])
            if op.waits:
                self.ranks[m].at = self.ranks[m].free


def _bytes(op: Collective, members: int) -> tuple[int, int]:
    """What a rank puts in and gets out."""
    part = op.nbytes // members
    return {"all_gather": (part, part * members), "reduce_scatter": (part * members, part)}.get(
        op.op, (op.nbytes, op.nbytes)
    )


def simulate(plan: Plan, draw: Draw, noise: dict[str, list[float]]) -> dict[str, Any]:
    """The job's files, all on one clock."""
    player = _Player(plan, draw, noise)
    for _ in range(plan.warm_up):
        player.collective(Collective("world", "all_reduce", draw.one((4, 8, 64, 1024, 4096))))
    begun = max(rank.at for rank in player.ranks)
    player.ranks[plan.late_once[0]].at += plan.late_once[1]
    for step in range(plan.steps):
        for place, op in enumerate(plan.program):
            _play(player, op, place, step)
    first_step = (max(rank.at for rank in player.ranks) - begun) / max(plan.steps, 1)
    files = []
    for number in draw.shuffled(list(range(plan.ranks))):
        from_us = begun + draw.between(-0.3, 0.5) * first_step if draw.chance(0.7) else 0.0
        rank = player.ranks[number]
        files.append(
            {
                "rank": number,
                "host": plan.hosts[number],
                "calls": [call for call in rank.calls if call["start_us"] >= from_us],
                "compute": [interval for interval in rank.compute if interval[0] >= from_us],
            }
        )
    return {"world_size": plan.ranks, "files": [file for file in files if file["rank"] not in plan.absent]}


def _play(player: _Player, op: Op, place: int, step: int) -> None:
    """One piece of the program on all ranks, broken where the plan says so."""
    broken, blamed = player.plan.broken, player.plan.blamed
    odd: dict[int, Collective] = {}
    if broken is not None and (broken.step, broken.place) == (step, place) and isinstance(op, Collective):
        match broken.how:
            case "die":
                player.ranks[blamed].stopped = True
            case "skip":
                player.skipped = {blamed}
            case "swap":
                other = "reduce_scatter" if op.op == "all_gather" else "all_gather"
                odd = {blamed: Collective(op.of, other, op.nbytes)}
            case "bytes":
                odd = {blamed: Collective(op.of, op.op, op.nbytes // 8 * 7)}
            case "op":
                odd = {blamed: Collective(op.of, "broadcast", op.nbytes)}
            case "out":
                out = _bytes(op, len(player.plan.grid[0]))[1]
                odd = {blamed: Collective(op.of, op.op, op.nbytes, out=out // 8 * 7)}
            case "into":
                less = op.nbytes // 9 * 8
                odd = {blamed: Collective(op.of, op.op, less, out=_bytes(op, len(player.plan.grid[0]))[1])}
    match op:
        case Compute():
            player.compute(op, step)
        case Wait():
            player.wait()
        case Collective():
            player.collective(op, odd)
            player.skipped = set()
