"""The score of a schedule: proved right, timed message by message, and compared with the bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allranks.theory.race.tasks import RaceError, Task
from allranks.theory.schedules import Schedule, ScheduleError
from allranks.theory.schedules.proof import fault_of, runs
from allranks.theory.simulator.scale import price_at_scale
from allranks.theory.topology import TopologyError
from allranks.theory.topology.fabrics import link_in_words

MAX_MESSAGES = 200_000
MAX_CHUNKS = 1 << 20
MAX_RUNS = 1_000_000
# how much the proof and the clock may do for one schedule; what is far above what good ones need
MAX_PIECES = 10_000_000
MAX_LOOKS = 10_000_000
_PARTED = ("all_gather", "reduce_scatter", "scatter", "gather")


@dataclass(frozen=True)
class Result:
    """What an entry reached. `score` has six digits, rounded down: the bound over the time.

    `busiest` is the link that was held for the largest share of the time, in words, and that share.

    >>> result = race.judge(schedules.hierarchical_all_reduce(16, ranks_per_node=8), race.task("two-nodes"))
    >>> result.score, result.messages
    ('0.606252', 256)
    """

    task: str
    picoseconds: int
    bound_ps: int
    why: str
    messages: int
    steps: int
    busiest: str

    @property
    def score(self) -> str:
        """The score as text, so that nothing rounds it again."""
        return score_of(self.bound_ps, self.picoseconds)

    def text(self) -> str:
        """The result for a terminal."""
        return "\n".join(
            (
                f"{self.task}: score {self.score}",
                f"  time         {in_us(self.picoseconds)}",
                f"  lower bound  {in_us(self.bound_ps)}: {self.why}",
                f"  messages     {self.messages} in {self.steps} steps",
                f"  busiest      {self.busiest}",
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        return {
            "task": self.task,
            "score": self.score,
            "picoseconds": self.picoseconds,
            "bound_picoseconds": self.bound_ps,
            "why": self.why,
            "messages": self.messages,
            "steps": self.steps,
            "busiest": self.busiest,
        }


def score_of(bound_ps: int, picoseconds: int) -> str:
    """The bound over the time with six digits, rounded down; in whole numbers, so that it is the same everywhere.

    >>> from allranks.theory.race.scoring import score_of
    >>> score_of(2, 3)
    '0.666666'
    """
    whole, rest = divmod(bound_ps * 10**6 // max(picoseconds, 1), 10**6)
    return f"{whole}.{rest:06d}"


def in_us(picoseconds: int) -> str:
    """The time in microseconds, with every digit.

    >>> from allranks.theory.race.scoring import in_us
    >>> in_us(1234567)
    '1.234567 µs'
    """
    return f"{picoseconds // 10**6}.{picoseconds % 10**6:06d} µs"


def judge(schedule: Schedule, task: Task) -> Result:
    """Proves the schedule and times it on the task's machine. Raises RaceError, which says in one sentence what is wrong.

    >>> race.judge(schedules.ring_all_reduce(16), race.task("two-nodes")).score
    '0.117216'
    """
    _check_fits(schedule, task)
    try:
        if fault := fault_of(schedule, MAX_PIECES):
            raise RaceError(fault)
        priced = price_at_scale(schedule, task.nbytes, task.fabric, MAX_LOOKS)
    except (ScheduleError, TopologyError) as error:
        raise RaceError(str(error)) from None
    busiest = "no link"
    if priced.busiest is not None:
        link, held = priced.busiest
        share = 1000 * held // max(priced.picoseconds, 1)
        busiest = f"{link_in_words(link)}: {share // 10}.{share % 10} % of the time"
    steps = len({move.step for move in schedule.moves})
    bound = task.bound
    return Result(task.name, priced.picoseconds, bound.picoseconds, bound.why, len(schedule.moves), steps, busiest)


def _check_fits(schedule: Schedule, task: Task) -> None:
    """Raises RaceError if the schedule is for something else than the task, or too large."""
    if schedule.collective != task.collective:
        raise RaceError(f"{task.name} is {task.collective}, and the schedule is for {schedule.collective!r}")
    if schedule.ranks != task.ranks:
        raise RaceError(f"{task.name} has {task.ranks} ranks, and the schedule has {schedule.ranks}")
    if task.root is not None and schedule.root != task.root:
        raise RaceError(f"the root of {task.name} is rank {task.root}, and that of the schedule is {schedule.root}")
    if type(schedule.chunks) is not int or not 1 <= schedule.chunks <= MAX_CHUNKS:
        raise RaceError(f"the schedule has {schedule.chunks!r} chunks; it must have 1 to {MAX_CHUNKS}")
    if task.collective in _PARTED and schedule.chunks % task.ranks:
        raise RaceError(
            f"the schedule has {schedule.chunks} chunks; {task.collective} needs a multiple of the {task.ranks} ranks"
        )
    if (
        task.collective in _PARTED and task.nbytes % schedule.chunks
    ):  # else some ranks' parts would be larger than others'
        raise RaceError(
            f"the schedule has {schedule.chunks} chunks; they must divide the {task.nbytes} bytes, so that all parts are alike"
        )
    if task.collective == "all_to_all" and schedule.chunks != task.ranks**2:
        raise RaceError(
            f"the schedule has {schedule.chunks} chunks; all_to_all needs {task.ranks**2}, one for each two ranks"
        )
    if len(schedule.moves) > MAX_MESSAGES:
        raise RaceError(f"the schedule has {len(schedule.moves)} messages; the race takes at most {MAX_MESSAGES}")
    total = 0
    for move in schedule.moves:
        total += 1 if isinstance(move.chunks, range) and move.chunks.step == 1 else len(runs(move.chunks))
        if total > MAX_RUNS:
            raise RaceError(
                f"its messages have more than {MAX_RUNS} runs of neighbouring chunks; send neighbouring chunks together"
            )
