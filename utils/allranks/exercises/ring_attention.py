"""ring_attention(q, k, v, positions) -> Tensor: causal attention over a sequence that is split over the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import attention_error, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Peak, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run
from allranks.ranks.wire import record

WIDTH = 3  # of most heads: enough to tell values apart
POSITION_NBYTES = 8
# where the blocks of all ranks are far more than a few: with narrow heads scores count as much as values, and with wide ones
# what a rank keeps is so large that it is seen in whatever form
LONG = Setup(13, 4, "float64", values="random").with_options(order="zigzag", watched=True)
WIDE = LONG.with_options(width=2048)
ROOM = 8  # blocks that a rank may hold beside its arguments: this one and the next, their scores, and a summary


def places(setup: Setup) -> list[list[int]]:
    """The positions of each rank's tokens in the sequence, by the setup's `order`."""
    p, n = setup.ranks, setup.size
    match setup.option("order", "rank"):
        case "rank":
            return [list(range(r * n, (r + 1) * n)) for r in range(p)]
        case "reversed":
            return [list(range((p - 1 - r) * n, (p - r) * n)) for r in range(p)]
        case "striped":
            return [list(range(r, p * n, p)) for r in range(p)]
        case _:  # zigzag: chunk r of 2p, and chunk 2p-1-r
            half = n // 2
            ends = [(r, 2 * p - 1 - r) for r in range(p)]
            return [[c * half + i for c in pair for i in range(half)] for pair in ends]


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    for rank, where in enumerate(places(setup)):
        own = rng.of_rank(rank)
        scale = setup.option("scale", 1)
        # small, so that no score alone decides, and exp is finite where the scores are not scaled
        tensors = [draw(setup, own, setup.size, setup.option("width", WIDTH), most=2) for _ in range(3)]
        tensors[0] = tensors[0] * scale
        watched = (Peak(),) if setup.option("watched", False) else ()
        yield (*(View.of(t, setup.layout) for t in tensors), View.of(torch.tensor(where)), *watched)


Sees = Callable[
    [torch.Tensor, torch.Tensor], torch.Tensor
]  # (positions of queries, of keys) -> which query sees which key
At = Callable[
    [Setup, Sequence[Args], int, int], torch.Tensor
]  # (setup, args, rank, other) -> the positions of a block's keys there


def attention(
    setup: Setup,
    args: Sequence[Args],
    sees: Sees = lambda mine, theirs: theirs <= mine,
    keep: Callable[[int, int, int], bool] = lambda rank, other, p: True,
    scaled: Callable[[int], float] = lambda width: 1 / math.sqrt(width),
    at: At = lambda setup, args, rank, other: plain(args[other][3]),
    own_too: bool = False,
) -> list[Expected]:
    """Attention of each rank's queries to the blocks of ranks that it is to `keep`. `sees` is the mask, of the positions `at` which a
    rank takes the keys of each other one to be; `own_too`: and its own queries."""
    made = []
    for rank, own in enumerate(args):
        others = [other for other in range(setup.ranks) if keep(rank, other, setup.ranks)]
        q = plain(own[0]).double()
        k, v = (torch.cat([plain(args[other][i]) for other in others]).double() for i in (1, 2))
        scale = scaled(q.shape[1])
        mine = at(setup, args, rank, rank) if own_too else plain(own[3])
        theirs = torch.cat([at(setup, args, rank, other) for other in others])
        scores = (q @ k.T * scale).masked_fill(~sees(mine[:, None], theirs[None, :]), float("-inf"))
        kind = own[0].base.dtype
        limit = attention_error(q.abs() @ k.abs().T * scale, scores, v, setup.ranks, kind)
        made.append(Expected((torch.softmax(scores, -1) @ v).to(kind), {}, limit))
    return made


_wrong: Callable[..., Oracle] = oracle_maker(attention)


@oracle_maker
def _root_of(setup: Setup, args: Sequence[Args], number: Callable[[Setup], int]) -> list[Expected]:
    return attention(setup, args, scaled=lambda width: 1 / math.sqrt(max(number(setup), 1)))


def _part(setup: Setup, number: int) -> torch.Tensor:
    """The positions of this part of the sequence."""
    return number * setup.size + torch.arange(setup.size)


def _in_parts(setup: Setup, args: Sequence[Args], rank: int, other: int) -> torch.Tensor:
    """As if rank r held the r-th part of the sequence."""
    return _part(setup, other)


@oracle_maker
def _blocks(setup: Setup, args: Sequence[Args], mean: bool) -> list[Expected]:
    """The outputs of the blocks added, each with a softmax of its own, or their mean."""
    p, made = setup.ranks, attention(setup, args)
    total = [torch.zeros_like(e.returns, dtype=torch.float64) for e in made]
    for step in range(p):
        for rank, one in enumerate(attention(setup, args, keep=lambda r, o, p: o == (r + step) % p)):  # noqa: B023
            total[rank] += one.returns.double().nan_to_num()
    by, kind = p if mean else 1, args[0][0].base.dtype
    return [Expected((t / by).to(kind), {}, p * e.atol) for t, e in zip(total, made, strict=True)]


@oracle_maker
def _softmaxed(
    setup: Setup, args: Sequence[Args], make: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], wide: bool = True
) -> Iterator[Expected]:
    """What `make(scores, values)` gives, in float64 or, with `wide` False, in the tensors' own dtype."""
    for own, right in zip(args, attention(setup, args), strict=True):
        kind = own[0].base.dtype
        q = plain(own[0]).to(torch.float64 if wide else kind)
        k, v, theirs = (torch.cat([plain(a[i]) for a in args]) for i in (1, 2, 3))
        scores = q @ k.to(q.dtype).T / math.sqrt(q.shape[1])
        scores = scores.masked_fill(theirs[None] > plain(own[3])[:, None], float("-inf"))
        yield Expected(make(scores, v.to(q.dtype)).to(kind), {}, 2 * right.atol)


