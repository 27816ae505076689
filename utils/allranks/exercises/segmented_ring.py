"""segmented_ring(tensor, add): in place, the sum, on a ring whose ranks add one segment while the next one travels.

`add(into, part)` is the judge's: it takes virtual time for every element, as long as a link needs to carry it.
"""

from __future__ import annotations

from dataclasses import replace

from allranks import topology
from allranks.checking import rules, speed
from allranks.checking.cases import Add, Args, Setup, vectors
from allranks.checking.common import explain_sum, sum_oracle
from allranks.checking.drawing import Draws
from allranks.checking.exercise import P2P, P2P_ONLY, Exercise, Rule, Run
from allranks.exercises.ring_all_reduce import MISTAKES
from allranks.simulator import lower_bound_seconds

NODE = topology.preset("dgx-h100")
MACHINE = speed.Machine("one node of 8 H100s", NODE, 1 << 30)
GAMMA = NODE.inside.beta_s_per_byte  # seconds to add a byte: as long as it travels
ELEMENT_S = 0.25  # where there is no machine


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
        return None
    return f"the ranks add {added} elements with add() in all, but {needed} must be added: use add(into, part) for every sum"


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
