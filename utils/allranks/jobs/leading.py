"""Which cause comes first: a fault brings the signs of others with it, and only some of them are the root.

A rank that gets too many tokens is late too; a slow interface leaves more communication exposed. Where the files of all
ranks of many collectives are here, the causes are asked in the order in which one brings about the next: skewed
all-to-all, slow interface, straggler, small calls, no overlap. `root_cause` has the figures and the limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allranks.jobs.job import Call, Cause, Job, RankRecord
from allranks.jobs.matching import Clock, Matching
from allranks.jobs.phrases import percent
from allranks.jobs.root_cause import LIMITS, NOBODY, Kind, Measured, decide, measure, pairs

__all__ = ["leading"]

_ORDER = [kind.name.lower() for kind in LIMITS]
LEAST_WHOLE = 8  # of collectives with the files of all ranks: fewer don't show a pattern
DTYPE_NBYTES = 4


def leading(job: Job, matching: Matching, found: Sequence[Cause]) -> list[Cause]:
    """The causes with the root in front; as they were if too few collectives have the files of all their ranks.

    >>> leading(profiles.Job(()), Matching((), {}), [])
    []
    """
    plain = _plain(job, matching)
    if plain is None:
        return list(found)
    measured = measure(plain)
    told = decide(measured)
    span_us = sum(_span(r) for r in job.records) / len(job.records)
    kind = Kind(told.cause)
    if kind is Kind.HEALTHY and measured.figures[Kind.NO_OVERLAP].value >= LIMITS[Kind.NO_OVERLAP].at:
        return list(found)  # much is exposed, and no figure says why
    if kind is Kind.HEALTHY:
        # ranks that wait for each other a little each add up; they count by the time that they really wait
        most = max((c.saves_s or 0.0 for c in found if c.kind != "imbalance"), default=0.0)
        most = max(most, _waiting_us(plain) / len(job.records) / 1e6)
        if any(c.kind == "healthy" for c in found) or most * 1e6 > LIMITS[Kind.NO_OVERLAP].at * span_us:
            return list(found)
        return [_healthy(measured, most, span_us), *found]
    rank = None if told.blamed == NOBODY else told.blamed
    if found and found[0].kind in _ORDER[: _ORDER.index(kind.name.lower())]:
        return list(found)  # what leads already is nearer to the root
    same = [c for c in found if c.kind == kind.name.lower() and c.rank == rank]
    return [*same[:1], *(c for c in found if c not in same[:1])]


def _waiting_us(plain: dict[str, Any]) -> float:
    """How long all ranks together wait in their calls for the last one to come."""
    whole = [calls for calls in pairs(plain).values() if len(calls) == len(next(iter(calls.values()))["ranks"])]
    starts = [[call["start_us"] for call in calls.values()] for calls in whole]
    return float(sum(max(several) - at for several in starts for at in several))


def _span(record: RankRecord) -> float:
    return record.span[1] - record.span[0] if record.span is not None else 0.0


def _plain(job: Job, matching: Matching) -> dict[str, Any] | None:
    """The job as `root_cause` has it, on one clock; None if a file does not say enough for that."""
    # a profile has no numbers of calls: those of the matching count
    numbers = {id(call): one.seq for one in matching.matches for call in one.calls.values()}
    files = []
    for record in job.records:
        clock = matching.clocks.get(record.rank, Clock())
        if not clock.known or record.rank_from == "unknown":
            return None
        told = [c for c in record.calls if c.op not in ("send", "recv")]
        calls = [_call(c, clock, numbers.get(id(c), -1 - place)) for place, c in enumerate(told)]
        if any(call is None for call in calls):
            return None
        work = [[clock.at(start), clock.at(end)] for start, end in record.compute]
        files.append({"rank": record.rank, "host": "", "calls": calls, "compute": work})
    if len(files) < 2:
        return None
    plain = {"world_size": job.world_size, "files": files}
    whole = sum(len(calls) == len(next(iter(calls.values()))["ranks"]) for calls in pairs(plain).values())
    return plain if whole >= LEAST_WHOLE else None


def _call(call: Call, clock: Clock, number: int) -> dict[str, Any] | None:
    if call.start_us is None or call.end_us is None or call.group is None or not call.group_ranks:
        return None
    into, out = _nbytes(call, call.in_elements), _nbytes(call, call.out_elements)
    if into is None or out is None:
        return None
    return {
        "op": call.op,
        "group": call.group,
        "ranks": call.group_ranks,
        "seq": number,
        "start_us": clock.at(call.start_us),
        "end_us": clock.at(call.end_us),
        "in_bytes": into,
        "out_bytes": out,
    }


def _nbytes(call: Call, elements: int | None) -> int | None:
    """Bytes of so many elements, by the call's own bytes and elements; a barrier has none."""
    if elements is None:
        return 0 if call.op == "barrier" else None
    largest = max(call.in_elements or 0, call.out_elements or 0)
    if not largest or call.nbytes is None:
        return elements * DTYPE_NBYTES
    of = call.out_elements if call.op == "all_gather" else call.in_elements
    return round(elements * call.nbytes / of) if of else elements * DTYPE_NBYTES


def _healthy(measured: Measured, most_s: float, span_us: float) -> Cause:
    late, exposed = measured.figures[Kind.STRAGGLER], measured.figures[Kind.NO_OVERLAP]
    said = (
        f"no rank keeps the others waiting for more than {percent(late.value)} of the time, {percent(exposed.value)} "
        f"of it is "
        f"communication that nothing hides, and the largest gain would be {percent(most_s * 1e6 / span_us)}"
    )
    return Cause("Nothing stands out: this job is healthy.", said, None, 0.8, "healthy", None)
