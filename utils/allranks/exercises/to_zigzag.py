"""to_zigzag(tensor) -> Tensor: from a sequence in the order of ranks to the zigzag order that balances causal attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, P2P_ONLY, About, Exercise, Group, Rule, Run


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    columns = setup.option("_columns", 2)
    return [
        (View.of(draw(setup, rng.of_rank(r), 2 * setup.size, columns, most=9), setup.layout),)
        for r in range(setup.ranks)
    ]


def _pairs(ranks: int) -> list[tuple[int, int]]:
    """The two chunks of each rank, of 2p."""
    return [(r, 2 * ranks - 1 - r) for r in range(ranks)]


def _taking(pairs: Callable[[int], Sequence[tuple[int, ...]]]) -> Callable[[Setup, Sequence[Args]], list[Expected]]:
    """What each rank ends with if it takes these chunks, one after the other."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        chunks = torch.cat([plain(a[0]) for a in args]).chunk(2 * setup.ranks)
        return [Expected(torch.cat([chunks[c] for c in pair])) for pair in pairs(setup.ranks)]

    return oracle


def _lacking(run: Run, call: int, rank: int) -> int:
    """Bytes of the chunks that a rank needs and has not."""
    missing = sum(chunk // 2 != rank for chunk in _pairs(run.ranks)[rank])
    return missing * rules.nbytes_of(run, call, rank) // 2


def _wanted(run: Run, call: int, rank: int) -> int:
    """Bytes of the chunks that a rank has and another one needs."""
    needs = {chunk: r for r, pair in enumerate(_pairs(run.ranks)) for chunk in pair}
    return sum(needs[c] != rank for c in (2 * rank, 2 * rank + 1)) * rules.nbytes_of(run, call, rank) // 2


def _no_more(run: Run) -> str | None:
    """No chunk may go to a rank that does not need it, or that has it."""
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            mine = [e for e in run.sends if e.rank == rank and e.call == call]
            sent, enough = sum(e.nbytes for e in mine), _wanted(run, call, rank)
            if sent > enough:
                first = next(e for e in mine if e.nbytes)
                return rules.wider(run, first) or About(
                    f"rank {rank} sends {sent} bytes{run.at(first.line)}, but the chunks that others need of it have {enough}: "
                    "each chunk goes straight to the rank that needs it, and one that stays is not sent",
                    first,
                )
    return None


def _two_rounds(run: Run) -> str | None:
    """A rank sends two chunks at most and receives two, both at the same time."""
    took = round(run.outcome.seconds)
    if took <= 2:
        return None
    return (
        f"{took} rounds of messages one after the other, but a rank has two chunks to send and two to receive, so 2 are enough: "
        "start all of them, then wait"
    )


EXERCISE = Exercise(
    name="to_zigzag",
    promise="returns chunk r and chunk 2p-1-r of the sequence, of which this rank brings chunks 2r and 2r+1",
    groups=(
        Group("right chunks", 3, (Setup(2, 1), Setup(3, 2), Setup(4, 1))),
        Group("any rank count", 2, (Setup(1, 2), Setup(5, 1), Setup(8, 2))),
        Group("many ranks", 2, (Setup(9, 1).with_choices(ranks=(9, 10, 11, 12), size=(1, 2, 3)),)),
        Group("any size", 1, (Setup(3, 5), Setup(4, 3), Setup(3, 2).with_options(_columns=1))),
        Group("any dtype", 1, (Setup(3, 2, "int64", values="precise"), Setup(4, 1, "bfloat16"), Setup(3, 1, "bool"))),
        Group(
            "any layout",
            1,
            (Setup(3, 2, layout="offset"), Setup(4, 2, layout="strided"), Setup(3, 2, layout="transposed")),
        ),
        Group(
            "any circumstances",
            1,
            (Setup(3, 2, times=2), Setup(3, 2, outer_world=True), Setup(4, 2, delivery="shuffled")),
        ),
    ),
    inputs=_inputs,
    oracle=_taking(_pairs),
    allow=P2P,
    rules=(
        Rule("only chunks that somebody lacks", 4, lambda run: rules.no_messages(run) or _no_more(run)),
        Rule("at most 2 rounds", 4, _two_rounds, rules.on_one_call),
        rules.carried(_lacking, _wanted),
    ),
    blocking_weight=2,
    mistakes=known(
        {
            "the two chunks are in the wrong order: chunk r comes first, then chunk 2p-1-r": _taking(
                lambda p: [b[::-1] for b in _pairs(p)]
            ),
            "nothing has moved: these are chunks 2r and 2r+1": _taking(
                lambda p: [(2 * r, 2 * r + 1) for r in range(p)]
            ),
            "striped: chunk r and chunk r+p instead of chunk 2p-1-r": _taking(lambda p: [(r, r + p) for r in range(p)]),
            "the second chunk is one too early: with 2p chunks the last has the number 2p-1": _taking(
                lambda p: [(r, (2 * p - 2 - r) % (2 * p)) for r in range(p)]
            ),
            "the second chunk of each rank is the partner's, from the start: rank r needs chunk 2p-1-r": _taking(
                lambda p: [(r, p - 1 - r) for r in range(p)]
            ),
        }
    ),
    unit="row a chunk",
    collective="all_to_all",
    chunking="none",
    demo_setup=Setup(4, 2),
    forbidden_advice=P2P_ONLY,
    peer_advice="Chunk c lies on rank c // 2 at the beginning.",
    own_rank_advice="A chunk that stays on its rank is copied, not sent.",
)
