"""What `allranks check` does, in the process of the command or in a fork of this user's warm server."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.base.errors import CourseError

if TYPE_CHECKING:
    from allranks.judge.source import Source
    from allranks.judge.verdict import Verdict

TARGET = f"{__name__}:in_fork"
# what the server imports before it forks
MODULES = (
    "numpy.random",
    "torch",
    "torch.distributed",
    "torch.nn",
    "cloudpickle",
    "allranks.ranks.wire.rank",
    "allranks.judge.judging",
    __name__,
)
# what it imports after the first verdict, which needs one exercise: the others, and what answers with an optimizer need
LATER = (f"{__package__}._exercises", "sympy", "torch._dynamo")
PASSED, FAILED, UNUSABLE = 0, 1, 2


@dataclass(frozen=True)
class Job:
    """One exercise in one file. `name` is the function's, if it is not the exercise's."""

    exercise: str
    file: str
    name: str | None = None
    rules: str | None = None
    points: float | None = None  # what it is worth
    topology: str | None = None  # the machine on which its time is told
    nbytes: int = 64 << 20
    student: str | None = None  # whose variant, where the course gives variants


def answer(jobs: list[Job], as_json: bool, many: bool) -> int:
    """Prints the verdicts; returns the exit code. `many`: as JSON, an object with a list of verdicts."""
    code, found = PASSED, []
    for number, job in enumerate(jobs):
        try:
            told, here = _judged(job)
        except CourseError as error:
            told, here = _refused(job, error), UNUSABLE
        code = max(code, here)
        found.append(told)
        if not as_json:
            print(
                *([""] if number else []), *told["text"], sep="\n", file=sys.stderr if here == UNUSABLE else sys.stdout
            )
    if as_json:
        verdicts = [{name: value for name, value in told.items() if name != "text"} for told in found]
        print(json.dumps({"passed": code == PASSED, "verdicts": verdicts} if many else verdicts[0]))
    return code


def _judged(job: Job) -> tuple[dict[str, Any], int]:
    from allranks.exercises import get, theirs
    from allranks.judge.judging import judge
    from allranks.judge.source import read_source

    source = read_source(job.file, job.name or job.exercise)
    exercise = theirs(get(job.exercise), Path(job.file).absolute().parent, job.student)
    verdict = judge(exercise, source, rules=job.rules, topology=job.topology, nbytes=job.nbytes)
    place = _place(job, verdict, source)
    said = [] if verdict.passed else [f"{place}: {_cause(verdict)}"]
    told = verdict.to_dict() | ({} if verdict.passed else {"where": place})
    told |= worth(verdict.score, verdict.passed, job.points)
    return {**told, "text": [*said, verdict.text()]}, PASSED if verdict.passed else FAILED


def _refused(job: Job, error: CourseError) -> dict[str, Any]:
    line = getattr(error, "line", None)
    place = f"{job.file}:{line}" if line and not job.file.endswith(".ipynb") else job.file
    told = {"exercise": job.exercise, "passed": False, "score": 0.0, "cases": [], "reason": str(error), "where": place}
    told |= worth(0.0, False, job.points)
    return {**told, "text": [f"{place}: {error}" if line else str(error)]}


def worth(score: float, passed: bool, points: float | None) -> dict[str, Any]:
    """What `--points` adds to the JSON."""
    if points is None:
        return {}
    from allranks.judge.verdict import points_of

    return {"points": points_of(score, passed, points), "max_points": points}


def _place(job: Job, verdict: Verdict, source: Source) -> str:
    """Where the cause is, as editors link it: "my_ring.py:8"; in a notebook "my_ring.ipynb: cell 5, line 3"."""
    code = (verdict.fault or {}).get("code")
    first = source.span[0]
    if source.cells:
        where = code["place"] if code else source.where(first)
        return f"{job.file}: {where}" if where else job.file
    line = code["marked"] if code else first
    return f"{job.file}:{line}" if line else job.file


def _cause(verdict: Verdict) -> str:
    """The verdict's cause in one line."""
    return " ".join((verdict.reason or verdict.seen).split())


def in_fork(args: dict[str, Any], fds: list[int]) -> int:
    """Answers in a fork of the server, as the command that asked would: same output, folder and search path."""
    for number, (fd, encoding) in enumerate(zip(fds, args["encodings"], strict=True), start=1):
        os.dup2(fd, number)
        os.close(fd)
        stream = io.TextIOWrapper(
            os.fdopen(number, "wb", closefd=False), encoding, "backslashreplace", write_through=True
        )
        setattr(sys, ("stdout", "stderr")[number - 1], stream)
    sys.path[:] = args["path"]
    return answer([Job(**job) for job in args["jobs"]], args["as_json"], args["many"])
