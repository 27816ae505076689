"""async_tp_linear(x, multiply) -> Tensor: all ranks' rows, multiplied piece by piece while the next piece is under way.

`multiply(rows)` is the judge's: it takes virtual time for every row, so that the wire's clock tells what hid behind what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Multiply, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run
from allranks.theory.trace import Event

ALPHA, BETA = 1.0, 0.25  # of the wire's clock: seconds a message, seconds a byte
WIDTH, COLUMNS = 3, 2
PACES = {"computing takes as long as sending": 1.0, "computing takes longer": 2.5, "sending takes longer": 0.4}
EVEN, SLOW, FAST = PACES
ALLOWED = 1.1  # times the bound


def _sent_s(setup: Setup) -> float:
    """Seconds in which one rank's rows get to another one."""
    itemsize = torch.empty(0, dtype=getattr(torch, setup.dtype)).element_size()
    return ALPHA + setup.size * WIDTH * itemsize * BETA


def _row_s(setup: Setup) -> float:
    """Seconds of computing for one row."""
    return PACES[setup.option("pace")] * _sent_s(setup) / max(setup.size, 1)


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        x, weight = draw(setup, own, setup.size, WIDTH), draw(setup, own, WIDTH, COLUMNS)
        yield View.of(x, setup.layout), Multiply(weight, setup.ranks * setup.size, _row_s(setup))


def _blocks(setup: Setup, args: Sequence[Args], owners: Callable[[int], Sequence[int | None]]) -> list[Expected]:
    """For each rank the products of these ranks' rows, one below the other; None is a block of zeros."""
    kind, made = args[0][0].base.dtype, []
    rows = [plain(given[0]) for given in args]
    for rank, given in enumerate(args):
        wide = given[1].weight.double()
        blocks = [torch.zeros_like(rows[0]) if owner is None else rows[owner] for owner in owners(rank)]
        made.append(Expected((torch.cat(blocks).double() @ wide).to(kind), {}, _atol(kind)))
    return made


def _atol(kind: torch.dtype) -> float | None:
    return {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 1.0, torch.float16: 1.0}.get(kind)


