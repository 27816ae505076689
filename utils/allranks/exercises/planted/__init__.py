"""Jobs with a fault planted in them: eight recorded on live ranks, and as many variants as there are seeds.

`tools/record_jobs.py` records the eight and measures their noise: how much the same compute, and the same call, vary from
step to step. A variant is a job of another layout, with other sizes, groups, clocks and another rank to blame; its noise is
drawn from that of the recordings. The answer to a variant follows from its seed, so nobody can know it before.

    job = variant(Kind.STRAGGLER, "some seed")
    job["files"][0]["calls"][0]["op"], job.answer
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from allranks.exercises.planted.job import PlantedJob
from allranks.exercises.planted.plans import Trap, plan_of
from allranks.exercises.planted.shape import SHAPES, shaped
from allranks.exercises.planted.steps import Draw, Plan, simulate
from allranks.jobs.job import ProfileError
from allranks.jobs.root_cause import NOBODY, Kind, decide, how_often_last, is_clear, measure

__all__ = ["RECORDED", "recorded"]

# The names of the jobs that `recorded` gives, one for each fault.
RECORDED = tuple(kind.name.lower() for kind in Kind)
RECORDINGS = Path(__file__).with_name("static") / "planted_jobs.json.gz"
NOISE_WITHIN = (0.9, 1.15)  # more than this is the recording machine's other work
TRIES = 200  # a variant that is too near a limit is drawn again


@cache
def recordings() -> dict[str, Any]:
    """All that `tools/record_jobs.py` wrote: `made` says how, `jobs` are the eight, `noise` what varies in them.

    >>> sorted(recordings())
    ['jobs', 'made', 'noise']
    """
    with gzip.open(RECORDINGS, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def recorded(name: str) -> PlantedJob:
    """The job with this fault that was recorded on live ranks: one of `RECORDED`, such as "straggler".

    Its clocks are shifted as if each half of the ranks were a host. `answer` is the diagnosis. Raises ProfileError.

    >>> planted.recorded("straggler").answer.blamed
    4
    """
    if name not in RECORDED:
        raise ProfileError(f"there is no recorded job {name!r}; it is one of {', '.join(RECORDED)}")
    true = deepcopy(recordings()["jobs"][name])
    shift = recordings()["made"]["shift_us"]
    return PlantedJob(_on_clocks(true, shift), decide(measure(true)), true)


@lru_cache(maxsize=128)  # a check of many answers draws the same jobs again and again
def variant(kind: Kind, seed: str, trap: Trap | None = None) -> PlantedJob:
    """A job with this fault, drawn from the seed: the same on every machine. It is far from every limit of the contract.
    Don't change it: the same object is given again. With a `trap` certain wrong readings fail, and it may be a tenth from a limit.

    >>> variant(Kind.STRAGGLER, "a") == variant(Kind.STRAGGLER, "a")
    True
    """
    shape = None if trap is None else SHAPES[trap]
    for attempt in range(TRIES):
        draw = Draw(random.Random(f"{seed} {kind.name} {attempt}"))
        plan = plan_of(kind, draw, trap)
        true = simulate(plan, draw, _noise())
        if shape is not None:
            shaped(true, shape, draw)
        measured = measure(true)
        answer = decide(measured)
        if answer.cause != kind or answer.blamed != (NOBODY if kind is Kind.HEALTHY else plan.blamed):
            continue
        if trap is Trap.OFTEN_LATE and not _others_lead(how_often_last(true), plan.blamed):
            continue
        if shape is None and not is_clear(measured, kind):
            continue
        job = PlantedJob(_on_clocks(true, _shifts(plan, draw)), answer, true)
        job.figures.append(measured)
        if shape is None or shape.holds(job, measured, kind):
            return job
    raise RuntimeError(f"No clear job of the kind {kind.name} in {TRIES} tries.")


def _others_lead(count: Counter[int], blamed: int) -> bool:
    """Whether another rank is the last in clearly more calls: clocks that are aligned are some microseconds off."""
    return max(n for rank, n in count.items() if rank != blamed) >= 1.25 * count[blamed]


@cache
def _noise() -> dict[str, list[float]]:
    """The recordings' noise, with what is out of the ordinary cut off."""
    low, high = NOISE_WITHIN
    return {name: [min(max(x, low), high) for x in values] for name, values in recordings()["noise"].items()}


def _shifts(plan: Plan, draw: Draw) -> dict[str, float]:
    """How far each host's clock is from the true one, in microseconds: milliseconds apart, as without a time server."""
    found: dict[str, float] = {}
    for place, host in enumerate(draw.shuffled(sorted(set(plan.hosts)))):
        found[host] = draw.between(2e6, 9e6) if not place else min(found.values()) - draw.between(20e3, 200e3)
    return found


def _on_clocks(true: dict[str, Any], shift_us: dict[str, float]) -> dict[str, Any]:
    """The job with the times that each host's own clock gives, to a tenth of a microsecond."""
    files = []
    for file in true["files"]:
        by = shift_us[file["host"]]
        calls = [
            {
                **call,
                "ranks": list(call["ranks"]),
                "start_us": round(call["start_us"] + by, 1),
                "end_us": None if call["end_us"] is None else round(call["end_us"] + by, 1),
            }
            for call in file["calls"]
        ]
        compute = [[round(start + by, 1), round(end + by, 1)] for start, end in file["compute"]]
        files.append({**file, "calls": calls, "compute": compute})
    return {**true, "files": files}
