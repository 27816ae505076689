"""zero_bubble_order(rank, stages, micro_batches) -> list of str: an order with backward in two parts, "I" and "W".

Many orders are right. The lists of all ranks are put together and run in virtual time, with 1 for each of F, I and W, so a deadlock,
idle time and kept activations are seen. The ranks send no messages. ZB-H1
(arXiv:2401.10241) is one right answer of many.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from allranks.exercises.families import orders
from allranks.judge.cases import Setup
from allranks.judge.common import many_ranks
from allranks.judge.exercise import Exercise, Group, Rule, Run
from allranks.theory import pipelines


def _longer(run: Run, line: pipelines.Timeline) -> str | None:
    best = 3 * run.setup.size + run.ranks - 1
    if line.makespan <= best:
        return None
    words = f"the pipeline takes {line.makespan:g} (F, I and W 1 each), but ZB-H1 takes 3m+p-1 = {best}"
    why = orders.too_few_ahead(line) or orders.late_start(line) or _hurried(line) or orders.longest_wait(line)
    return f"{words}: {why}"


def _hurried(line: pipelines.Timeline) -> str | None:
    """A W that a rank runs before an I for which the rank before waits, if the pipeline is shorter where it comes later."""
    for rank in range(1, line.orders.ranks):
        mine = line.spans[rank]
        for idle, late in pairwise(line.spans[rank - 1]):
            here = next(
                (
                    k
                    for k, span in enumerate(mine)
                    if span.action.micro_batch == late.action.micro_batch and span.action.kind == "I"
                )
            )
            if late.action.kind != "I" or idle.end == late.start or mine[here].end != late.start:
                continue
            wanted = here
            while here and mine[here - 1].end == mine[here].start:
                here -= 1
                if mine[here].action.kind == "W" and _shorter(line, rank, here, wanted):
                    return (
                        f"rank {rank} runs {mine[here].action.short} before {late.action.short}, for which rank {rank - 1} waits: "
                        f"with {mine[here].action.short} after {late.action.short} the pipeline is shorter"
                    )
    return None


def _shorter(line: pipelines.Timeline, rank: int, here: int, behind: int) -> bool:
    """Whether the pipeline is shorter, and the rank keeps no more than it may, if what is at `here` comes behind `behind`."""
    rows = list(line.orders.actions)
    mine = rows[rank]
    rows[rank] = (*mine[:here], *mine[here + 1 : behind + 1], mine[here], *mine[behind + 1 :])
    tried = pipelines.timeline(replace(line.orders, actions=tuple(rows)))
    return tried.makespan < line.makespan and tried.kept(rank) <= min(line.orders.ranks, line.orders.micro_batches)


def _keeps_more(run: Run, line: pipelines.Timeline) -> str | None:
    return orders.keeps_more(line, lambda rank: min(run.ranks, run.setup.size), "min(p, m)", "W")


EXERCISE = Exercise(
    name="zero_bubble_order",
    promise="returns the actions of each rank of a pipeline with backward in two parts, as short as ZB-H1 and keeping as little",
    groups=(
        Group("every action once", 1, (Setup(2, 4), Setup(3, 6), Setup(4, 8))),
        Group("any rank count", 0.5, (Setup(1, 3), Setup(5, 10), Setup(8, 16))),
        Group("few micro-batches", 0.5, (Setup(3, 3), Setup(4, 5))),
        many_ranks(0.5),
        Group("twice in a row", 0.5, (Setup(3, 6, times=2),)),
    ),
    inputs=orders.inputs,
    oracle=orders.oracle("FIW"),
    allow=frozenset(),
    rules=(
        Rule("no deadlock", 1, orders.deadlock, essential=True),
        Rule("at most min(p, m) activations kept", 4, orders.in_time(_keeps_more)),
        Rule("no longer than ZB-H1", 5, orders.in_time(_longer)),
    ),
    unit="micro-batch",
    demo_setup=Setup(4, 8),
    forbidden_advice="An order needs no messages.",
)
