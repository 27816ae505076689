"""reshard(shard, before, after) -> Tensor: rows split over the ranks in one way become split in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import RING_RANKS, SIZES, circumstances, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run

Plan = tuple[list[int], list[int]]


def _even(total: int, parts: int, ranks: int) -> list[int]:
    """Equal parts, up to one row, on the first `parts` ranks, and none on the others."""
    return [total // parts + (r < total % parts) if r < parts else 0 for r in range(ranks)]


def _drawn(total: int, ranks: int, rng: Draws) -> list[int]:
    """Parts of any sizes, some of them perhaps empty."""
    cuts = sorted(rng.integers(0, total + 1, ranks - 1).tolist())
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def _plan(setup: Setup, rng: Draws) -> Plan:
    """How many rows each rank has, before and after."""
    n, p = setup.size, setup.ranks
    half = max(p // 2, 1)
    match setup.option("way"):
        case "fewer ranks":
            return _even(n, p, p), _even(n, half, p)
        case "more ranks":
            return _even(n, half, p), _even(n, p, p)
        case "none moves":
            return (sizes := _drawn(n, p, rng)), list(sizes)
        case "to one rank":
            last = rng.integer(min(1, p - 1), p)  # with rows of other ranks before its own
            return _even(n, p, p), [n if r == last else 0 for r in range(p)]
        case "from the last rank":
            return [0] * (p - 1) + [n], _even(n, p, p)
    while True:
        before, after = _drawn(n, p, rng), _drawn(n, p, rng)
        own_behind_others = any(
            _moving(before, after, r, r) and any(_moving(before, after, q, r) for q in range(r)) for r in range(p)
        )
        if p == 1 or n < 2 or (own_behind_others and after != _even(n, p, p)):
            return before, after


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    before, after = _plan(setup, rng)
    columns = setup.option("_columns", 3)
    return [
        (View.of(draw(setup, rng.of_rank(r), before[r], columns), setup.layout), list(before), list(after))
        for r in range(setup.ranks)
    ]


def _spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The first row of each rank, and the one after its last."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _moving(before: Sequence[int], after: Sequence[int], rank: int, peer: int) -> int:
    """How many rows `rank` has before that `peer` has afterwards."""
    (a, b), (c, d) = _spans(before)[rank], _spans(after)[peer]
    return max(min(b, d) - max(a, c), 0)


@oracle_maker
def _ending(
    setup: Setup, args: Sequence[Args], make: Callable[[torch.Tensor, Sequence[Args], int], torch.Tensor]
) -> list[Expected]:
    """An oracle from `make(all rows, args, rank)`."""
    rows = torch.cat([plain(a[0]) for a in args])
    return [Expected(make(rows, args, rank).clone()) for rank in range(setup.ranks)]


def _right(rows: torch.Tensor, args: Sequence[Args], rank: int) -> torch.Tensor:
    first, last = _spans(args[0][2])[rank]
    return rows[first:last]


def _own_first(rows: torch.Tensor, args: Sequence[Args], rank: int) -> torch.Tensor:
    """The rows that stay come first, then what arrived, in the order of ranks."""
    _, before, after = args[0]
    first, last = _spans(after)[rank]
    order = [rank, *(r for r in range(len(args)) if r != rank)]
    pieces = []
    for owner in order:
        a, b = _spans(before)[owner]
        pieces.append(rows[max(a, first) : max(min(b, last), max(a, first))])
    return torch.cat(pieces)


def _reversed(rows: torch.Tensor, args: Sequence[Args], rank: int) -> torch.Tensor:
    """What arrived is put together from the last rank to the first."""
    _, before, after = args[0]
    first, last = _spans(after)[rank]
    spans = [(max(a, first), min(b, last)) for a, b in _spans(before)]
    return torch.cat([rows[a : max(a, b)] for a, b in spans[::-1]])


def _row_nbytes(run: Run, call: int) -> int:
    shards = [a[0] for a in run.args[call]]
    return shards[0].size[1] * shards[0].base.element_size()


def _wanted(run: Run, call: int, rank: int, peer: int) -> int:
    """Bytes of the rows that `rank` has and `peer` needs."""
    _, before, after = run.args[call][0]
    return _moving(before, after, rank, peer) * _row_nbytes(run, call)


def _lacking(run: Run, call: int, rank: int) -> int:
    return sum(_wanted(run, call, peer, rank) for peer in range(run.ranks) if peer != rank)


def _asked_of(run: Run, call: int, rank: int) -> int:
    return sum(_wanted(run, call, rank, peer) for peer in range(run.ranks) if peer != rank)


def _straight(run: Run) -> str | None:
    """Each rank sends each other one the rows that this one needs, and nothing more."""
    for call in range(run.setup.times):
        given = rules.between(run, call)
        for entry in run.sends:
            if entry.call == call and entry.peer is not None:
                given[entry.rank][entry.peer] += entry.nbytes
        for rank, row in enumerate(given):
            for peer, nbytes in enumerate(row):
                enough = _wanted(run, call, rank, peer)
                if peer != rank and nbytes > enough:
                    log = [e for e in run.operations(call, rank) if e.peer in (peer, None)]
                    line = run.at(log[-1].line) if log else ""
                    words = (
                        f"rank {rank} sends {nbytes} bytes to rank {peer}{line}, but of its rows rank {peer} needs {enough}: each row "
                        "goes straight to the rank that has it afterwards, and one that stays is not sent"
                    )
                    return (rules.wider(run, log[-1]) or About(words, log[-1])) if log else words
    return None


def _at_once(run: Run) -> str | None:
    """Sends and receives of a rank are under way together: no rank waits for the others' turn."""
    if run.collectives or not run.sends:
        return None
    _, before, after = run.args[0][0]
    p = run.ranks
    pieces = [[bool(_moving(before, after, r, q)) and r != q for q in range(p)] for r in range(p)]
    most = max(sum(pieces[r]) + sum(pieces[q][r] for q in range(p)) for r in range(p))
    took = round(run.outcome.seconds)
    if took <= most:
        return None
    empty = next((e for e in run.sends if not e.nbytes), None)
    if empty is not None:
        return About(
            f"rank {empty.rank} sends rank {empty.peer} a message without rows{run.at(empty.line)}, and each message costs a round: "
            "where no rows go, send nothing",
            empty,
        )
    return (
        f"{took} rounds of messages one after the other, but no rank has more than {most} pieces to send and to receive: "
        "start all of them, then wait"
    )


