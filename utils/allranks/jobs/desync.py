"""Who stopped a job: the ranks' recorded calls matched by group and number, and the first one where the ranks differ.

Calls are never matched by their place in a file: each rank counts the calls of each group, and the recorder keeps only the
last ones, so two files may begin at different calls.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from allranks.base.errors import capital, name_ranks
from allranks.jobs.job import Call, Cause, Job, RankRecord

RECORDERS = ("flight recorder",)
# collectives whose inputs (outputs) must have one size on all ranks
SAME_IN = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")
SAME_OUT = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
NO_FILE = "it was killed, or it was already in destroy_process_group, or its machine is gone"


@dataclass
class _Group:
    """One group: the collectives of each rank by number, and which ranks should make them."""

    name: str
    members: tuple[int, ...]
    calls: dict[int, dict[int, Call]] = field(default_factory=lambda: defaultdict(dict))

    def last(self, rank: int) -> int:
        return max(self.calls.get(rank, {0: None}))

    def words(self) -> str:
        """The group as a reader knows it."""
        number, _, described = self.name.partition(" ")
        if described == "default_pg":
            return "the group of all ranks"
        return f"group {described or number} of {name_ranks(self.members)}"


def desync(job: Job) -> tuple[Cause, ...]:
    """The causes that the recorders' files show, the root first: calls that differ, ranks that never came, missing files.

    >>> def dump(rank, *ops):
    ...     calls = (profiles.Call(rank, op, group="0 default_pg", seq=i, state="scheduled") for i, op in enumerate(ops, 1))
    ...     return profiles.RankRecord(rank, f"dump_{rank}", "flight recorder", world_size=3, calls=tuple(calls))
    >>> job = profiles.Job((dump(0, "barrier", "all_reduce"), dump(1, "barrier", "broadcast"), dump(2, "barrier", "all_reduce")))
    >>> desync(job)[0].cause
    'Rank 1 made another call than ranks 0 and 2: broadcast, where they made all_reduce.'
    """
    records = {r.rank: r for r in job.records if r.source in RECORDERS and r.rank_from != "unknown"}
    if not records:
        return _from_ras(job)
    stands = {r.rank: str(r.facts["stands"]) for r in job.records if r.facts.get("stands")}
    groups = _groups(job, records)
    found: list[tuple[int, Cause]] = []
    for group in groups.values():
        cause = _differs(group) or _absent(group, groups, records, stands) or _stuck(group, records)
        if cause:
            found.append(cause)
    found += _no_file(job, groups)
    return tuple(cause for _, cause in sorted(found, key=lambda item: item[0]))


def _groups(job: Job, records: dict[int, RankRecord]) -> dict[str, _Group]:
    known = {name: ranks for record in records.values() for name, ranks in record.groups.items()}
    groups: dict[str, _Group] = {}
    for rank, record in sorted(records.items()):
        for call in record.calls:
            if call.group is None or call.seq is None or call.op in ("send", "recv"):
                continue
            group = groups.setdefault(call.group, _Group(call.group, ()))
            group.calls[rank].setdefault(call.seq, call)
    for name, group in groups.items():
        everyone = range(job.world_size or 0) if name.endswith("default_pg") else ()
        group.members = tuple(sorted({*known.get(name, ()), *everyone, *group.calls}))
    return groups


def _shape(call: Call) -> tuple[object, ...]:
    """What all ranks of a call must have alike."""
    return (
        call.op,
        call.dtype if call.op not in ("gather", "scatter") else None,
        call.in_elements if call.op in SAME_IN else None,
        call.out_elements if call.op in SAME_OUT else None,
    )


def _said(call: Call) -> str:
    """A call in words: all_reduce of 8 float32."""
    if call.in_elements is None:
        return call.op
    return f"{call.op} of {call.in_elements:,} {call.dtype or 'elements'}"


def _at(call: Call) -> str:
    if call.where and (cell := re.search(r"/ipykernel_\d+/\d+\.py:(\d+)$", call.where)):
        return f" in line {cell[1]} of a notebook's cell"
    return f" at {call.where}" if call.where else ""


def _common(group: _Group) -> Iterable[int]:
    """The numbers of calls that more than one rank's file still has."""
    counted = Counter(seq for calls in group.calls.values() for seq in calls)
    return sorted(seq for seq, ranks in counted.items() if ranks > 1)


