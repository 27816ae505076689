"""segmented_ring(tensor, add): in place, the sum, on a ring whose ranks add one segment while the next one travels.

`add(into, part)` is the judge's: it takes virtual time for every element, as long as a link needs to carry it.
"""

from __future__ import annotations

from dataclasses import replace

from allranks.exercises.ring_all_reduce import MISTAKES
from allranks.judge import provenance, rules, speed
from allranks.judge.cases import Add, Args, Setup, plain, vectors
from allranks.judge.common import explain_sum, sum_oracle
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Rule, Run
from allranks.ranks.wire import LogEntry
from allranks.ranks.wire.messages import OpKind as Op
from allranks.theory import topology
from allranks.theory.cost.bounds import lower_bound_seconds

NODE = topology.preset("dgx-h100")
MACHINE = speed.Machine("one node of 8 H100s", NODE, 1 << 30)
GAMMA = NODE.inside.beta_s_per_byte  # seconds to add a byte: as long as it travels
ELEMENT_S = 0.25  # where there is no machine
Number = int | float


def _element_s(setup: Setup) -> float:
    return GAMMA * MACHINE.nbytes / max(setup.size, 1) if speed.machine_of(setup) else ELEMENT_S


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    return [(view, Add(max(setup.ranks * setup.size, 1), _element_s(setup))) for (view,) in vectors(setup, rng)]


def _through_add(run: Run) -> str | None:
    """p - 1 of the p contributions to each element are added by somebody."""
    if broken := rules.messages_in_dtype(run):
        return broken
    needed = (run.ranks - 1) * run.setup.size * run.setup.times
    added = round(sum(speed.computed_s(run, rank) for rank in range(run.ranks)) / _element_s(run.setup))
    if added >= needed:
        return _added_before_sent(run)
    return f"the ranks add {added} elements with add() in all, but {needed} must be added: use add(into, part) for every sum"


def _added_before_sent(run: Run) -> str | None:
    """A sum that a rank sends, or ends with, must have been made by add() before, from an element that had come by then.

    So nobody adds in another way and calls add() earlier or later, on numbers of no use, where it costs no time. A number counts as a sum
    if the rank had none like it before: of inputs that are small whole numbers some sums are not seen, but none too many.
    """
    came: list[list[tuple[float, list[Number]]]] = [[] for _ in range(run.ranks)]
    sent: list[list[tuple[float, LogEntry, list[Number]]]] = [[] for _ in range(run.ranks)]
    times = {(e.op, e.match): e for e in run.outcome.trace if e.match is not None}
    for entry in run.sends:
        numbers = provenance.numbers(entry)
        start, end = times.get((Op.SEND, entry.match)), times.get((Op.RECV, entry.match))
        if numbers is None or start is None or end is None or entry.peer is None:
            return None  # too large to be kept
        carried = numbers.tolist()
        sent[entry.rank].append((start.start or 0.0, entry, carried))
        came[entry.peer].append((end.end or 0.0, carried))
    for rank in range(run.ranks):
        came[rank].sort(key=lambda one: one[0])
        sent[rank].sort(key=lambda one: one[0])
        if broken := _sums_without_work(run, rank, sent[rank], came[rank]):
            return broken
    return None


def _sums_without_work(
    run: Run, rank: int, sent: list[tuple[float, LogEntry, list[Number]]], came: list[tuple[float, list[Number]]]
) -> str | None:
    """The first message of a rank, else its result, with more sums than the rank had made from what had come."""
    had: set[Number] = {0}
    for args in run.args:
        had.update(plain(args[rank][0]).reshape(-1).tolist())
    made: set[Number] = set()
    seen = done = added = 0
    work = _added(run, rank, came)
    advice = "make every sum with add(into, part), when the part is there and before the sum is sent"
    for start, entry, carried in sent:
        while seen < len(came) and came[seen][0] <= start:
            had.update(came[seen][1])
            seen += 1
        while done < len(work) and work[done][0] <= start:
            added += work[done][1]
            done += 1
        made.update(number for number in carried if number not in had)
        if added < len(made):
            return About(
                f"rank {rank} has sent {_sums(made)}{run.at(entry.line)}, but of the elements that had come by then add() has added "
                f"only {added}: {advice}",
                entry,
            )
    for _, carried in came[seen:]:
        had.update(carried)
    for results in run.results:
        result = results[rank]
        now = result.tensors[0][0] if result is not None else None
        made.update(number for number in (now.reshape(-1).tolist() if now is not None else ()) if number not in had)
    added = sum(elements for _, elements in work)
    if added < len(made):
        return (
            f"rank {rank} has made {_sums(made)}, but of the elements that came add() has added only {added}: {advice}"
        )
    return None


def _sums(made: set[Number]) -> str:
    return f"{len(made)} sum{'' if len(made) == 1 else 's'}"


def _added(run: Run, rank: int, came: list[tuple[float, list[Number]]]) -> list[tuple[float, int]]:
    """When each add() of a rank ended, and how many elements it added; in all never more than had come when it began."""
    found: list[tuple[float, int]] = []
    here = arrived = total = 0
    for work in sorted((w for w in run.outcome.timeline.work if w.rank == rank), key=lambda w: w.start):
        while arrived < len(came) and came[arrived][0] <= work.start:
            here += len(came[arrived][1])
            arrived += 1
        elements = min(round(float(work.end - work.start) / _element_s(run.setup)), here - total)
        total += elements
        found.append((float(work.end), elements))
    return found


def _bound(run: Run) -> float:
    return lower_bound_seconds("all_reduce", run.ranks, speed.nbytes_of(run), NODE, GAMMA)


def _timed(ranks: int, size: int) -> Setup:
    return Setup(ranks, size, note="timed").with_options(_machine=MACHINE)


EXERCISE = Exercise(
    name="segmented_ring",
    promise="replaces tensor by its sum over all ranks, in place, and adds while messages travel",
    groups=speed.sum_groups((_timed(5, 40), _timed(4, 32)), many=(9,)),  # every segment is a message
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
    comparable=False,
    chunking="split",
    demo_setup=replace(_timed(4, 32), dtype="float64", values="provenance"),
    peer_advice="Take the peer's number modulo the number of ranks.",
)
