"""moe_top_k(tokens, experts, weights, expert_fns) -> Tensor: each token to k experts, one copy a rank, weighted sum back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from allranks.exercises.families import experts, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Function, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances, layouts
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.ranks.wire import LogEntry

WIDTH = 16  # of a token: a second copy of one must cost more than its experts' numbers and weights
MOST_CALLS = 8  # counts, tokens, experts, weights and results, each in a call of its own, and room for more
_NUMBER_NBYTES = 8  # of an expert's number, or of a weight, in the widest dtype

FINE_WEIGHTS = (
    "weights with many digits"  # all else is exact in bfloat16, and a token has one expert: no sum is rounded
)

Place = Callable[[int], tuple[int, int] | None]  # of an expert by its number: its rank, and which one there


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    k, local = setup.option("k", 2), setup.option("experts_a_rank", 2)
    places = rng.permutation(setup.ranks * local)
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        count = setup.size + (rank * setup.option("spread", 0)) % 4
        exact = setup.option("case") == FINE_WEIGHTS
        tokens = draw(replace(setup, values="small" if exact else "random"), own, count, WIDTH, most=3)
        experts = _routed(setup, count, own)
        weights = (0.1 + own.uniform(count, k)).float()  # not normalised: some routers' are not
        if exact:  # nearly half a step above what bfloat16 holds
            weights = weights.bfloat16().float() * (1 + 0.45 / 128)
        fns = [
            Function(1.5 + own.integer(0, 32) / 4, 4.0 * (places[rank * local + i] + 1) + own.integer(0, 8) / 4)
            for i in range(local)
        ]
        yield (*(View.of(t, setup.layout) for t in (tokens, experts, weights)), fns)


def _routed(setup: Setup, count: int, rng: Draws) -> torch.Tensor:
    """k different experts for each token. Every other token has two of them on one rank, as far as there are two."""
    k, local = setup.option("k", 2), setup.option("experts_a_rank", 2)
    to, rows = setup.option("all_on"), []
    for i in range(count):
        if to is not None:
            chosen = [to * local + e for e in rng.permutation(local)[:k]]
        else:
            chosen = rng.permutation(setup.ranks * local)[:k]
            mate = chosen[0] // local * local + (chosen[0] + 1) % local
            if i % 2 == 0 and k > 1 and mate not in chosen:
                chosen[1] = mate
        rows.append(chosen)
    return torch.tensor(rows, dtype=torch.int64).reshape(count, k)


class _Token:
    """One token of a rank: its row, the numbers of its experts and their weights; all ranks' arguments are at hand."""

    def __init__(self, args: Sequence[Args], rank: int, row: torch.Tensor, experts: list[int], weights: torch.Tensor):
        self.args, self.rank, self.row, self.experts, self.weights = args, rank, row, experts, weights.double()
        self.local, self.ranks = len(args[0][3]), len(args)
        self.homes = [e // self.local for e in experts]

    def part(self, home: int, which: int, row: torch.Tensor | None = None) -> torch.Tensor:
        """What expert `which` of rank `home` makes of the token, or of another row."""
        return self.args[home][3][which](self.row if row is None else row).double()

    def sum(self, weights: torch.Tensor | None = None, at: Place | None = None) -> torch.Tensor:
        """The weighted sum over the token's choices, of the experts at `at(e)`, a (rank, index); None adds nothing."""
        places = [divmod(e, self.local) if at is None else at(e) for e in self.experts]
        parts = zip(places, self.weights if weights is None else weights, strict=True)
        return sum((w * self.part(*place) for place, w in parts if place), torch.zeros(WIDTH, dtype=torch.float64))

    def some(self, choices: Collection[int]) -> torch.Tensor:
        """The weighted sum over some of the choices."""
        return self.sum(torch.stack([w * (j in choices) for j, w in enumerate(self.weights)]))


@oracle_maker
def _each(
    setup: Setup, args: Sequence[Args], make: Callable[[_Token], torch.Tensor], looser: int = 1, least_k: int = 1
) -> Iterator[Expected]:
    """What each rank returns where `make` computes one token's row; with fewer than `least_k` choices it is no mistake."""
    kind = args[0][0].base.dtype
    if setup.option("k", 2) < least_k:
        raise ValueError("a token has too few choices")
    for rank, a in enumerate(args):
        given, experts, weights = (plain(x) for x in a[:3])
        tokens = [_Token(args, rank, *one) for one in zip(given, experts.tolist(), weights, strict=True)]
        rows = [make(token).double() for token in tokens]
        sizes = [
            sum(w * t.part(*divmod(e, t.local)).abs() for e, w in zip(t.experts, t.weights, strict=True))
            for t in tokens
        ]
        most = max((float(size.max()) for size in sizes), default=0.0)
        atol: Any = most * torch.finfo(kind).eps * (2 + setup.option("k", 2)) * looser
        if rows and setup.option("case") == FINE_WEIGHTS:
            atol = _one_rounding(torch.stack(rows), kind)
        yield Expected(torch.stack(rows).to(kind) if rows else given.clone(), {}, atol)


def _one_rounding(exact: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """How far right results in `kind` may be apart: not at all, but where `exact` is so near to a tie that either side is right."""
    low, high = ((exact * (1 + off)).to(kind).double() for off in (-1e-6, 1e-6))
    return (high - low).abs()


_oracle = _each(lambda t: t.sum())


def _rounded_weights(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The weights in the tokens' dtype, which holds fewer digits."""
    kind = args[0][0].base.dtype
    if torch.finfo(kind).eps <= torch.finfo(torch.float32).eps:
        raise ValueError("it holds them")
    return list(_each(lambda t: t.sum(t.weights.to(kind).double()))(setup, args))


def _sent_by_modulo(t: _Token, home: int) -> bool:
    """Whether rank `home` gets the token from whoever sends it to rank e % p."""
    return home in {e % t.ranks for e in t.experts}


def _weighted_by_rank(t: _Token) -> torch.Tensor:
    """The unweighted sum of a rank's experts, times the sum of their weights."""
    of = {home: t.weights[[j for j, h in enumerate(t.homes) if h == home]].sum() for home in t.homes}
    return t.sum(torch.stack([of[home] for home in t.homes]))


def _all_on_each_rank(t: _Token) -> torch.Tensor:
    """Each rank that has one of a token's experts takes all k of its choices for experts of its own."""
    return sum((t.sum(at=lambda e, r=r: (r, e % t.local)) for r in set(t.homes)), torch.zeros(WIDTH))  # type: ignore[misc]


def _weighted_before(t: _Token) -> torch.Tensor:
    rows = [(w * t.row).to(t.row.dtype) for w in t.weights]
    return torch.stack([t.part(*divmod(e, t.local), row) for e, row in zip(t.experts, rows, strict=True)]).sum(0)


@oracle_maker
def _misplaced(setup: Setup, args: Sequence[Args], sent: bool) -> Iterator[Expected]:
    """The rows lay by token where they had to lie by rank, when they were `sent`, or when they were added."""
    for rank, (right, a, homes) in enumerate(zip(_oracle(setup, args), args, _copies(args), strict=True)):
        tokens, experts, weights = (plain(x) for x in a[:3])
        total = torch.zeros(tokens.shape, dtype=torch.float64)
        by_rank = [(peer, i) for peer, needed in enumerate(homes) for i in sorted(needed)]
        for at, (peer, i) in zip(sorted(i for _, i in by_rank), by_rank, strict=True):
            token = at if sent else i
            t = _Token(args, rank, tokens[token], experts[token].tolist(), weights[token])
            total[at] += t.some([j for j, home in enumerate(t.homes) if home == peer])
        yield Expected(total.to(tokens.dtype), {}, right.atol * 2 * setup.option("k", 2))


def _first_on_each(t: _Token) -> list[int]:
    return [j for j, home in enumerate(t.homes) if home not in t.homes[:j]]


def _last_on_each(t: _Token) -> list[int]:
    return [j for j, home in enumerate(t.homes) if home not in t.homes[j + 1 :]]


def _copies(args: Sequence[Args]) -> list[list[set[int]]]:
    """Which tokens each rank needs of each other one: [sender][receiver]."""
    local, ranks = len(args[0][3]), len(args)
    return [
        [
            {i for i, row in enumerate(plain(a[1]).tolist()) if any(e // local == peer for e in row)}
            for peer in range(ranks)
        ]
        for a in args
    ]


def _row_nbytes(run: Run) -> int:
    return WIDTH * run.itemsize


def _both_ways(run: Run) -> str | None:
    """What two ranks exchange must have room for each token once, and for one result of each."""
    return experts.not_there_and_back(
        run,
        lambda args: [[len(some) for some in row] for row in _copies(args)],
        _row_nbytes(run),
        "its tokens for that rank",
    )


def _one_copy(run: Run) -> str | None:
    """No token may go to a rank that has none of its experts, nor twice to the same rank; a rank gives one sum back."""
    for call, args in enumerate(run.args):
        copies = _copies(args)
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            if len(mine) > MOST_CALLS:
                return About(
                    f"rank {rank} calls {mine[-1].called} {len(mine)} times{run.at(mine[-1].line)}, but {MOST_CALLS} calls are "
                    "enough for any number of tokens and experts",
                    mine[-1],
                )
            if broken := _misled(run, rank, copies[rank], plain(args[rank][0]), mine):
                return broken
        if broken := _too_much(run, call, copies):
            return broken
    return None


def _misled(run: Run, rank: int, copies: list[set[int]], tokens: torch.Tensor, entries: list[LogEntry]) -> str | None:
    """The first message that carries a token to a rank that does not need it, or for the second time."""
    seen: Counter[tuple[int, int]] = Counter()
    for entry in entries:
        for token, peer, found in experts.carried(entry, tokens):
            seen[token, peer] += found
            if peer == rank:
                continue
            words = f"rank {rank} sends token {token}"
            if found and token not in copies[peer]:
                why = "which has none of its experts: each token goes to the ranks of its experts, and nowhere else"
                return About(f"{words} to rank {peer}{run.at(entry.line)}, {why}", entry)
            if seen[token, peer] > 1:
                why = "two of its experts are there, but one copy of the token is enough for both"
                return About(f"{words} {_times(seen[token, peer])} to rank {peer}{run.at(entry.line)}: {why}", entry)
    return None


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _too_much(run: Run, call: int, copies: list[list[set[int]]]) -> str | None:
    """Beside one row each way, a copy may carry k experts' numbers and k weights."""
    row, k = _row_nbytes(run), run.setup.option("k", 2)
    for rank, sent in enumerate(rules.between(run, call)):
        for peer, nbytes in enumerate(sent):
            out, back = len(copies[rank][peer]), len(copies[peer][rank])
            most = out * (row + 2 * _NUMBER_NBYTES * k) + back * row + 8 * _NUMBER_NBYTES
            if rank != peer and nbytes > most:
                return (
                    f"rank {rank} sends {nbytes} bytes to rank {peer}, but {out} tokens with their experts and weights, and one "
                    f"row back for each of {back}, need {most} at most: send each token once to a rank, and add up the "
                    "weighted results of its experts there before they go back"
                )
    return None


def _case(ranks: int, size: int, k: int = 2, local: int = 2, dtype: str = "float32", **more: object) -> Setup:
    options = {name: more.pop(name) for name in ("all_on", "spread", "case") if name in more}
    setup = Setup(ranks, size, dtype, **more)  # type: ignore[arg-type]
    return setup.with_options(k=k, experts_a_rank=local, **options)


EXERCISE = Exercise(
    name="moe_top_k",
    promise="returns for each token the weighted sum of what its k experts make of it, in the order of tokens",
    groups=(
        Group("right sums", 3, (_case(2, 4), _case(3, 5), _case(4, 4))),
        Group("any k", 2, (_case(3, 4, k=1), _case(3, 4, k=3), _case(2, 3, k=4), _case(3, 3, k=3, local=3))),
        Group("one expert a rank", 1, (_case(3, 4, local=1), _case(4, 3, k=3, local=1))),
        Group("any rank count", 1, (_case(1, 4), _case(5, 4), _case(8, 3))),
        Group("many ranks", 2, (_case(9, 5).with_choices(ranks=(9, 11), size=(5, 7), k=(2, 3)),)),
        Group("any routing", 2, (_case(3, 4, all_on=0), _case(3, 4, k=3, local=3, all_on=2), _case(4, 1), _case(8, 1))),
        Group(
            "any number of tokens",
            2,
            (_case(3, 0), _case(4, 0, spread=2, all_on=1), _case(4, 1, spread=1), _case(3, 13)),
        ),
        Group(
            "any dtype",
            1,
            (
                _case(3, 4, dtype="float64"),
                _case(3, 4, dtype="bfloat16"),
                _case(3, 4, 1, 2, "bfloat16", case=FINE_WEIGHTS),
            ),
        ),
        layouts(_case(3, 4), "strided", "transposed"),
        circumstances(_case(3, 4)),
    ),
    inputs=_inputs,
    labels={"case": "{}", "spread": "more on some ranks", "all_on": "all on rank {}"},
    oracle=_oracle,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(
        rules.in_dtype(0, 2, whole=True),
        Rule("each token to its experts and back", 1, _both_ways, essential=True),
        Rule("one copy a rank, one sum back", 8, _one_copy),
    ),
    mistakes={
        "the results were added without their weights": _each(lambda t: t.sum(torch.ones_like(t.weights))),
        "the mean of the experts' results: multiply each by its own weight, and add": _each(
            lambda t: t.sum(torch.full_like(t.weights, 1 / len(t.weights)))
        ),
        "each result has the weight of the token's first expert: weights has a column for each choice": _each(
            lambda t: t.sum(t.weights[:1].expand_as(t.weights))
        ),
        "the results of a rank's experts were added, and their sum multiplied by the sum of their weights: "
        "multiply each result by its own weight, then add": _each(_weighted_by_rank, looser=2),
        "only the experts of rank 0 have computed: a number in experts counts all experts, and expert e is "
        "expert_fns[e % L] on rank e // L, where L = len(expert_fns)": _each(
            lambda t: t.sum(at=lambda e: (0, e) if e < t.local else None)
        ),
        "expert e was taken to be expert_fns[e % p]: it is expert_fns[e % L] on rank e // L, where L = "
        "len(expert_fns)": _each(
            lambda t: t.sum(at=lambda e: (e // t.local, e % t.ranks) if e % t.ranks < t.local else None)
        ),
        "expert e was looked for on rank e % p: it is on rank e // L, where L = len(expert_fns)": _each(
            lambda t: t.sum(at=lambda e: divmod(e, t.local) if _sent_by_modulo(t, e // t.local) else None)
        ),
        "the weights were divided by their sum: weights are what the router gave, use them as they are": _each(
            lambda t: t.sum(t.weights / t.weights.sum())
        ),
        "each token got only one of its experts: experts has k columns": _each(lambda t: t.some([0])),
        "of two experts on one rank only one has computed the token: its one copy needs both experts' numbers "
        "and weights": [_each(lambda t: t.some(_first_on_each(t))), _each(lambda t: t.some(_last_on_each(t)))],
        "the weights were rounded to the tokens' dtype: weights are float32, use them as they are, and send "
        "them as float32": _rounded_weights,
        "the token itself was added: the result is only what its experts make of it": _each(
            lambda t: t.sum() + t.row.double()
        ),
        "each result has the sum of all of the token's weights: multiply what an expert returns by its own "
        "weight": _each(lambda t: t.sum(t.weights.sum().expand_as(t.weights)), looser=3, least_k=2),
        "where several of a token's experts are on one rank, their sum was added that many times: one copy "
        "goes there, and one sum comes back": _each(
            lambda t: t.sum(torch.tensor([t.homes.count(h) for h in t.homes]) * t.weights), looser=2
        ),
        "the sums were added to the tokens in their order: they come back by rank, in the order in which the "
        "tokens were sent": _misplaced(sent=False),
        "the copies lie in the order of the tokens, but the splits count them by rank: put those for rank 0 "
        "first, then those for rank 1, and so on": _misplaced(sent=True),
        "only the first expert of each rank has computed: expert e is expert_fns[e % L] on rank e // L, where "
        "L = len(expert_fns)": _each(lambda t: t.sum(at=lambda e: None if e % t.local else (e // t.local, 0))),
        "every token was computed by the first expert of its experts' ranks: expert e is expert_fns[e % L] "
        "there": _each(lambda t: t.sum(at=lambda e: (e // t.local, 0))),
        "a token's sums of several ranks were stored one over the other: add them": _each(
            lambda t: t.some([j for j, home in enumerate(t.homes) if home == max(t.homes)])
        ),
        "a result has the weight of another of the token's experts": _each(
            lambda t: t.sum(t.weights.flip(0)), least_k=2
        ),
        "the token was multiplied by the weight before its expert computed it: multiply what the expert returns": _each(
            _weighted_before
        ),
        "the experts are in other places: expert e is expert_fns[e % L] on rank e // L, where L = "
        "len(expert_fns)": _each(lambda t: t.sum(at=lambda e: (e % t.ranks, e // t.ranks))),
        "every token was computed by its own rank's experts: it must travel to its experts' ranks": _each(
            lambda t: t.sum(at=lambda e: (t.rank, e % t.local))
        ),
        "a rank computed experts of other ranks too: of a token's k choices only those with e // L equal to its "
        "rank are its own": _each(_all_on_each_rank),
    },
    unit="token a rank",
    collective="all_to_all",
    demo_setup=_case(4, 3),
    forbidden_advice="It needs all_to_all (or all_to_all_single) only.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "expert_fns[e % p]": lambda setup: setup.size == 1,
        "computed by its own rank's experts": lambda setup: setup.size == 1,
        "on rank e % p": lambda setup: setup.size == 1 or (setup.ranks == 2 and setup.option("k") == 2),
    },
)