def _differs(group: _Group) -> tuple[int, Cause] | None:
    """The first call for which two ranks' files say different things."""
    for seq in _common(group):
        here = {rank: calls[seq] for rank, calls in group.calls.items() if seq in calls}
        kinds = Counter(_shape(call) for call in here.values())
        if len(kinds) == 1:
            continue
        usual = kinds.most_common(1)[0][0]
        odd = [rank for rank, call in here.items() if _shape(call) != usual]
        rest = [rank for rank in here if rank not in odd]
        return 0, _difference(group, seq, here, odd, rest)
    return None


def _difference(group: _Group, seq: int, here: dict[int, Call], odd: list[int], rest: list[int]) -> Cause:
    mine, theirs = here[odd[0]], here[rest[0]]
    a, b, what = mine.op, theirs.op, "another call"
    if mine.op == theirs.op:
        a, b, what = _said(mine), _said(theirs), "the call with another size"
        if mine.dtype != theirs.dtype:
            what = "the call with another type"
    alone = len(odd) == 1 and len(rest) > 1
    who = capital(name_ranks(odd))
    words = f"{who} made {what} than {name_ranks(rest)}: {a}, where {'they' if len(rest) > 1 else 'it'} made {b}."
    sides = "; ".join(f"rank {rank}: {_said(here[rank])}{_at(here[rank])}" for rank in (odd[0], rest[0]))
    evidence = f"call {seq} of {group.words()} is the first that differs: {sides}" + _shifted(
        group, seq, odd[0], rest[0]
    )
    later = [rank for rank in group.calls if rank not in here and group.last(rank) < seq]
    if later:
        evidence += f"; {name_ranks(later)} did not make it"
    return Cause(words, evidence, None, 0.95 if alone else 0.9, "desync", odd[0] if alone else None)


def _shifted(group: _Group, seq: int, odd: int, other: int) -> str:
    """Whether one rank made the others' calls in another order, or one call fewer or more."""
    mine, theirs = group.calls[odd], group.calls[other]
    mine_next, theirs_next = mine.get(seq + 1), theirs.get(seq + 1)
    ahead = theirs_next is not None and _shape(mine[seq]) == _shape(theirs_next)
    behind = mine_next is not None and _shape(mine_next) == _shape(theirs[seq])
    if ahead and behind:
        return f"; rank {odd} made the same two calls in the other order"
    if ahead:
        return f"; rank {odd}'s call {seq} is like the others' call {seq + 1}: it left out one call"
    return f"; rank {odd}'s call {seq + 1} is like the others' call {seq}: it made one call more" if behind else ""


def _absent(
    group: _Group, groups: dict[str, _Group], records: dict[int, RankRecord], stands: dict[int, str]
) -> tuple[int, Cause] | None:
    """The first call that some ranks made and others never did."""
    counts = {rank: group.last(rank) for rank in group.members if rank in records}
    if not counts or min(counts.values()) == max(counts.values()):
        return None
    least = min(counts.values())
    absent = [rank for rank, last in counts.items() if last == least]
    came = [rank for rank, last in counts.items() if last > least]
    call = next((group.calls[rank][least + 1] for rank in came if least + 1 in group.calls[rank]), None)
    if call is None:
        return None
    others = [_elsewhere(rank, group, groups, records) for rank in absent]
    did = "; ".join(_did(rank, group, least, stands) for rank in absent[:3])
    words = f"{capital(name_ranks(absent))} never made call {least + 1} of {group.words()}, {_said(call)}."
    waiting = f"{name_ranks(came)} made it{_at(call)}"
    if any(others):
        waiting += "; " + "; ".join(other for other in others if other)
    sure = 0.95 if any(records[rank].facts.get("timed_out") for rank in came) else 0.85
    if all(others):
        sure -= 0.3  # it waits for somebody itself: the cause is there
    cause = Cause(
        words, f"{waiting}; {did}", None, round(sure, 2), "missing_rank", absent[0] if len(absent) == 1 else None
    )
    return (5 if all(others) else 3 if any(others) else 2), cause


def _did(rank: int, group: _Group, last: int, stands: dict[int, str]) -> str:
    call = group.calls.get(rank, {}).get(last)
    said = f"rank {rank} made no call of this group" if call is None else f"rank {rank}'s last call there is {last}"
    if call is not None:
        said += f", {_said(call)}{_at(call)}"
    return said + (f"; it stands at {stands[rank]}" if rank in stands else "")


def _elsewhere(rank: int, group: _Group, groups: dict[str, _Group], records: dict[int, RankRecord]) -> str:
    """That a rank waits in a call of another group or in a send or receive, or nothing."""
    open_calls = [c for c in records[rank].calls if c.state != "completed" and c.group != group.name]
    if not open_calls:
        return ""
    call = open_calls[0]
    place = groups[call.group].words() if call.group in groups else "another group"
    if call.op in ("send", "recv"):
        return f"rank {rank} itself waits in {call.op} with rank {call.peer}{_at(call)}"
    return f"rank {rank} itself waits in call {call.seq} of {place}{_at(call)}"


