"""pipeline_order(rank, stages, micro_batches) -> list of str: what one rank of a 1F1B pipeline does, such as ["F0", "B0"].

Many orders are right. The lists of all ranks are put together and run in virtual time, so a deadlock, idle time and kept
activations are seen. The ranks send no messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from allranks import pipelines
from allranks.checking.cases import Args, Expected, Setup, Texts
from allranks.checking.common import many_ranks
from allranks.checking.drawing import Draws
from allranks.checking.exercise import Exercise, Group, Rule, Run

_ACTION = re.compile(r"([FB])(\d{1,6})")


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    return [(rank, setup.ranks, setup.size) for rank in range(setup.ranks)]


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    wanted = Texts('a list of actions, such as ["F0", "B0"]', lambda texts: _fault(texts, setup.size))
    return [Expected(wanted) for _ in args]


def _fault(texts: Sequence[str], micro_batches: int) -> str | None:
    """What is wrong with one rank's list, whatever the others do."""
    seen: set[str] = set()
    for text in texts:
        found = _ACTION.fullmatch(text)
        if found is None:
            return "has an item that is no action: write F or B and the number of a micro-batch, as in F0"
        kind, number = found[1], int(found[2])
        action = f"{kind}{number}"
        if number >= micro_batches:
            return f"has {action}, but {micro_batches} micro-batches are numbered from 0 to {micro_batches - 1}"
        if action in seen:
            return f"has {action} twice"
        if kind == "B" and f"F{number}" not in seen:
            return f"has {action} before F{number}: backward needs what forward kept"
        seen.add(action)
    missing = [f"{kind}{i}" for kind in "FB" for i in range(micro_batches) if f"{kind}{i}" not in seen]
    if missing:
        return f"lacks {missing[0]}" + (f", the first of {len(missing)}" if len(missing) > 1 else "")
    return None


def _orders(run: Run) -> pipelines.Orders:
    """The lists of all ranks, each of which is right by itself."""
    lists = [result.returned if result is not None else [] for result in run.results[0]]
    return pipelines.read(lists, run.setup.size)


def _deadlock(run: Run) -> str | None:
    wrong = pipelines.check(_orders(run))
    return wrong.rstrip(".") if wrong else None


def _in_time(judge: Callable[[Run, pipelines.Timeline], str | None]) -> Callable[[Run], str | None]:
    """A rule on the run in virtual time, where there is one."""

    def breach(run: Run) -> str | None:
        return _deadlock(run) or judge(run, pipelines.timeline(_orders(run)))

    return breach


def _longer(run: Run, line: pipelines.Timeline) -> str | None:
    best = 3 * (run.setup.size + run.ranks - 1)
    if line.makespan <= best:
        return None
    words = f"the pipeline takes {line.makespan:g} (forward 1, backward 2), but 1F1B takes 3(m+p-1) = {best}"
    for rank, mine in enumerate(line.orders.actions):
        ahead = next(i for i, action in enumerate(mine) if action.kind == "B")
        enough = min(run.ranks - rank, run.setup.size)
        if ahead < enough:
            return (
                f"{words}: rank {rank} runs {mine[ahead].short} after only {ahead} forward, and waits for it; "
                f"the stages behind it have work if it first runs {enough} forward"
            )
    late = next((rank for rank, spans in enumerate(line.spans) if spans[0].start > rank), None)
    if late is not None:
        first = line.spans[late][0].action.short
        return f"{words}: rank {late} begins with {first}, which rank {late - 1} does not run first"
    return f"{words}: {_longest_wait(line)}"


def _longest_wait(line: pipelines.Timeline) -> str:
    """Who waits longest between two actions, and for what."""
    gaps = [
        (after.start - before.end, -rank, before.end, after)
        for rank, spans in enumerate(line.spans)
        for before, after in pairwise(spans)
    ]
    _, minus, since, after = max(gaps, key=lambda gap: gap[:2])
    idle = f"rank {-minus} is idle from {float(since):g} to {float(after.start):g}, before {after.action.short}"
    other = -minus + (-1 if after.action.kind == "F" else 1)
    before, late = next((a, b) for a, b in pairwise(line.spans[other]) if b.end == after.start)
    return f"{idle}, because rank {other} runs {late.action.short} only after {before.action.short}"


def _keeps_more(run: Run, line: pipelines.Timeline) -> str | None:
    for rank, mine in enumerate(line.orders.actions):
        limit, kept = min(run.ranks - rank, run.setup.size), 0
        for action in mine:
            kept += 1 if action.kind == "F" else -1
            if kept > limit:
                return (
                    f"rank {rank} keeps {line.kept(rank):g} activations, but min(p-rank, m) = {limit} are enough: "
                    f"before {action.short} it must run a backward, which gives one back"
                )
    return None


EXERCISE = Exercise(
    name="pipeline_order",
    promise="returns the actions of each rank of a pipeline, so that it is as short as 1F1B and keeps as little",
    groups=(
        Group("every action once", 1, (Setup(2, 4), Setup(3, 5), Setup(4, 8))),
        Group("any rank count", 0.5, (Setup(1, 3), Setup(5, 7), Setup(8, 12))),
        Group("as many micro-batches as stages", 0.5, (Setup(3, 3), Setup(4, 4))),
        many_ranks(0.5),
        Group("twice in a row", 0.5, (Setup(3, 4, times=2),)),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=frozenset(),
    rules=(
        Rule("no deadlock", 1, _deadlock, essential=True),
        Rule("no longer than 1F1B", 4, _in_time(_longer)),
        Rule("at most min(p-rank, m) activations kept", 4, _in_time(_keeps_more)),
    ),
    unit="micro-batch",
    chunking="none",
    demo_setup=Setup(4, 8),
    forbidden_advice="An order needs no messages.",
)
