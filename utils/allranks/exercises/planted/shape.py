"""What a trap asks of a job: its figures just beyond or just short of a limit, and the wrong readings that must fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allranks.exercises.planted.job import PlantedJob
from allranks.exercises.planted.plans import Trap
from allranks.exercises.planted.readings import READINGS
from allranks.exercises.planted.steps import Draw
from allranks.jobs.root_cause import (
    LIMITS,
    NEAR_OVERLAP,
    Kind,
    Limit,
    Measured,
    accepts,
    is_clear,
    measure,
    union,
)

# no figure is nearer to its limit: what the lab's text promises
NEAR = {kind: Limit(0.9 * limit.at, limit.at, 1.1 * limit.at) for kind, limit in LIMITS.items()}
SHARES = (Kind.STRAGGLER, Kind.TINY_CALLS, Kind.NO_OVERLAP)  # of the total time: more compute makes them smaller

Band = tuple[float, float]


@dataclass(frozen=True)
class Shape:
    """`figure` and `overlap` must end in their bands; shares `at_most` are made so small. Each reading that `fails` gives a wrong answer."""

    fails: tuple[str, ...] = ()
    figure: tuple[Kind, Band] | None = None
    overlap: Band | None = None
    at_most: tuple[tuple[Kind, float], ...] = ()

    def holds(self, job: PlantedJob, measured: Measured, kind: Kind) -> bool:
        """Whether the job shows what it must show."""
        if not is_clear(measured, kind, NEAR, NEAR_OVERLAP):
            return False
        if self.figure is not None:
            which, (low, high) = self.figure
            if not low <= measured.figures[which].value <= high:
                return False
        if self.overlap is not None and not self.overlap[0] <= measured.overlap <= self.overlap[1]:
            return False
        return all(not accepts(READINGS[name][1](job) or job.answer, job.answer) for name in self.fails)


_CLOCKS = ("own clocks",)
SHAPES = {
    Trap.OFTEN_LATE: Shape(_CLOCKS),
    Trap.LATE_IN_WORLD: Shape((*_CLOCKS, "starts of files", "starts of hosts", "starts of first ranks")),
    Trap.WAITS_BEYOND: Shape(_CLOCKS, (Kind.STRAGGLER, (0.167, 0.185))),
    Trap.OTHER_OPERATION: Shape(("bytes alone", "unlike the lowest")),
    Trap.OTHER_OUT: Shape(("operation alone", "in bytes of calls")),
    Trap.OTHER_IN: Shape(("operation alone", "out bytes of calls")),
    Trap.TWO_DIFFER: Shape(("last that differs",)),
    Trap.LOWER_LOST: Shape(_CLOCKS),
    Trap.HIGHER_LOST: Shape((*_CLOCKS, "began last")),
    Trap.UNEVEN: Shape(("bytes of all_to_all", "lowest number", "any member")),
    Trap.TWINS: Shape(("members", "small or equal")),
    Trap.SMALL_BEYOND: Shape((), (Kind.TINY_CALLS, (0.222, 0.25))),
    Trap.LITTLE_OVERLAP: Shape(("with what is hidden",), None, (0.08, 0.09)),
    Trap.NESTED: Shape(("overlapping calls twice",)),
    Trap.REST_BEYOND: Shape((), (Kind.NO_OVERLAP, (0.222, 0.245))),
    Trap.SMALL_SHORT: Shape(("time in calls",), (Kind.TINY_CALLS, (0.16, 0.178))),
    Trap.SIZES: Shape(("all sizes", "mean of speeds", "first slow")),
    Trap.LINK_BEYOND: Shape(("first start", "speed without"), (Kind.WRONG_INTERFACE, (2.2, 2.6))),
    Trap.ONE_SIDE: Shape(("in bytes", "out bytes")),
    Trap.LOAD_BEYOND: Shape((), (Kind.SKEWED_ALL_TO_ALL, (2.2, 2.5))),
    Trap.LOAD_LOST: Shape(("mean of the world", "mean of others")),
    Trap.WAITS_SHORT: Shape(
        (
            "own clocks",
            "low straggler limit",
            "one file's total",
            "waits of one file's total",
            "time in calls",
            "span of calls",
        ),
        (Kind.STRAGGLER, (0.12, 0.134)),
        (0.15, 0.5),
    ),
    Trap.LINK_SHORT: Shape(
        (), (Kind.WRONG_INTERFACE, (1.55, 1.8)), None, ((Kind.STRAGGLER, 0.11), (Kind.NO_OVERLAP, 0.15))
    ),
    Trap.LOAD_SHORT: Shape(
        (), (Kind.SKEWED_ALL_TO_ALL, (1.55, 1.8)), None, ((Kind.STRAGGLER, 0.11), (Kind.NO_OVERLAP, 0.15))
    ),
    Trap.REST_SHORT: Shape(("overlap alone",), (Kind.NO_OVERLAP, (0.16, 0.178))),
    Trap.SOME_OVERLAP: Shape(("rest alone",), None, (0.11, 0.12)),
    # both causes hold: the later one's figure is beyond its limit too
    Trap.SMALL_AND_WAITS: Shape(("small calls before stragglers",), (Kind.TINY_CALLS, (0.222, 9.0))),
    Trap.SMALL_AND_LINK: Shape(("small calls before interfaces",), (Kind.TINY_CALLS, (0.222, 9.0))),
    Trap.SMALL_AND_LOAD: Shape(("small calls before loads",), (Kind.TINY_CALLS, (0.222, 9.0))),
    Trap.LINK_AND_LOAD: Shape(("interfaces before loads",), (Kind.WRONG_INTERFACE, (2.2, 99.0))),
}


def shaped(true: dict[str, Any], shape: Shape, draw: Draw) -> None:
    """Adds compute to the job's files, beside calls or outside of them, until its figures are in their bands."""
    if shape.overlap is not None:
        _hide(true, draw.between(*shape.overlap))
    wanted = [(kind, share) for kind, share in shape.at_most]
    if shape.figure is not None and shape.figure[0] in SHARES:
        kind, (low, high) = shape.figure
        wanted.append((kind, draw.between(0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high)))
    if not wanted:
        return
    figures = measure(true).figures
    more = max(figures[kind].value / share for kind, share in wanted) - 1 if figures else 0.0
    if more > 0:
        _compute_outside(true, more, draw)