def _case(ranks: int, size: int, way: str | None = None, **more: object) -> Setup:
    setup = Setup(ranks, size, **more)  # type: ignore[arg-type]
    return setup if way is None else setup.with_options(way=way)


EXERCISE = Exercise(
    name="reshard",
    promise="returns the rows that this rank has after the split, of rows that were split in another way before",
    groups=(
        Group("fewer ranks", 3, tuple(_case(p, n, "fewer ranks") for p, n in ((2, 5), (4, 8), (4, 11), (5, 13)))),
        Group("more ranks", 3, tuple(_case(p, n, "more ranks") for p, n in ((2, 5), (4, 8), (4, 11), (5, 13)))),
        Group("any split", 3, (_case(2, 7), _case(3, 10), _case(4, 13), _case(5, 9), _case(8, 17))),
        Group("ranks without rows", 2, (_case(4, 7, "to one rank"), _case(4, 6, "from the last rank"), _case(5, 3))),
        many_ranks(2, _case(9, 19), ranks=RING_RANKS, size=SIZES),
        Group("nothing to do", 1, (_case(4, 9, "none moves"), _case(1, 4), _case(3, 0))),
        Group(
            "any dtype",
            1,
            (
                _case(3, 8, dtype="int64", values="precise"),
                _case(4, 9, dtype="bfloat16"),
                _case(3, 9, dtype="bool").with_options(_columns=16),
            ),
        ),
        Group(
            "any layout",
            1,
            (_case(3, 8, layout="offset"), _case(4, 9, layout="strided"), _case(3, 8, layout="transposed")),
        ),
        circumstances(_case(3, 8, "fewer ranks"), job=_case(4, 9), delayed=_case(4, 10)),
    ),
    inputs=_inputs,
    labels={"way": "{}"},
    oracle=_ending(_right),
    allow=P2P | {"all_to_all_single"},
    rules=(
        Rule("straight to the rank that needs them", 6, _straight),
        Rule("all at the same time", 3, _at_once, rules.on_one_call),
        rules.carried(_lacking, _asked_of),
    ),
    blocking_weight=2,
    mistakes={
        "an even split over all ranks: after says how many rows each rank has": _ending(
            lambda rows, args, r: rows.tensor_split(len(args))[r]
        ),
        "the rows that stayed come first: all rows must be in the order of the whole, so earlier ranks' rows "
        "come before them": _ending(_own_first),
        "the pieces are put together from the last rank to the first": _ending(_reversed),
        "all rows came: each rank must end with its own part only": _ending(lambda rows, args, r: rows),
    },
    unit="row",
    collective="all_to_all",
    demo_setup=_case(4, 11, "fewer ranks"),
    forbidden_advice="Use batch_isend_irecv, or all_to_all_single with lists of sizes.",
    empty_advice="Where no rows go from one rank to another, neither of the two sends or receives.",
    own_rank_advice="Rows that stay on their rank are copied, not sent.",
)
