"""What exercises that ask for the order of a pipeline share: the lists of all ranks, put together and run in virtual time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

from allranks.judge.cases import Args, Expected, Setup, Texts, oracle_maker
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Run
from allranks.theory import pipelines
from allranks.theory.pipelines.clock import Span

Judge = Callable[[Run, pipelines.Timeline], str | None]


def inputs(setup: Setup, rng: Draws) -> list[Args]:
    """Each rank's (rank, stages, micro_batches)."""
    return [(rank, setup.ranks, setup.size) for rank in range(setup.ranks)]


@oracle_maker
def oracle(setup: Setup, args: Sequence[Args], kinds: str) -> list[Expected]:
    """Wants a list of actions of these kinds from every rank, each once and after what it needs of its own rank."""
    example = ", ".join(f'"{kind}0"' for kind in kinds)
    texts = Texts(f"a list of actions, such as [{example}]", lambda found: fault(found, kinds, setup.size))
    return [Expected(texts) for _ in args]


def fault(texts: Sequence[str], kinds: str, micro_batches: int) -> str | None:
    """What is wrong with one rank's list, whatever the others do. Without a full stop.

    >>> fault(["B0", "F0"], "FB", 1)
    'has B0 before F0: backward needs what forward kept'
    >>> fault(["B0"], "FB", 1)
    'lacks F0'
    """
    seen: set[str] = set()
    late: str | None = None
    letters = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    needed = {"B": "F", "I": "F", "W": "I"}
    why = {
        "B": "backward needs what forward kept",
        "I": "backward needs what forward kept",
        "W": "a weight's gradient needs the gradient that came for I",
    }
    for text in texts:
        found = re.fullmatch(rf"([{kinds}])(\d{{1,6}})", text)
        if found is None:
            return f"has an item that is no action: write {letters} and the number of a micro-batch, as in F0"
        kind, number = found[1], int(found[2])
        action = f"{kind}{number}"
        if number >= micro_batches:
            return f"has {action}, but {micro_batches} micro-batches are numbered from 0 to {micro_batches - 1}"
        if action in seen:
            return f"has {action} twice"
        if kind in needed and f"{needed[kind]}{number}" not in seen:
            late = late or f"has {action} before {needed[kind]}{number}: {why[kind]}"
        seen.add(action)
    missing = [f"{kind}{i}" for kind in kinds for i in range(micro_batches) if f"{kind}{i}" not in seen]
    if missing:
        return f"lacks {missing[0]}" + (f", the first of {len(missing)}" if len(missing) > 1 else "")
    return late


def orders(run: Run) -> pipelines.Orders:
    """The lists of all ranks, each of which is right by itself."""
    lists = [result.returned if result is not None else [] for result in run.results[0]]
    return pipelines.read(lists, run.setup.size)


def deadlock(run: Run) -> str | None:
    """Whether the lists together wait in a circle."""
    wrong = pipelines.check(orders(run))
    return wrong.rstrip(".") if wrong else None


def in_time(judge: Judge) -> Callable[[Run], str | None]:
    """A rule on the run in virtual time, where there is one."""

    def breach(run: Run) -> str | None:
        return deadlock(run) or judge(run, pipelines.timeline(orders(run)))

    return breach


def too_few_ahead(line: pipelines.Timeline) -> str | None:
    """The first rank that turns to backward before the stages behind it have work."""
    for rank, mine in enumerate(line.orders.actions):
        ahead = next(i for i, action in enumerate(mine) if action.kind in "BI")
        enough = min(line.orders.ranks - rank, line.orders.micro_batches)
        if ahead < enough:
            return (
                f"rank {rank} runs {mine[ahead].short} after only {ahead} forward, and waits for it; "
                f"the stages behind it have work if it first runs {enough} forward"
            )
    return None


def late_start(line: pipelines.Timeline) -> str | None:
    """The first rank that could have begun earlier."""
    late = next((rank for rank, spans in enumerate(line.spans) if spans[0].start > rank), None)
    if late is None:
        return None
    return f"rank {late} begins with {line.spans[late][0].action.short}, which rank {late - 1} does not run first"


def _earliest(line: pipelines.Timeline) -> Callable[[int, Span], Fraction]:
    """When an action of a rank could begin in a pipeline with nothing else to do than what it needs."""
    took = {span.action.kind: span.end - span.start for row in line.spans for span in row}
    forward, back, ranks = took["F"], took.get("B", took.get("I", Fraction())), line.orders.ranks

    def begins(rank: int, span: Span) -> Fraction:
        before = forward * span.action.micro_batch  # the first stage runs the forward passes one after the other
        if span.action.kind == "F":
            return before + forward * rank
        return before + forward * ranks + back * (ranks - 1 - rank + (span.action.kind == "W"))

    return begins


def longest_wait(line: pipelines.Timeline) -> str:
    """Who waits longest between two actions, and for what. Waiting until an action can begin at the earliest is nobody's mistake."""
    earliest = _earliest(line)
    gaps = [
        (after.start - max(before.end, earliest(rank, after)), -rank, before.end, after)
        for rank, spans in enumerate(line.spans)
        for before, after in pairwise(spans)
    ]
    _, minus, since, after = max(gaps, key=lambda gap: gap[:2])
    idle = f"rank {-minus} is idle from {float(since):g} to {float(after.start):g}, before {after.action.short}"
    other = -minus + (-1 if after.action.kind == "F" else 1)
    before, late = next((a, b) for a, b in pairwise(line.spans[other]) if b.end == after.start)
    mine = line.spans[-minus]
    done = {one.action.micro_batch for one in mine if one.action.kind == "I" and one.end <= since}
    waiting = next(
        (o.action for o in mine if o.action.kind == "W" and o.start >= after.start and o.action.micro_batch in done),
        None,
    )
    if waiting is not None:
        return f"{idle}: {waiting.short} could run in that time"
    return f"{idle}, because rank {other} runs {late.action.short} only after {before.action.short}"


def keeps_more(line: pipelines.Timeline, limit_of: Callable[[int], int], words: str, freed: str) -> str | None:
    """The first action at which a rank keeps more activations than `limit_of` it, which is `words`; `freed` gives one back."""
    for rank, mine in enumerate(line.orders.actions):
        limit, kept = limit_of(rank), 0
        for action in mine:
            kept += (action.kind == "F") - (action.kind == freed)
            if kept > limit:
                one = "a backward" if freed == "B" else f"a {freed}"
                return (
                    f"rank {rank} keeps {line.kept(rank):g} activations, but {words} = {limit} are enough: "
                    f"before {action.short} it must run {one}, which gives one back"
                )
    return None
