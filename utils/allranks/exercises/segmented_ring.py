"""segmented_ring(tensor, add): in place, the sum, on a ring whose ranks add one segment while the next one travels.

`add(into, part)` is the judge's: it takes virtual time for every element, as long as a link needs to carry it.
"""

from __future__ import annotations

from dataclasses import replace

from allranks import topology
from allranks.checking import provenance, rules, speed
from allranks.checking.cases import Add, Args, Setup, vectors
from allranks.checking.common import explain_sum, sum_oracle
from allranks.checking.drawing import Draws
from allranks.checking.exercise import P2P, P2P_ONLY, About, Exercise, Rule, Run
from allranks.exercises.ring_all_reduce import MISTAKES
from allranks.simulator import lower_bound_seconds
from allranks.wire import LogEntry

NODE = topology.preset("dgx-h100")
MACHINE = speed.Machine("one node of 8 H100s", NODE, 1 << 30)
GAMMA = NODE.inside.beta_s_per_byte  # seconds to add a byte: as long as it travels
ELEMENT_S = 0.25  # where there is no machine
Sum = tuple[int | None, tuple[int, ...]]


def _element_s(setup: Setup) -> float:
    return GAMMA * MACHINE.nbytes / max(setup.size, 1) if speed.machine_of(setup) else ELEMENT_S


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    return [(view, Add(max(setup.ranks * setup.size, 1), _element_s(setup))) for (view,) in vectors(setup, rng)]


def _through_add(run: Run) -> str | None:
    """p - 1 of the p contributions to each element are added by somebody."""
    broken = rules.no_messages(run) or rules.wrong_dtype(run)
    if broken:
        return broken
    needed = (run.ranks - 1) * run.setup.size * run.setup.times
    added = round(sum(speed.computed_s(run, rank) for rank in range(run.ranks)) / _element_s(run.setup))
    if added >= needed:
        return _added_before_sent(run)
    return f"the ranks add {added} elements with add() in all, but {needed} must be added: use add(into, part) for every sum"


def _added_before_sent(run: Run) -> str | None:
    """With provenance values: a sum that a rank sends must have been made by add() before, each element of it.

    So nobody adds in another way and calls add() later, on numbers of no use, where it costs no time.
    """
    if run.setup.values != "provenance":
        return None
    starts = {event.match: event.start for event in run.outcome.trace if event.op == "send"}
    came: list[set[Sum]] = [set() for _ in range(run.ranks)]
    for entry in run.sends:
        came[entry.peer or 0] |= _sums(entry)
    made: list[set[Sum]] = [set() for _ in range(run.ranks)]
    for entry in run.sends:
        rank, start = entry.rank, starts.get(entry.match)
        made[rank] |= _sums(entry) - came[rank]
        if start is None:
            continue
        worked = sum(
            work.end - work.start for work in run.outcome.timeline.work if work.rank == rank and work.end <= start
        )
        added = round(float(worked) / _element_s(run.setup))
        if added < len(made[rank]):
            return About(
                f"rank {rank} sends sums of {len(made[rank])} elements{run.at(entry.line)} when it has added only {added} with "
                "add(): make every sum with add(into, part), before it is sent",
                entry,
            )
    return None


def _sums(entry: LogEntry) -> set[Sum]:
    """The elements of a message that hold several contributions: the position, and whose."""
    found = provenance.elements_of(entry) or ()
    return {(e.position, tuple(sorted(e.contributors))) for e in found if len(e.contributors) > 1}


def _bound(run: Run) -> float:
    return lower_bound_seconds("all_reduce", run.ranks, speed.nbytes_of(run), NODE, GAMMA)


def _timed(ranks: int, size: int) -> Setup:
    return Setup(ranks, size, note="timed").with_options(_machine=MACHINE)


EXERCISE = Exercise(
    name="segmented_ring",
    promise="replaces tensor by its sum over all ranks, in place, and adds while messages travel",
    groups=speed.sum_groups((_timed(5, 40), _timed(4, 32)), many=(9, 10)),  # every segment is a message
    inputs=_inputs,
    oracle=sum_oracle,
    allow=P2P,
    rules=(
        Rule("every sum through add()", 2, _through_add, essential=True),
        speed.at_most(1.25, 24, _bound),
        rules.carried(),
    ),
    mistakes=MISTAKES,
    explain=explain_sum,
    collective="all_reduce",
    algorithm="ring",
    demo_setup=replace(_timed(4, 32), dtype="float64", values="provenance"),
    forbidden_advice=P2P_ONLY,
    peer_advice="Take the peer's number modulo the number of ranks.",
)