def _stuck(group: _Group, records: dict[int, RankRecord]) -> tuple[int, Cause] | None:
    """All ranks are in the same call, which some never finished."""
    here = {rank: calls[max(calls)] for rank, calls in group.calls.items()}
    stuck = [rank for rank, call in here.items() if call.state != "completed"]
    if not stuck or len(here) < 2 or len(here) < len(group.members):
        return None
    call, timed_out = here[stuck[0]], any(records[rank].facts.get("timed_out") for rank in stuck)
    words = (
        f"Every rank made call {call.seq} of {group.words()}, {_said(call)}, and {name_ranks(stuck)} did not finish it."
    )
    evidence = f"operation, size and type are alike on all{_at(call)}: the program is right here; look at the links and machines"
    if not timed_out:
        evidence += ". If the files were written while the job ran well, this is only the call of that moment"
    return 4, Cause(words, evidence, None, 0.7 if timed_out else 0.4, "hang", None)


def _no_file(job: Job, groups: dict[str, _Group]) -> list[tuple[int, Cause]]:
    """Ranks of the world without a file: a clue, and the stronger one if all others wait for them."""
    if not job.missing:
        return []
    gone = list(job.missing)
    waits = [g for g in groups.values() if set(gone) & set(g.members) and _waiting(g)]
    # where all other members wait in one call, the member without a file is the one that did not come
    awaited = {r for g in waits for r in set(gone) & set(g.members) if _all_wait(g, gone)}
    words = f"There is no dump of {name_ranks(gone)}."
    if len(gone) > 1 and len(awaited) == 1:
        words = f"There is no dump of {name_ranks(gone)}, and the other ranks wait for rank {min(awaited)}."
        gone = sorted(awaited)
    tail = _waiting(waits[0]) if waits else "no other rank waits for it in a call of its files"
    evidence = f"{NO_FILE}: look how {'it' if len(gone) == 1 else 'they'} ended; {tail}"
    lone = gone[0] if len(gone) == 1 else None
    return [(1 if waits else 6, Cause(words, evidence, None, 0.85 if waits else 0.4, "missing_rank", lone))]


def _all_wait(group: _Group, gone: Sequence[int]) -> bool:
    """Whether only one member of the group has no file, and all others wait in the group's last call."""
    rest = [rank for rank in group.members if rank not in gone]
    last = {rank: max(group.calls[rank]) for rank in rest if group.calls.get(rank)}
    if len(rest) != len(group.members) - 1 or len(last) != len(rest) or len(set(last.values())) != 1:
        return False
    return all(group.calls[rank][seq].state != "completed" for rank, seq in last.items())


def _from_ras(job: Job) -> tuple[Cause, ...]:
    """Of RAS's counts of calls: who does not answer, and whose count is lower than the others'."""
    asked = [r for r in job.records if r.source == "ras"]
    causes = []
    for rank, why in sorted(asked[0].facts["absent"].items()) if asked else ():
        causes.append(Cause(f"Rank {rank} does not answer.", why, None, 0.9, "missing_rank", rank))
    for op in sorted({op for record in asked for op in record.facts["counts"]}):
        counts = {r.rank: r.facts["counts"].get(op, 0) for r in asked}
        most = max(counts.values())
        behind = [rank for rank, count in counts.items() if count < most]
        if behind:
            words = f"{capital(name_ranks(behind))} made fewer calls of {op} than the others."
            evidence = f"rank {behind[0]}: {counts[behind[0]]:,}, the others up to {most:,}, when RAS asked"
            lone = behind[0] if len(behind) == 1 else None
            causes.append(
                Cause(
                    words,
                    evidence + "; ask again: of a job that runs, counts differ for a moment",
                    None,
                    0.5,
                    "desync",
                    lone,
                )
            )
    return tuple(causes)


def _waiting(group: _Group) -> str:
    """Which ranks wait in the last call of a group."""
    last = {rank: calls[max(calls)] for rank, calls in group.calls.items()}
    stuck: Sequence[int] = [rank for rank, call in last.items() if call.state != "completed"]
    if not stuck:
        return ""
    call = last[stuck[0]]
    return f"{name_ranks(stuck)} wait{'s' if len(stuck) == 1 else ''} in call {call.seq} of {group.words()}, {_said(call)}{_at(call)}"