def _in_order(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _blocks(setup, args, lambda rank: range(setup.ranks))


@oracle_maker
def _last_zero(setup: Setup, args: Sequence[Args], step: int) -> list[Expected]:
    """The block that a ring brings last is missing."""
    p = setup.ranks
    return _blocks(setup, args, lambda rank: [None if owner == (rank + step) % p else owner for owner in range(p)])


def _only_others_zero(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _blocks(setup, args, lambda rank: [owner if owner == rank else None for owner in range(setup.ranks)])


# ------------------------------------------------------------------------------------------------- by the wire's clock


def _worked(run: Run, rank: int) -> list[Event]:
    """When a rank multiplied rows: one event a row."""
    return sorted((e for e in run.outcome.trace if e.op == "compute" and e.rank == rank), key=_start)


def _came(run: Run, rank: int) -> list[Event]:
    """When messages came to a rank."""
    return sorted((e for e in run.outcome.trace if e.op == "recv" and e.rank == rank and e.nbytes), key=_end)


def _start(event: Event) -> float:
    return event.start if event.start is not None else 0.0


def _end(event: Event) -> float:
    return event.end if event.end is not None else 0.0


def _each_row_once(run: Run) -> str | None:
    """Every row of all ranks goes through `multiply` once, and not before it is there."""
    if broken := rules.no_messages(run):
        return broken
    n, enough = run.setup.size, run.ranks * run.setup.size
    for rank in range(run.ranks):
        worked = _worked(run, rank)
        each = len(worked) / run.setup.times
        if each != enough:
            return f"rank {rank} multiplies {each:g} rows with multiply(), but all ranks together have {enough}: each row once"
    if run.setup.times > 1:
        return None
    row_nbytes = WIDTH * run.itemsize
    for rank in range(run.ranks):
        came = _came(run, rank)
        for number, event in enumerate(_worked(run, rank)):
            here = n + sum(e.nbytes for e in came if _end(e) <= _start(event) + 1e-9) // row_nbytes
            if number >= here:
                return f"rank {rank} multiplies {number + 1} rows when only {here} are there: wait for a piece before you multiply it"
    return None


def _each_piece_once(run: Run) -> str | None:
    """Each rank sends p-1 shares in all: its own, or those that it passes on."""
    enough = (run.ranks - 1) * rules.nbytes_of(run) * run.setup.times
    for rank, sent in enumerate(run.bytes_sent()):
        if sent > enough:
            longest = max((e for e in run.sends if e.rank == rank), key=lambda e: e.nbytes)
            return rules.wider(run, longest) or About(
                f"rank {rank} sends {sent} bytes{run.at(longest.line)}, but p-1 shares of rows have {enough}: send each share once",
                longest,
            )
    return None


def _time(run: Run) -> str | None:
    p, sent_s = run.ranks, _sent_s(run.setup)
    piece_s = _row_s(run.setup) * run.setup.size
    bound, took = (p - 1) * max(sent_s, piece_s) + piece_s, float(run.outcome.seconds)
    if took <= ALLOWED * bound:
        return None
    words = f"{took:g} s of virtual time, but (p-1) max(sending, computing) + computing = {bound:g} s: {_why(run)}"
    return About(words, run.sends[0]) if run.sends else words


def _on_three_ranks(setup: Setup) -> bool:
    """With two ranks one piece travels, and all ways to lose time look alike."""
    return setup.ranks > 2 and rules.on_one_call(setup)


def _why(run: Run) -> str:
    """What in the trace makes it slow."""
    worked, came = [_worked(run, r) for r in range(run.ranks)], [_came(run, r) for r in range(run.ranks)]
    if all(w and c and _start(w[0]) >= _end(c[-1]) for w, c in zip(worked, came, strict=True)):
        return "everything is received before the first row is multiplied. Multiply a piece while the next one comes"
    hidden = any(
        _start(e) < _end(w) and _start(w) < _end(e)
        for work, arrived in zip(worked, came, strict=True)
        for w in work
        for e in arrived
    )
    if not hidden:
        return (
            "no piece is under way while a rank multiplies. Start the exchange of the next piece (batch_isend_irecv), multiply this "
            "one, then wait"
        )
    if all(_start(w[0]) > 0 for w in worked):
        return "no rank multiplies while the first piece comes. Begin with your own rows, which are there"
    pieces = max(len([e for e in run.sends if e.rank == r]) for r in range(run.ranks))
    if pieces > run.ranks - 1:
        return f"a rank sends {pieces} messages, and each takes alpha. One message for each share is enough"
    most, share = max(run.bytes_sent()), rules.nbytes_of(run)
    if most > (run.ranks - 1) * share * run.setup.times:
        return f"a rank sends {most} bytes, and each takes time. The p-1 shares have {(run.ranks - 1) * share}"
    return "a rank waits for a piece before it has multiplied the piece that it has, or multiplies before it starts the next exchange"


def _case(ranks: int, size: int, pace: str = EVEN, **more: object) -> Setup:
    return Setup(ranks, size, **more).with_options(pace=pace, _alpha=ALPHA, _beta=BETA)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="async_tp_linear",
    promise="returns multiply(rows of all ranks), and multiplies while rows are under way",
    groups=(
        Group("right product", 3, (_case(2, 4), _case(3, 2), _case(4, 4))),
        Group(
            "slow and fast computing", 3, (_case(3, 4, SLOW), _case(4, 2, FAST), _case(2, 6, FAST), _case(5, 2, SLOW))
        ),
        Group("any rank count", 1, (_case(1, 4), _case(5, 2), _case(8, 2))),
        Group("many ranks", 2, (_case(9, 2).with_choices(ranks=(9, 11), pace=(EVEN, SLOW, FAST)),)),
        Group("any size", 1, (_case(3, 1), _case(2, 7), _case(3, 5))),
        Group(
            "any dtype and layout",
            1,
            (
                _case(3, 4, dtype="float64", values="random"),
                _case(2, 4, dtype="bfloat16"),
                _case(3, 4, layout="transposed"),
                _case(3, 4, layout="strided"),
            ),
        ),
        circumstances(_case(3, 4), delayed=_case(4, 2)),
    ),
    inputs=_inputs,
    labels={"pace": "{}"},
    oracle=_in_order,
    allow=P2P,
    rules=(
        Rule("each row multiplied once, and when it is there", 2, _each_row_once, essential=True),
        Rule("p-1 shares of rows", 2, _each_piece_once),
        Rule("within 10 % of (p-1) max(sending, computing) + computing", 10, _time, _on_three_ranks),
        rules.carried(rules.times(lambda p: p - 1)),
    ),
    blocking_weight=2,
    mistakes={
        "only this rank's own rows: the other ranks' rows are missing": _only_others_zero,
        "the last piece is missing: p-1 of them come, and with the own rows there are p to multiply": [
            _last_zero(step) for step in (1, -1)
        ],
    },
    unit="row a rank",
    collective="all_gather",
    algorithm="ring",
    demo_setup=_case(4, 4),
    peer_advice="Take the peer's number modulo the number of ranks.",
)
