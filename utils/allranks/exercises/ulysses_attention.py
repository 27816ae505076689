"""ulysses_attention(q, k, v) -> Tensor: causal attention of many heads; an all-to-all turns split tokens into split heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import torch

from allranks.exercises.families import attention_error, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

WIDTH = 2  # of a head


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    heads = setup.option("heads_a_rank", 1) * setup.ranks
    shape = (setup.size, heads, WIDTH)
    return [
        tuple(View.of(draw(setup, rng.of_rank(rank), *shape), setup.layout) for _ in range(3))
        for rank in range(setup.ranks)
    ]


def _atol(kind: torch.dtype) -> float:
    return {torch.float64: 1e-10, torch.bfloat16: 1.5e-1, torch.float16: 3e-2}.get(kind, 2e-4)


def _oracle(
    setup: Setup,
    args: Sequence[Args],
    causal: bool = True,
    scale: float = 1 / math.sqrt(WIDTH),
    place: Callable[[torch.Tensor], torch.Tensor] = lambda index: index,
    dim: int = -1,
    masked_late: bool = False,
    hides: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.gt,
) -> list[Expected]:
    """Attention of every head over the whole sequence, cut back into the ranks' tokens; `place` is for the mask, `dim` the softmax's.

    `masked_late`: the weights of later tokens set to zero after the softmax. `hides` says of a key's and a query's place whether the mask
    hides the key."""
    kind, n = args[0][0].base.dtype, setup.size
    q, k, v = (torch.cat([plain(a[i]) for a in args]).double().transpose(0, 1) for i in range(3))
    scores = q @ k.transpose(1, 2) * scale
    weights = torch.softmax(scores, dim)
    if causal:
        where = place(torch.arange(scores.shape[1]))
        later = hides(where[None, :], where[:, None])
        weights = (
            weights.masked_fill(later, 0)
            if masked_late
            else torch.softmax(scores.masked_fill(later, float("-inf")), dim)
        )
    whole = (weights @ v).transpose(0, 1).to(kind)
    sizes = q.abs() @ k.abs().transpose(1, 2) * scale
    limit = attention_error(sizes, scores.masked_fill(later, float("-inf")) if causal else scores, v, 1, kind)
    limit = limit.transpose(0, 1).clamp(min=_atol(kind))
    rows = [slice(r * n, (r + 1) * n) for r in range(setup.ranks)]
    return [Expected(whole[mine].contiguous(), {}, limit[mine].contiguous()) for mine in rows]


_wrong = oracle_maker(_oracle)


@oracle_maker
def _root_of(setup: Setup, args: Sequence[Args], number: Callable[[Setup], int]) -> list[Expected]:
    """The scores divided by the root of another number than the head's width."""
    return _oracle(setup, args, scale=1 / math.sqrt(number(setup)))