def _not_divided(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return (scores - scores.amax(1, keepdim=True)).exp() @ values


def _without_maximum(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    weights = scores.exp()
    return (weights @ values) / weights.sum(1, keepdim=True)


def _with_one_maximum(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return _without_maximum(scores - scores.max(), values)


def _first_sees_nothing(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """No query sees its own key, and zeros stand where a query sees nothing at all."""
    made = attention(setup, args, lambda mine, theirs: theirs < mine)
    return [replace(e, returns=torch.nan_to_num(e.returns)) for e in made]


@oracle_maker
def _not_scaled_again(setup: Setup, args: Sequence[Args], step: int, sum_is: bool = False) -> Iterator[Expected]:
    """Block after block, each with the largest score so far, but what was added before keeps its old scale; `sum_is`: only the output."""
    p = setup.ranks
    for rank, (own, right) in enumerate(zip(args, attention(setup, args), strict=True)):
        q, mine = plain(own[0]).double(), plain(own[3])[:, None]
        top = torch.full((len(q), 1), float("-inf"), dtype=torch.float64)
        out, total = torch.zeros_like(q), torch.zeros(len(q), 1, dtype=torch.float64)
        for i in range(p):
            k, v, theirs = (plain(args[(rank + step * i) % p][j]) for j in (1, 2, 3))
            scores = (q @ k.double().T / math.sqrt(q.shape[1])).masked_fill(theirs[None] > mine, float("-inf"))
            top, before = torch.maximum(top, scores.amax(1, keepdim=True)), top
            weights = (scores - top.clamp(min=-1e300)).exp()
            if sum_is:
                total = total * (before - top.clamp(min=-1e300)).exp()
            out, total = out + weights @ v.double(), total + weights.sum(1, keepdim=True)
        yield Expected((out / total).to(own[0].base.dtype), {}, right.atol)


def _masked_nan(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """NaN in the rows of queries that see nothing of some block: minus infinity minus minus infinity."""
    made = []
    for own, right in zip(args, attention(setup, args), strict=True):
        blind = torch.stack([(plain(a[3])[None] > plain(own[3])[:, None]).all(1) for a in args]).any(0)
        made.append(Expected(right.returns.masked_fill(blind[:, None], float("nan")), {}, right.atol))
    return made


def _no_more_bytes(run: Run) -> str | None:
    """Every rank must send p-1 blocks of keys, values and positions, and no more."""
    block = 2 * rules.nbytes_of(run) + POSITION_NBYTES * run.setup.size
    enough = run.setup.times * (run.ranks - 1) * block
    for rank, sent in enumerate(run.bytes_sent()):
        if sent > enough:
            mine = [e for e in run.sends if e.rank == rank]
            longest = max(mine, key=lambda e: e.nbytes)
            return next(filter(None, (rules.wider(run, e) for e in mine)), None) or About(
                f"rank {rank} sends {sent} bytes{run.at(longest.line)}, but p-1 blocks of keys, values and positions have "
                f"{enough}: pass on the block that you received last, and keep queries and results at home",
                longest,
            )
    return None


def _few_blocks(run: Run) -> str | None:
    """On many ranks no rank may have room for all blocks, or for their scores: not at the end, and not from the beginning."""
    if not run.setup.option("watched", False):
        return None
    block = 2 * rules.nbytes_of(run) + POSITION_NBYTES * run.setup.size
    for rank in range(run.ranks):
        more = max(int.from_bytes(used.data, "big") for used in record.used(run.outcome.router, rank, 0).values())
        if more > ROOM * block:
            mine = [e for e in run.sends if e.rank == rank]
            return About(
                f"rank {rank} holds as many bytes as {more // block} blocks of keys, values and positions beside its arguments at one "
                f"of its sends{run.at(mine[-1].line)}, and room for {ROOM} is enough: merge each block into one summary (maximum, sum, "
                "output) when it comes, and let go of it",
                mine[-1],
                kind="holds all blocks",
            )
    return None


def _case(ranks: int, size: int, order: str = "rank", **more: object) -> Setup:
    return Setup(ranks, size, **more).with_options(order=order)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="ring_attention",
    promise="returns causal attention of this rank's queries over the keys and values of all ranks",
    groups=(
        Group("right attention", 3, (_case(2, 4), _case(3, 2), _case(4, 4))),
        Group("zigzag and other orders", 3, (_case(3, 4, "zigzag"), _case(4, 2, "reversed"), _case(2, 4, "striped"))),
        Group("any rank count", 1, (_case(1, 4), _case(5, 2, "zigzag"), _case(8, 2))),
        Group("many ranks", 2, (_case(9, 2).with_choices(ranks=(9, 11), order=("zigzag", "striped")),)),
        Group("any size", 1, (_case(3, 1), _case(2, 7))),
        Group("a long sequence", 1, (LONG, WIDE)),
        Group("stable", 2, (_case(3, 4, "zigzag").with_options(scale=1000), _case(2, 4).with_options(scale=-1000))),
        Group(
            "any dtype and layout",
            1,
            (
                _case(3, 4, "zigzag", dtype="float64", values="random"),
                _case(2, 4, dtype="bfloat16", values="random"),
                _case(3, 4, layout="transposed"),
                _case(3, 4, layout="strided"),
            ),
        ),
        circumstances(_case(3, 4), delayed=_case(4, 2)),
    ),
    inputs=_inputs,
    labels={
        "scale": "logits times {}",
        "order": "in {} order",
        "watched": "with its memory counted",
        "width": "heads of width {}",
    },
    oracle=attention,
    allow=P2P,
    rules=(
        Rule("ring neighbours only", 4, lambda run: rules.no_messages(run) or rules.ring_neighbours(run)),
        Rule("p-1 blocks of keys and values", 4, _no_more_bytes),
        Rule("merged block by block", 8, _few_blocks),
        # keys, values and positions may be three messages of a step
        rules.in_rounds(lambda p: 3 * (p - 1), "3(p-1)", 5),
        rules.exchanged(rules.times(lambda p: 2 * (p - 1))),
    ),
    blocking_weight=2,
    mistakes={
        "every query sees all keys: it must see only keys whose position is not behind its own": _wrong(
            sees=lambda mine, theirs: torch.ones_like(mine <= theirs)
        ),
        "a query does not see its own key: the key at the query's own position counts too": [
            _wrong(sees=lambda mine, theirs: theirs < mine),
            _wrong(sees=lambda mine, theirs: (theirs < mine) | ((theirs == 0) & (mine == 0))),
            _first_sees_nothing,
        ],
        "the mask is turned round: a query sees keys at its own position and before it, not behind it": _wrong(
            sees=lambda mine, theirs: theirs >= mine
        ),
        "the mask comes from the order of the ranks: a token's place in the sequence is in positions, which "
        "travels with the keys": _wrong(at=_in_parts, own_too=True),
        "the keys of rank r were taken for the r-th part of the sequence: a key's place is in its own rank's "
        "positions, which must travel with the keys": [
            _wrong(at=_in_parts),
            _wrong(at=lambda s, a, rank, other: plain(a[rank][3]) if other == rank else _part(s, other)),
        ],
        "the scores are divided by the root of the number of a rank's tokens: it must be the root of the head's width, "
        "q.shape[-1]": _root_of(lambda s: s.size),
        "the scores are divided by the root of the number of all tokens: it must be the root of the head's width, "
        "q.shape[-1]": _root_of(lambda s: s.ranks * s.size),
        "the scores are not divided by the root of the head's width": _wrong(scaled=lambda width: 1.0),
        "the scores are divided by the head's width: it must be the root of the width": _wrong(
            scaled=lambda width: 1 / width
        ),
        "the blocks' outputs were added, each with a softmax of its own: "
        "merge them with their maxima and sums": _blocks(mean=False),
        "the mean of the blocks' outputs, each with a softmax of its own: "
        "merge them with their maxima and sums": _blocks(mean=True),
        "NaN where a query sees nothing of a block: its maximum there is minus infinity, and minus infinity "
        "minus itself is NaN": _masked_nan,
        "the output was not divided by the sum of the exponentials": [
            _softmaxed(make) for make in (_not_divided, lambda scores, values: scores.exp() @ values)
        ],
        "the softmax is over the queries: for each query it is over the keys, so over the last dimension of its "
        "scores": [
            _softmaxed(make)
            for make in (
                lambda scores, values: torch.softmax(scores, 0) @ values,
                lambda scores, values: torch.nan_to_num(torch.softmax(scores, 0)) @ values,
            )
        ],
        "not stable: exp of large scores is infinite, or all of a row's are zero, so the result is NaN; subtract "
        "the largest score of each query first": [_softmaxed(_without_maximum, wide) for wide in (True, False)],
        "not stable: the largest score of all queries was subtracted, so exp of one query's scores may be zero "
        "for all keys, and the result NaN; subtract the largest score of each query": [
            _softmaxed(_with_one_maximum, wide) for wide in (True, False)
        ],
        "what was added before has the scale of an older maximum: with a new one, multiply output and sum by "
        "exp(old - new)": [_not_scaled_again(step) for step in (-1, 1)],
        "the sum of the exponentials was multiplied by exp(old - new) where the maximum is a new one, but the "
        "output was not": [_not_scaled_again(step, sum_is=True) for step in (-1, 1)],
        "the mask comes from the order in which the blocks came: a key's place in the sequence is in positions, "
        "which travels with the keys": [
            _wrong(at=lambda s, a, rank, other, step=step: _part(s, (other - rank) * step % s.ranks))
            for step in (-1, 1)
        ],
        "every block was masked as if it were at this rank's own positions: those of a block must travel with "
        "its keys": _wrong(at=lambda s, a, rank, other: plain(a[rank][3])),
        "each block was masked with the positions of the block that came before it: exchange keys, values and "
        "positions in the same step": [
            _wrong(
                at=lambda s, a, rank, other, step=step: plain(
                    a[other if other == rank else (other + step) % s.ranks][3]
                )
            )
            for step in (1, -1)
        ],
        "the last block of the ring is missing: p ranks have p blocks, so p-1 steps bring the others": [
            _wrong(keep=lambda rank, other, p, step=step: (other - rank) * step % p != p - 1) for step in (1, -1)
        ],
    },
    unit="token a rank",
    collective="all_gather",
    algorithm="ring",
    comparable=False,
    chunking="rank",
    demo_setup=_case(4, 4, "zigzag"),
    peer_advice="Take the peer's number modulo the number of ranks.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "does not see its own key": lambda setup: setup.option("scale") == -1000,
        "the order in which the blocks came": lambda setup: setup.option("scale") == -1000,
        "were taken for the r-th part": lambda setup: setup.option("scale") == 1000,
        "not divided by the sum": lambda setup: bool(setup.option("scale")),
        "the number of all tokens": lambda setup: setup.dtype == "bfloat16",
        "the scores are not divided by the root": lambda setup: setup.dtype == "bfloat16",
        "divided by the head's width": lambda setup: setup.dtype == "bfloat16",
        "older maximum": lambda setup: setup.ranks < 4,
        "exp(old - new) where": lambda setup: setup.ranks < 4,
    },
)
