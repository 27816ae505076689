"""ring_attention(q, k, v, positions) -> Tensor: causal attention over a sequence that is split over the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import attention_error, known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Peak, Setup, View, draw, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, P2P_ONLY, About, Exercise, Group, Rule, Run
from allranks.ranks.wire import record

WIDTH = 3  # of a head: enough to tell values apart
POSITION_NBYTES = 8
LONG = Setup(
    13, 4, "float64", values="random"
)  # where the blocks of all ranks are far more than a few, and none is too small to be seen
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


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    made: list[Args] = []
    for rank, where in enumerate(places(setup)):
        own = rng.of_rank(rank)
        scale = setup.option("scale", 1)
        tensors = [draw(setup, own, setup.size, WIDTH) for _ in range(3)]
        tensors[0] = tensors[0] * scale
        watched = (Peak(),) if setup.option("watched", False) else ()
        made.append((*(View.of(t, setup.layout) for t in tensors), View.of(torch.tensor(where)), *watched))
    return made


def attention(
    setup: Setup,
    args: Sequence[Args],
    sees: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda mine, theirs: theirs <= mine,
    keep: Callable[[int, int], bool] = lambda rank, other: True,
    scale: float = 1 / math.sqrt(WIDTH),
) -> list[Expected]:
    """Attention of each rank's queries: `sees(positions of queries, of keys)` is the mask, `keep(rank, other)` the blocks."""
    made = []
    for rank, own in enumerate(args):
        others = [a for other, a in enumerate(args) if keep(rank, other)]
        q = plain(own[0]).double()
        k, v = (torch.cat([plain(a[i]) for a in others]).double() for i in (1, 2))
        mine, theirs = plain(own[3])[:, None], torch.cat([plain(a[3]) for a in others])[None, :]
        scores = (q @ k.T * scale).masked_fill(~sees(mine, theirs), float("-inf"))
        kind = own[0].base.dtype
        limit = attention_error(q.abs() @ k.abs().T * scale, scores, v, setup.ranks, kind)
        made.append(Expected((torch.softmax(scores, -1) @ v).to(kind), {}, limit))
    return made


def _scaled_by_root_of(number: Callable[[Setup], int]) -> Oracle:
    return lambda s, a: attention(s, a, scale=1 / math.sqrt(max(number(s), 1)))


