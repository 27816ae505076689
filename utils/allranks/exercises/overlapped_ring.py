"""overlapped_ring(tensor, work, pieces): in place, the sum, while the rank does other work: `work()` does one of `pieces` pieces.

`work()` is the judge's: it takes virtual time, and messages that were begun before it travel meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

from allranks.exercises.ring_all_reduce import MISTAKES
from allranks.judge import rules, speed
from allranks.judge.cases import Args, Setup, Work, vectors
from allranks.judge.common import explain_sum, sum_oracle
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, Exercise, Rule, Run
from allranks.theory import topology

NODE = topology.preset("dgx-h100")
MACHINE = speed.Machine("one node of 8 H100s", NODE, 1 << 30)
PACES = {"as much work as communication": 1.0, "more work": 2.0, "less work": 0.5}
EVEN, MORE, LESS = PACES
PIECES = 28


def _piece_s(setup: Setup) -> float:
    """Seconds of a piece: all pieces together take the pace's share of a ring's time."""
    if speed.machine_of(setup) is None:
        return 1.0
    p, beta = setup.ranks, NODE.inside.beta_s_per_byte
    ring = 2 * (p - 1) * (NODE.inside.alpha_s + MACHINE.nbytes / p * beta)
    return PACES[setup.option("pace")] * ring / _pieces(setup)


def _pieces(setup: Setup) -> int:
    return setup.option("_pieces", 5)


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    count = _pieces(setup)
    return [(view, Work(count, _piece_s(setup)), count) for (view,) in vectors(setup, rng)]


def _all_the_work(run: Run) -> str | None:
    wanted = _pieces(run.setup) * run.setup.times
    for rank in range(run.ranks):
        done = round(speed.computed_s(run, rank) / _piece_s(run.setup))
        if done != wanted:
            return (
                f"rank {rank} calls work() {done / run.setup.times:g} times, but there are {_pieces(run.setup)} pieces"
            )
    return rules.no_messages(run) if run.ranks > 1 else None


def _timed(ranks: int, size: int, pace: str = EVEN, pieces: int = PIECES) -> Setup:
    made = Setup(ranks, size, note="timed")
    return made.with_options(pace=pace, _pieces=pieces, _machine=MACHINE)


EXERCISE = Exercise(
    name="overlapped_ring",
    promise="replaces tensor by its sum over all ranks, in place, and does all pieces of work meanwhile",
    groups=speed.sum_groups((_timed(8, 64), _timed(4, 64, MORE), _timed(4, 64, LESS, 24))),
    inputs=_inputs,
    labels={"pace": "{}"},
    oracle=sum_oracle,
    allow=P2P,
    rules=(
        rules.in_dtype(0),
        Rule("all the work, once", 2, _all_the_work, essential=True),
        Rule("all the work with one rank too", 1, _all_the_work, lambda setup: setup.ranks == 1),
        speed.at_most(1.25, 24, lambda run: max(speed.bound_s(run), _pieces(run.setup) * _piece_s(run.setup))),
        rules.carried(),
    ),
    mistakes=MISTAKES,
    explain=explain_sum,
    collective="all_reduce",
    algorithm="ring",
    chunking="split",
    demo_setup=replace(_timed(4, 64), dtype="float64", values="provenance"),
    peer_advice="Take the peer's number modulo the number of ranks.",
)
