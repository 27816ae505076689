"""pipeline_order(rank, stages, micro_batches) -> list of str: what one rank of a 1F1B pipeline does, such as ["F0", "B0"].

Many orders are right. The lists of all ranks are put together and run in virtual time, so a deadlock, idle time and kept
activations are seen. The ranks send no messages.
"""

from __future__ import annotations

from allranks.exercises.families import orders
from allranks.judge.cases import Setup
from allranks.judge.common import many_ranks
from allranks.judge.exercise import Exercise, Group, Rule, Run
from allranks.theory import pipelines


def _longer(run: Run, line: pipelines.Timeline) -> str | None:
    best = 3 * (run.setup.size + run.ranks - 1)
    if line.makespan <= best:
        return None
    why = orders.too_few_ahead(line) or orders.late_start(line) or orders.longest_wait(line)
    return f"the pipeline takes {line.makespan:g} (forward 1, backward 2), but 1F1B takes 3(m+p-1) = {best}: {why}"


def _keeps_more(run: Run, line: pipelines.Timeline) -> str | None:
    return orders.keeps_more(line, lambda rank: min(run.ranks - rank, run.setup.size), "min(p-rank, m)", "B")


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
    inputs=orders.inputs,
    oracle=orders.oracle("FB"),
    allow=frozenset(),
    rules=(
        Rule("no deadlock", 1, orders.deadlock, essential=True),
        Rule("no longer than 1F1B", 4, orders.in_time(_longer)),
        Rule("at most min(p-rank, m) activations kept", 4, orders.in_time(_keeps_more)),
    ),
    unit="micro-batch",
    chunking="none",
    demo_setup=Setup(4, 8),
    forbidden_advice="An order needs no messages.",
)
