"""A planted job, and the same in the model that all readers of files share, so that `explain` can be asked about it."""

from __future__ import annotations

from typing import Any

from allranks.jobs.job import Call, Job, RankRecord, merged
from allranks.jobs.root_cause import Diagnosis, Measured, accepts


class PlantedJob(dict[str, Any]):
    """A job as lab 11 gives it, and what only the marking knows: the `answer`, and the job with one `true` clock.

    >>> PlantedJob({"files": []}, Diagnosis(8, -1, 0.0), {}).answer.blamed
    -1
    """

    def __init__(self, job: dict[str, Any], answer: Diagnosis, true: dict[str, Any]) -> None:
        super().__init__(job)
        self.answer, self.true = answer, true
        self.figures: list[Measured] = []  # of the true job, once they are measured
        self.told: dict[Any, Diagnosis | None] = {}  # what each mistake would tell, once it is known

    def accepts(self, cause: int, blamed: int, evidence: float) -> bool:
        """Whether a diagnosis is right: the cause, the rank, and the evidence within what lab 11's contract allows.

        >>> PlantedJob({"files": []}, Diagnosis(8, -1, 0.0), {}).accepts(8, -1, 0)
        True
        """
        return accepts(Diagnosis(cause, blamed, evidence), self.answer)


def as_job(job: dict[str, Any]) -> Job:
    """The job as files of its ranks would give it. A call that never ended is "started", as in a flight recorder's dump.

    >>> as_job({"world_size": 2, "files": [{"rank": 1, "host": "a", "calls": [], "compute": [[0, 5]]}]}).missing
    (0,)
    """
    hung = any(call["end_us"] is None for file in job["files"] for call in file["calls"])
    source = "flight recorder" if hung else "trace"  # both have the numbers that the program gave its calls
    return Job(
        tuple(_record(file, job["world_size"], source) for file in sorted(job["files"], key=lambda f: f["rank"]))
    )


def _record(file: dict[str, Any], world_size: int, source: str) -> RankRecord:
    calls = tuple(_call(file["rank"], call) for call in file["calls"])
    compute = merged((start, end) for start, end in file["compute"])
    talk = merged((c.start_us, c.end_us) for c in calls if c.start_us is not None and c.end_us is not None)
    times = [t for interval in (*compute, *talk) for t in interval] + [c.start_us or 0.0 for c in calls]
    return RankRecord(
        file["rank"],
        f"rank{file['rank']}.json",
        source,
        world_size,
        calls,
        compute=compute,
        communication=talk,
        span=(min(times), max(times)) if times else None,
        groups={call["group"]: tuple(call["ranks"]) for call in file["calls"]},
        facts={"host": file["host"], "backend": "nccl"},
    )


def _call(rank: int, call: dict[str, Any]) -> Call:
    into, out = call["in_bytes"], call["out_bytes"]
    return Call(
        rank,
        call["op"],
        call["group"],
        tuple(call["ranks"]),
        len(call["ranks"]),
        call["seq"],
        call["start_us"],
        call["end_us"],
        into // 4,
        out // 4,
        out if call["op"] == "all_gather" else into,
        "float32",
        "started" if call["end_us"] is None else "completed",
    )
