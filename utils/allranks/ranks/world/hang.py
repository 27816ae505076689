"""Why ranks don't return: who waits for whom, and one sentence about it, from what each rank is doing."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from allranks.base.errors import capital, name_ranks
from allranks.ranks.world.rank_status import RankStatus

_CONTROL = (ast.If, ast.For, ast.While)


def awaited(statuses: Sequence[RankStatus]) -> dict[int, tuple[int, ...]]:
    """The ranks that each rank waits for, as far as its call tells: its peer, or those that are not in its collective."""
    entered: dict[tuple, set[int]] = {}
    for status in statuses:
        if status.collective is not None:
            entered.setdefault((status.op, status.collective), set()).add(status.rank)
    found: dict[int, tuple[int, ...]] = {}
    for status in statuses:
        if status.peer is not None:
            found[status.rank] = (status.peer,)
        elif status.collective is not None:
            there = entered[status.op, status.collective]
            found[status.rank] = tuple(r for r in status.group or () if r not in there)
    return {rank: others for rank, others in found.items() if others}


def sentences(statuses: Sequence[RankStatus], gone: Mapping[int, str], ranks: int) -> list[str]:
    """What the statuses say together: a line for each collective that lacks ranks, else one on what else holds up the ranks.

    `gone` says of ranks that have returned or ended what became of them: {1: "is done"}.
    """
    said = missing_ranks(statuses, gone)
    if said or not statuses:
        return said
    edges = awaited(statuses)
    at = {s.rank: s for s in statuses}
    cycle = _cycle(edges)
    if cycle:
        return [f"{capital(name_ranks(cycle, ranks))} wait for each other in a circle: {_chain(cycle, at)}."]
    for rank, (other, *_) in sorted(edges.items()):
        if other in gone:
            return [f"{capital(_call(at[rank]))}; rank {other} {gone[other]}."]
    if silent := [s.rank for s in statuses if not s.known]:
        verb = "do" if len(silent) > 1 else "does"
        return [
            f"{capital(name_ranks(silent, ranks))} {verb} not answer: stopped, or for long in code that is not Python."
        ]
    if not any(s.waits for s in statuses):
        who = name_ranks([s.rank for s in statuses], ranks)
        return [
            f"Nothing is waited for: {who} need{'s' if len(statuses) == 1 else ''} more time, or never end{'s' if len(statuses) == 1 else ''}."
        ]
    waiting = [s.rank for s in statuses if s.waits]
    who = capital(name_ranks(waiting, ranks))
    verb = "waits" if len(waiting) == 1 else "wait"
    others = [f"rank {rank} {how}" for rank, how in sorted(gone.items())]
    others += [str(at[rank]).replace(": ", " is ", 1) for rank in sorted(set(at) - set(waiting))]
    return [
        f"{who} {verb} for an operation that others have not begun" + (f"; {', '.join(others)}." if others else ".")
    ]


def missing_ranks(statuses: Sequence[RankStatus], gone: Mapping[int, str]) -> list[str]:
    """One line for each collective that some ranks are in and others of its group are not; `gone`: {1: "is done"}."""
    entered: dict[tuple, list[RankStatus]] = {}
    for status in statuses:
        if status.collective is not None:
            entered.setdefault((status.op, status.collective), []).append(status)
    lines = []
    at = {s.rank: s for s in statuses}
    named: set[int] = set()
    for (op, (group, number)), inside in sorted(entered.items(), key=lambda entry: -len(entry[1])):
        ranks = [s.rank for s in inside]
        absent = {rank: _doing(at.get(rank), gone.get(rank)) for rank in group or () if rank not in ranks}
        if not absent or named >= set(ranks):  # a line about the same ranks is there already
            continue
        named |= absent.keys()
        who = f"{name_ranks(ranks)} wait{'s' if len(ranks) == 1 else ''}"
        others = ", ".join(f"rank {rank} {where}" for rank, where in absent.items())
        queued = f"for the {inside[0].waits_for} (collectives begun: {number})"
        place = f"in {op} (collective {number})" if op else queued
        lines.append(f"{who} {place}; {others}.")
    return lines


def _doing(status: RankStatus | None, gone: str | None) -> str:
    if status is None:
        return gone or "is not there"
    if not status.known:
        return "does not answer"
    if status.waits_for is not None:
        return f"waits for its {status.waits_for}" + (f": dist.{status.op}" if status.op else "")
    return f"is in dist.{status.op}" if status.op else "is computing" if status.line else "is not there"


def keeps_away(source: str, line: int) -> int | None:
    """The line of the innermost `if`, `for` or `while` around this line of a program, which lets some ranks pass it by.

    None if there is none, or if the program can't be read.

    >>> keeps_away("if rank != 0:\\n    dist.all_reduce(x)", 2)
    1
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    around = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, _CONTROL) and node.lineno < line <= (node.end_lineno or 0)
    ]
    return max(around, default=None)


def _cycle(edges: Mapping[int, tuple[int, ...]]) -> list[int]:
    """Ranks of which each waits for the next, and the last for the first; none if there are no such."""
    for first in sorted(edges):
        path, rank = [first], edges[first][0]
        while rank in edges and rank not in path:
            path.append(rank)
            rank = edges[rank][0]
        if rank in path:
            return path[path.index(rank) :]
    return []


def _chain(cycle: list[int], at: Mapping[int, RankStatus]) -> str:
    """The calls of the ranks in a circle; of a long one the first three."""
    shown = [_call(at[rank]) for rank in cycle[:3]]
    return ", ".join(shown) + (", and so on" if len(cycle) > 3 else "")


def _call(status: RankStatus) -> str:
    way = "to" if status.op and "send" in status.op else "from"
    return f"rank {status.rank} is in {status.op} {way} rank {status.peer}"