def _hide(true: dict[str, Any], share: float) -> None:
    """Compute on a second stream in the first part of each call, until this share of the time in calls lies inside of compute."""
    for file in true["files"]:
        talk = union((c["start_us"], c["end_us"]) for c in file["calls"])
        work = union((start, end) for start, end in file["compute"])
        alone = _without(talk, work)
        exposed = sum(end - start for start, end in alone)
        took = sum(end - start for start, end in talk)
        part = (share * took - (took - exposed)) / exposed if exposed else 0.0
        if part > 0:
            file["compute"] = sorted(
                [*file["compute"], *([start, start + part * (end - start)] for start, end in alone)]
            )


def _without(talk: list[tuple[float, float]], work: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The parts of the one that are outside of the other."""
    found = []
    for start, end in talk:
        for begun, ended in work:
            if ended <= start or begun >= end:
                continue
            if begun > start:
                found.append((start, begun))
            start = max(start, ended)
        if start < end:
            found.append((start, end))
    return found


def _compute_outside(true: dict[str, Any], more: float, draw: Draw) -> None:
    """Each rank reads its data before its first call and tests its model after the last one: so many times its time in all."""
    for file in true["files"]:
        times = [t for call in file["calls"] for t in (call["start_us"], call["end_us"])]
        times += [t for interval in file["compute"] for t in interval]
        first, last = min(times), max(times)
        before = draw.between(0.3, 0.7) * more * (last - first)
        after = more * (last - first) - before
        file["compute"] = [[first - before - 20.0, first - 20.0], *file["compute"], [last + 20.0, last + 20.0 + after]]