def _by_index(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The mask made from the order of ranks, as if rank r held the r-th part of the sequence."""
    straight = places(Setup(setup.ranks, setup.size))
    swapped = [(*a[:3], View.of(torch.tensor(where))) for a, where in zip(args, straight, strict=True)]
    return attention(setup, swapped)


def _placed(at: Callable[[Setup, Sequence[Args], int, int], torch.Tensor]) -> Oracle:
    """Each rank masks the keys of rank `other` with the positions `at(setup, args, rank, other)`; its queries have their own."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        made = []
        for rank, own in enumerate(args):
            blocks = [(*a[:3], View.of(at(setup, args, rank, other))) for other, a in enumerate(args)]
            made += attention(setup, [own, *blocks], keep=lambda _, other: other > 0)[:1]
        return made

    return oracle


def _keys_by_rank(own_too: bool) -> Oracle:
    """The keys of rank r taken for the r-th part of the sequence, the own ones `own_too`."""
    return _placed(
        lambda s, args, rank, other: (
            s.size * other + torch.arange(s.size) if own_too or other != rank else plain(args[rank][3])
        )
    )


def _as_they_came(step: int) -> Oracle:
    """The mask made from the places of the blocks in the order in which they came, the own block first."""
    return _placed(lambda s, args, rank, other: s.size * ((other - rank) * step % s.ranks) + torch.arange(s.size))


def _positions_of(behind: Callable[[int, int, int], int]) -> Oracle:
    """On rank r, the block of each other rank is masked with the positions of rank `behind(r, other, p)`."""
    return _placed(lambda s, args, rank, other: plain(args[behind(rank, other, s.ranks)][3]))


def _block_softmaxes(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The outputs of the blocks added, each with a softmax of its own."""
    made = []
    for own, right in zip(args, attention(setup, args), strict=True):
        parts = []
        for other in range(setup.ranks):
            block = attention(setup, [own, args[other]], keep=lambda r, o, other=other: o == 1)[0]  # type: ignore[misc]
            parts.append(torch.nan_to_num(block.returns.double()))
        made.append(Expected(sum(parts[1:], parts[0]).to(own[0].base.dtype), {}, setup.ranks * right.atol))
    return made


def _mean_of_blocks(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The mean of the outputs of the blocks, each with a softmax of its own."""
    return [Expected(e.returns / setup.ranks, {}, e.atol) for e in _block_softmaxes(setup, args)]


def _softmaxed(make: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], wide: bool = True) -> Oracle:
    """What `make(scores, values)` gives, in float64 or, with `wide` False, in the tensors' own dtype."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        made = []
        for own, right in zip(args, attention(setup, args), strict=True):
            kind = own[0].base.dtype
            q = plain(own[0]).to(torch.float64 if wide else kind)
            k, v, theirs = (torch.cat([plain(a[i]) for a in args]) for i in (1, 2, 3))
            scores = q @ k.to(q.dtype).T / math.sqrt(WIDTH)
            scores = scores.masked_fill(theirs[None] > plain(own[3])[:, None], float("-inf"))
            made.append(Expected(make(scores, v.to(q.dtype)).to(kind), {}, 2 * right.atol))
        return made

    return oracle


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
    return [Expected(torch.nan_to_num(e.returns), {}, e.atol) for e in made]


def _first_sees_itself(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """No query sees its own key, except the one that would see nothing at all."""
    return attention(setup, args, lambda mine, theirs: (theirs < mine) | ((theirs == 0) & (mine == 0)))


def _one_late(step: int) -> Oracle:
    """Each block but the own one is masked with the positions of the block that came before it, in a ring with this step."""
    return _positions_of(lambda rank, other, p: other if other == rank else (other + step) % p)


def _not_scaled_again(step: int, sum_is: bool = False) -> Callable[[Setup, Sequence[Args]], list[Expected]]:
    """Block after block, each with the largest score so far, but what was added before keeps its old scale; `sum_is`: only the output."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        p, made = setup.ranks, []
        for rank, (own, right) in enumerate(zip(args, attention(setup, args), strict=True)):
            q, mine = plain(own[0]).double(), plain(own[3])[:, None]
            top = torch.full((len(q), 1), float("-inf"), dtype=torch.float64)
            out, total = torch.zeros(len(q), WIDTH, dtype=torch.float64), torch.zeros(len(q), 1, dtype=torch.float64)
            for i in range(p):
                k, v, theirs = (plain(args[(rank + step * i) % p][j]) for j in (1, 2, 3))
                scores = (q @ k.double().T / math.sqrt(WIDTH)).masked_fill(theirs[None] > mine, float("-inf"))
                top, before = torch.maximum(top, scores.amax(1, keepdim=True)), top
                weights = (scores - top.clamp(min=-1e300)).exp()
                if sum_is:
                    total = total * (before - top.clamp(min=-1e300)).exp()
                out, total = out + weights @ v.double(), total + weights.sum(1, keepdim=True)
            made.append(Expected((out / total).to(own[0].base.dtype), {}, right.atol))
        return made

    return oracle


def _masked_nan(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """NaN in the rows of queries that see nothing of some block: minus infinity minus minus infinity."""
    made = []
    for own, right in zip(args, attention(setup, args), strict=True):
        blind = torch.stack([(plain(a[3])[None] > plain(own[3])[:, None]).all(1) for a in args]).any(0)
        made.append(Expected(right.returns.masked_fill(blind[:, None], float("nan")), {}, right.atol))
    return made


def _needed(run: Run, call: int, rank: int) -> int:
    """The keys and values of all other ranks, without their positions."""
    return (run.ranks - 1) * 2 * rules.nbytes_of(run, call, rank)


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
        Group("many ranks", 2, (_case(9, 2).with_choices(ranks=(9, 11), order=("rank", "zigzag", "striped")),)),
        Group("any size", 1, (_case(3, 1), _case(2, 7))),
        Group("a long sequence", 1, (LONG.with_options(order="zigzag", watched=True),)),
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
        Group(
            "any circumstances",
            1,
            (_case(3, 4, times=2), _case(3, 4, outer_world=True), _case(4, 2, delivery="shuffled")),
        ),
    ),
    inputs=_inputs,
    labels={"scale": "logits times {}", "order": "in {} order", "watched": "with its memory counted"},
    oracle=attention,
    allow=P2P,
    rules=(
        Rule("ring neighbours only", 4, lambda run: rules.no_messages(run) or rules.ring_neighbours(run)),
        Rule("p-1 blocks of keys and values", 4, _no_more_bytes),
        Rule("merged block by block", 8, _few_blocks),
        # keys, values and positions may be three messages of a step
        rules.in_rounds(lambda p: 3 * (p - 1), "3(p-1)", 5),
        rules.carried(_needed, _needed),
    ),
    blocking_weight=2,
    mistakes=known(
        {
            "every query sees all keys: it must see only keys whose position is not behind its own": lambda s, a: (
                attention(s, a, lambda mine, theirs: torch.ones_like(mine <= theirs))
            ),
            "a query does not see its own key: the key at the query's own position counts too": [
                lambda s, a: attention(s, a, lambda mine, theirs: theirs < mine),
                _first_sees_itself,
                _first_sees_nothing,
            ],
            "the mask is turned round: a query sees keys at its own position and before it, not behind it": lambda s, a: (
                attention(s, a, lambda mine, theirs: theirs >= mine)
            ),
            "the mask comes from the order of the ranks: a token's place in the sequence is in positions, which "
            "travels with the keys": _by_index,
            "the keys of rank r were taken for the r-th part of the sequence: a key's place is in its own rank's "
            "positions, which must travel with the keys": [_keys_by_rank(own_too) for own_too in (True, False)],
            "the scores are divided by the root of the number of a rank's tokens: it must be the root of the head's width, "
            "q.shape[-1]": _scaled_by_root_of(lambda s: s.size),
            "the scores are divided by the root of the number of all tokens: it must be the root of the head's width, "
            "q.shape[-1]": _scaled_by_root_of(lambda s: s.ranks * s.size),
            "attention over this rank's own keys only: the blocks of the other ranks are missing": lambda s, a: (
                attention(s, a, keep=lambda rank, other: rank == other)
            ),
            "the blocks' outputs were added, each with a softmax of its own: "
            "merge them with their maxima and sums": _block_softmaxes,
            "NaN where a query sees nothing of a block: its maximum there is minus infinity, and minus infinity "
            "minus itself is NaN": _masked_nan,
            "the scores are not divided by the root of the head's width": lambda s, a: attention(s, a, scale=1.0),
            "the scores are divided by the head's width: it must be the root of the width": lambda s, a: attention(
                s, a, scale=1 / WIDTH
            ),
            "the mean of the blocks' outputs, each with a softmax of its own: "
            "merge them with their maxima and sums": _mean_of_blocks,
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
            "which travels with the keys": [_as_they_came(step) for step in (-1, 1)],
            "every block was masked as if it were at this rank's own positions: those of a block must travel with "
            "its keys": _positions_of(lambda rank, other, p: rank),
            "each block was masked with the positions of the block that came before it: exchange keys, values and "
            "positions in the same step": [_one_late(step) for step in (1, -1)],
            "the last block of the ring is missing: p ranks have p blocks, so p-1 steps bring the others": [
                lambda s, a: attention(s, a, keep=lambda rank, other: (rank - other) % s.ranks != s.ranks - 1),
                lambda s, a: attention(s, a, keep=lambda rank, other: (other - rank) % s.ranks != s.ranks - 1),
            ],
        }
    ),
    unit="token a rank",
    collective="all_gather",
    algorithm="ring",
    comparable=False,
    chunking="rank",
    demo_setup=_case(4, 4, "zigzag"),
    forbidden_advice=P2P_ONLY,
    peer_advice="Take the peer's number modulo the number of ranks.",
)
