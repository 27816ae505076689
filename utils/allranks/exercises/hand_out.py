"""hand_out(table) -> Tensor: rank r gets row r of rank 0's table."""

from __future__ import annotations

from collections.abc import Sequence

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, plain
from allranks.judge.common import circumstances, many_ranks, returning
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    table = plain(args[0][0])
    return [Expected(table[rank]) for rank in range(setup.ranks)]


def _own_rows(run: Run) -> str | None:
    if broken := rules.no_messages(run):
        return broken
    row = run.setup.size * run.itemsize
    for entry in run.sends:
        if entry.rank != 0:
            return About(
                f"rank {entry.rank} sends to rank {entry.peer}{run.at(entry.line)}: only rank 0 has what the others need",
                entry,
            )
        if entry.nbytes > row:
            return About(
                f"rank 0 sends {entry.nbytes} bytes to rank {entry.peer}{run.at(entry.line)}, but its row has {row}",
                entry,
            )
    sent = len(run.sends)
    wanted = run.setup.times * (run.ranks - 1)
    return (
        None
        if sent == wanted
        else f"rank 0 sends {sent} message{'' if sent == 1 else 's'}, but one to each of the others is {'enough' if sent > wanted else 'needed'}, {wanted} in all"
    )


EXERCISE = Exercise(
    name="hand_out",
    promise="returns row r of rank 0's table on rank r",
    groups=(
        Group("right row", 4, (Setup(3, 4), Setup(4, 3), Setup(5, 2), Setup(8, 2))),
        Group("one or two ranks", 0.5, (Setup(1, 3), Setup(2, 4))),
        Group("any size", 0.5, (Setup(4, 0), Setup(4, 1))),
        many_ranks(0.5),
        Group("any layout", 0.5, (Setup(4, 3, layout="transposed"), Setup(3, 4, layout="strided"))),
        Group("any dtype", 1, (Setup(3, 3, "float64", values="random"), Setup(4, 3, "int64", values="precise"))),
        circumstances(Setup(3, 4), job=Setup(4, 2), delayed=Setup(5, 2)),
    ),
    inputs=lambda setup, rng: [
        (View.of(draw(setup, rng.of_rank(r), setup.ranks, setup.size, most=9999), setup.layout),)
        for r in range(setup.ranks)
    ],
    oracle=_oracle,
    allow=P2P,
    rules=(
        rules.in_dtype(0),
        Rule("one message to each of the others, its row only", 2, _own_rows),
        rules.carried(lambda run, call, rank: run.setup.size * run.itemsize if rank else 0, rules.nothing),
    ),
    mistakes={
        "each rank's row of its own table: nothing came from rank 0, or what came was not returned": returning(
            lambda t, rank, setup: t[rank][rank]
        ),
        "row 0 came, and not the rank's own row": returning(lambda t, rank, setup: t[0][0]),
        "the rows are off by one": returning(lambda t, rank, setup: t[0][(rank - 1) % setup.ranks if rank else 0]),
    },
    unit="number in a row",
    demo_setup=Setup(4, 3),
    blocking_weight=1,
    peer_advice="The others are ranks 1 to p-1.",
    own_rank_advice="Rank 0 has its row already: it copies it.",
)