def _first_sees_nothing(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """No token sees itself, and the first one, which sees nothing, gets zeros."""
    made = _oracle(setup, args, hides=torch.ge)
    return [Expected(e.returns.nan_to_num(0.0), {}, torch.as_tensor(e.atol).nan_to_num(0.0)) for e in made]


def _heads(setup: Setup) -> int:
    return setup.ranks * int(setup.option("heads_a_rank", 1))


def _interleaved(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The heads put together in the wrong order: head i of each rank side by side."""
    share, p = setup.option("heads_a_rank", 1), setup.ranks
    order = [r * share + i for i in range(share) for r in range(p)]
    return [
        Expected(e.returns[:, order].contiguous(), {}, torch.as_tensor(e.atol)[:, order].contiguous())
        for e in _oracle(setup, args)
    ]


@oracle_maker
def _as_it_lies(setup: Setup, args: Sequence[Args], there: bool, back: bool) -> list[Expected]:
    """The tensors cut into p pieces as they lie in memory, which are tokens: on the way there, on the way back, or on both."""
    p, n, share = setup.ranks, setup.size, setup.option("heads_a_rank", 1)
    pieces, tokens = (p, n, share, WIDTH), (n, p, share, WIDTH)
    if there:
        mixed = [[plain(x).reshape(pieces).transpose(0, 1).reshape(n, -1, WIDTH) for x in given] for given in args]
        args = [tuple(View.of(x.contiguous()) for x in given) for given in mixed]
    made = _oracle(setup, args)
    if back:
        lies = [
            [t.reshape(tokens).transpose(0, 1).reshape(n, -1, WIDTH) for t in (e.returns, torch.as_tensor(e.atol))]
            for e in made
        ]
        made = [Expected(x.contiguous(), {}, off.contiguous()) for x, off in lies]
    return made


@oracle_maker
def _over_heads(setup: Setup, args: Sequence[Args], causal: bool) -> Iterator[Expected]:
    """Each token's heads of one rank attend to each other, as if the heads were the sequence."""
    n, share = setup.size, setup.option("heads_a_rank", 1)
    for own in args:
        q, k, v = (plain(x).double().reshape(n, setup.ranks, share, WIDTH) for x in own)
        result = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        kind = own[0].base.dtype
        yield Expected(result.reshape(n, -1, WIDTH).to(kind), {}, _atol(kind))


def _four_small(run: Run) -> str | None:
    """Queries, keys, values and results: each rank sends (p-1)/p of each, and no more."""
    p, nbytes = run.ranks, rules.nbytes_of(run)
    enough = 4 * nbytes * (p - 1) // p
    for call in range(run.setup.times):
        for rank, row in enumerate(rules.between(run, call)):
            sent = sum(n for peer, n in enumerate(row) if peer != rank)
            if sent > enough:
                worst = max((e for e in run.collectives if e.rank == rank), key=lambda e: e.nbytes)
                return rules.wider(run, worst) or About(
                    f"rank {rank} sends {sent} bytes{run.at(worst.line)}, but queries, keys, values and results need only "
                    f"4 (p-1)/p n = {enough}: each rank needs its own heads of the others' tokens, no more",
                    worst,
                )
    return None


def _case(ranks: int, size: int, heads: int = 1, **more: object) -> Setup:
    return Setup(ranks, size, **more).with_options(heads_a_rank=heads)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="ulysses_attention",
    promise="returns causal attention of this rank's tokens over the whole sequence, in every head",
    groups=(
        Group("right attention", 3, (_case(2, 3), _case(3, 2), _case(4, 2))),
        Group("several heads a rank", 3, (_case(2, 3, 2), _case(3, 2, 3))),
        Group("any rank count", 1, (_case(1, 4, 2), _case(5, 2), _case(8, 1))),
        Group("many ranks", 2, (_case(9, 1).with_choices(ranks=(9, 11), heads_a_rank=(2, 3)),)),
        Group("any size", 1, (_case(3, 1, 2), _case(2, 7))),
        Group(
            "any dtype and layout",
            1,
            (
                _case(3, 2, 2, dtype="float64", values="random"),
                _case(2, 4, dtype="bfloat16", values="random"),
                _case(3, 2, 2, layout="strided"),
                _case(2, 3, 2, layout="transposed"),
            ),
        ),
        circumstances(_case(3, 2, 2), job=_case(3, 2)),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(
        Rule("4 (p-1)/p of the bytes", 6, lambda run: rules.no_messages(run) or _four_small(run)),
        rules.exchanged(rules.times(lambda p: Fraction(4 * (p - 1), p))),
    ),
    mistakes={
        "every token sees all tokens: it must see only those that are not behind it": _wrong(causal=False),
        "a token does not see itself: the key at the query's own place counts too": [
            _wrong(hides=torch.ge),
            _wrong(hides=lambda key, query: (key >= query) & (query > 0) | (key > query)),
            _first_sees_nothing,
        ],
        "the mask has a token's place on its own rank: it needs the place in the whole sequence, and rank 0 has "
        "the beginning": lambda s, a: _oracle(s, a, place=lambda index: index % s.size),
        "the scores are divided by the head's width: it must be the root of the width": _wrong(scale=1 / WIDTH),
        "the scores are not divided by the root of the head's width": _wrong(scale=1.0),
        **{
            f"the scores are divided by the root of {what}: it must be the root of a head's width, q.shape[-1]": _root_of(
                number
            )
            for what, number in (
                ("the width of all heads together", lambda s: WIDTH * _heads(s)),
                ("the width of all heads of a rank together", lambda s: WIDTH * _heads(s) // s.ranks),
                ("the number of heads", _heads),
                ("the number of a rank's tokens", lambda s: s.size),
                ("the number of all tokens", lambda s: s.ranks * s.size),
            )
        },
        "the mask came after the softmax, so that the weights of one query no longer add up to 1: set the scores "
        "of later tokens to minus infinity before the softmax": _wrong(masked_late=True),
        "the softmax is over the queries: the weights of one query, over all keys, must add up to 1, so take "
        "dim=-1 of scores (queries, keys)": _wrong(dim=-2),
        "the heads come back in the wrong order: a rank's heads lie side by "
        "side, not one of each rank in turn": _interleaved,
        "tokens and heads were mixed on the way there: a tensor (tokens, heads, width) that is cut into p pieces "
        "as it lies in memory gives each rank some tokens; make it (p, tokens, heads a rank, width) by reshape "
        "and transpose first": _as_it_lies(True, False),
        "tokens and heads were mixed on the way back: the pieces of the ranks lie one behind the other, (p, "
        "tokens, heads a rank, width); transpose to (tokens, p, heads "
        "a rank, width) before the reshape": _as_it_lies(False, True),
        "tokens and heads were mixed on both ways: pieces of a tensor (tokens, heads, width) as it lies in "
        "memory are tokens, not heads; reshape and transpose "
        "before and after an all-to-all": _as_it_lies(True, True),
        "the attention is over the heads: it must be over the tokens of each head, so transpose to (heads, "
        "tokens, width) first": [_over_heads(causal) for causal in (True, False)],
    },
    unit="token a rank",
    collective="all_to_all",
    demo_setup=_case(4, 2),
    forbidden_advice="all_to_all or all_to_all_single is all that it needs: tokens of all heads become all tokens of some heads, and back.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "the scores are not": lambda setup: True,
        "the scores are divided by the head's": lambda setup: True,
        "the width of all heads together": lambda setup: True,
        "the scores are divided by the root of the number of a rank's": lambda setup: setup.size in (1, 3, 4),
    },
)
