"""moe_top_k(tokens, experts, weights, expert_fns) -> Tensor: each token to k experts, one copy a rank, weighted sum back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from allranks.judge import provenance, rules
from allranks.judge.cases import Args, Expected, Function, Setup, View, draw, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Mistake, Rule, Run
from allranks.ranks.wire import LogEntry

WIDTH = 16  # of a token: a second copy of one must cost more than its experts' numbers and weights
MOST_CALLS = 8  # counts, tokens, experts, weights and results, each in a call of its own, and room for more
_NUMBER_NBYTES = 8  # of an expert's number, or of a weight, in the widest dtype

FINE_WEIGHTS = (
    "weights with many digits"  # all else is exact in bfloat16, and a token has one expert: no sum is rounded
)

Weighting = Callable[[torch.Tensor], torch.Tensor]
Made = Callable[[int, torch.Tensor, list[int], torch.Tensor], torch.Tensor]  # (rank, token, experts, weights)


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    made: list[Args] = []
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
        made.append((*(View.of(t, setup.layout) for t in (tokens, experts, weights)), fns))
    return made


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


def _per_token(setup: Setup, args: Sequence[Args], made: Made) -> list[Expected]:
    """What each rank returns where `made` computes one token's row."""
    kind, expected = args[0][0].base.dtype, []
    for rank, a in enumerate(args):
        tokens, experts, weights = (plain(x) for x in a[:3])
        rows, sizes = [], []
        for token, chosen, scale in zip(tokens, experts.tolist(), weights, strict=True):
            rows.append(made(rank, token, chosen, scale).double())
            parts = [w * _computed(args, e, token).double().abs() for e, w in zip(chosen, scale.double(), strict=True)]
            sizes.append(torch.stack(parts).sum(0))
        result = torch.stack(rows).to(kind) if rows else tokens.clone()
        most = max((float(size.max()) for size in sizes), default=0.0)
        atol: Any = most * torch.finfo(kind).eps * (2 + setup.option("k", 2))
        if rows and setup.option("case") == FINE_WEIGHTS:
            atol = _one_rounding(torch.stack(rows), kind)
        expected.append(Expected(result, {}, atol))
    return expected


def _one_rounding(exact: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """How far right results in `kind` may be apart: not at all, but where `exact` is so near to a tie that either side is right."""
    low, high = ((exact * (1 + off)).to(kind).double() for off in (-1e-6, 1e-6))
    return (high - low).abs()


def _computed(args: Sequence[Args], expert: int, token: torch.Tensor) -> torch.Tensor:
    rank, which = divmod(expert, len(args[0][3]))
    return args[rank][3][which](token)


def _oracle(
    setup: Setup,
    args: Sequence[Args],
    weighting: Weighting = lambda weights: weights,
    chosen: Callable[[list[int]], list[int]] = lambda experts: list(range(len(experts))),
) -> list[Expected]:
    """The weighted sum over a token's experts; `chosen` says which of its choices take part."""

    def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
        scale = weighting(weights.double())
        return torch.stack([scale[j] * _computed(args, experts[j], token).double() for j in chosen(experts)]).sum(0)

    return _per_token(setup, args, made)


def _by(computed: Callable[[Sequence[Args], int, int, torch.Tensor], torch.Tensor]) -> Callable:
    """The weighted sum of what `computed(args, rank, expert, token)` makes."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
            parts = [
                w * computed(args, rank, e, token).double() for e, w in zip(experts, weights.double(), strict=True)
            ]
            return torch.stack(parts).sum(0)

        return _per_token(setup, args, made)

    return oracle


def _striped(args: Sequence[Args], rank: int, expert: int, token: torch.Tensor) -> torch.Tensor:
    where, which = expert % len(args), expert // len(args)
    return args[where][3][which](token)


def _at_home(args: Sequence[Args], rank: int, expert: int, token: torch.Tensor) -> torch.Tensor:
    return args[rank][3][expert % len(args[rank][3])](token)


def _all_on_each_rank(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each rank that has one of a token's experts takes all k of its choices for experts of its own."""
    local = len(args[0][3])

    def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
        ranks = {e // local for e in experts}
        pairs = [(args[r][3][e % local], w) for r in ranks for e, w in zip(experts, weights.double(), strict=True)]
        return torch.stack([w * fn(token).double() for fn, w in pairs]).sum(0)

    return _per_token(setup, args, made)


def _weighted_before(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
        return torch.stack(
            [
                _computed(args, e, (w * token).to(token.dtype)).double()
                for e, w in zip(experts, weights.double(), strict=True)
            ]
        ).sum(0)

    return _per_token(setup, args, made)


def _rounded_weights(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The weights in the tokens' dtype, which holds fewer digits."""
    kind = args[0][0].base.dtype
    if torch.finfo(kind).eps <= torch.finfo(torch.float32).eps:
        raise ValueError("it holds them")
    return _oracle(setup, args, lambda weights: weights.to(kind).double())


def _with(
    own: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Setup, Sequence[Args]], list[Expected]]:
    """The right sum as `own(sum, token)` changes it."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        made = []
        for right, a in zip(_oracle(setup, args), args, strict=True):
            changed = own(right.returns.double(), plain(a[0]).double())
            made.append(Expected(changed.to(right.returns.dtype), {}, right.atol))
        return made

    return oracle


def _common_weight(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each expert's result with the sum of the token's weights."""
    if setup.option("k", 2) < 2:
        raise ValueError("there is one weight")
    right = _oracle(setup, args, lambda weights: weights.sum().expand_as(weights))
    atol = [(1 + setup.option("k", 2)) * r.atol for r in _oracle(setup, args)]
    return [Expected(r.returns, {}, a) for r, a in zip(right, atol, strict=True)]


def _as_often_as_chosen(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """A rank's sum counts as often as the rank has experts of the token."""
    local = len(args[0][3])

    def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
        homes = [e // local for e in experts]
        parts = [w * _computed(args, e, token).double() for e, w in zip(experts, weights.double(), strict=True)]
        return torch.stack([homes.count(home) * part for home, part in zip(homes, parts, strict=True)]).sum(0)

    expected = _per_token(setup, args, made)
    return [Expected(e.returns, {}, setup.option("k", 2) * e.atol) for e in expected]


def _added_by_token(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The rows came back by rank, then by token, and were added to the tokens in their order."""
    local, made = len(args[0][3]), []
    for right, a, homes in zip(_oracle(setup, args), args, _copies(args), strict=True):
        tokens, experts, weights = (plain(x) for x in a[:3])
        total = torch.zeros(tokens.shape, dtype=torch.float64)
        sent = [(peer, i) for peer, needed in enumerate(homes) for i in sorted(needed)]
        for at, (peer, i) in zip(sorted(i for _, i in sent), sent, strict=True):
            for e, w in zip(experts[i].tolist(), weights[i].double(), strict=True):
                if e // local == peer:
                    total[at] += w * _computed(args, e, tokens[i]).double()
        made.append(Expected(total.to(tokens.dtype), {}, right.atol * 2 * setup.option("k", 2)))
    return made


def _sent_by_token(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The copies lay in the order of the tokens, but were cut by how many each rank needs; each came back to its own token."""
    local, made = len(args[0][3]), []
    for right, a, homes in zip(_oracle(setup, args), args, _copies(args), strict=True):
        tokens, experts, weights = (plain(x) for x in a[:3])
        total = torch.zeros(tokens.shape, dtype=torch.float64)
        peers = [peer for peer, needed in enumerate(homes) for _ in needed]
        for i, peer in zip(sorted(i for needed in homes for i in needed), peers, strict=True):
            for e, w in zip(experts[i].tolist(), weights[i].double(), strict=True):
                if e // local == peer:
                    total[i] += w * _computed(args, e, tokens[i]).double()
        made.append(Expected(total.to(tokens.dtype), {}, right.atol * 2 * setup.option("k", 2)))
    return made


def _first_experts_only(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Only the first expert of each rank has computed."""
    local = len(args[0][3])
    if local < 2:
        raise ValueError("there is one")

    def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
        pairs = zip(experts, weights.double(), strict=True)
        parts = [w * _computed(args, e, token).double() for e, w in pairs if e % local == 0]
        return torch.stack([torch.zeros(len(token), dtype=torch.float64), *parts]).sum(0)

    return _per_token(setup, args, made)


def _weighted_by_rank(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The unweighted sum of a rank's experts, times the sum of their weights."""
    local = len(args[0][3])

    def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
        homes = [e // local for e in experts]
        if len(set(homes)) == len(homes):  # as it must be
            return torch.stack(
                [w * _computed(args, e, token).double() for e, w in zip(experts, weights.double(), strict=True)]
            ).sum(0)
        total = torch.zeros(len(token), dtype=torch.float64)
        for home in set(homes):
            mine = [j for j, h in enumerate(homes) if h == home]
            scale = weights.double()[mine].sum()
            total += scale * torch.stack([_computed(args, experts[j], token).double() for j in mine]).sum(0)
        return total

    expected = _per_token(setup, args, made)
    return [Expected(e.returns, {}, setup.option("k", 2) * e.atol) for e in expected]


def _of_some(
    picked: Callable[[int, int, int], tuple[int, int] | None],
) -> Callable[[Setup, Sequence[Args]], list[Expected]]:
    """The weighted sum of the experts that `picked(e, L, p)` gives as (rank, index); None adds nothing."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        local = len(args[0][3])

        def made(rank: int, token: torch.Tensor, experts: list[int], weights: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(len(token), dtype=torch.float64)
            for e, w in zip(experts, weights.double(), strict=True):
                found = picked(e, local, setup.ranks)
                if found is not None:
                    total += w * args[found[0]][3][found[1]](token).double()
            return total

        return _per_token(setup, args, made)

    return oracle


def _first_of_its_rank(args: Sequence[Args], rank: int, expert: int, token: torch.Tensor) -> torch.Tensor:
    return args[expert // len(args[rank][3])][3][0](token)


def _turned_weights(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each result with the weight of another choice of the same token."""
    if setup.option("k", 2) < 2:
        raise ValueError("there is one weight")
    return _oracle(setup, args, lambda weights: weights.flip(0))


def _one_a_rank(local: int, last: bool) -> Callable[[list[int]], list[int]]:
    """Of several choices on one rank only the first, or only the last."""

    def chosen(experts: list[int]) -> list[int]:
        kept: dict[int, int] = {}
        for j, expert in enumerate(experts):
            if last or expert // local not in kept:
                kept[expert // local] = j
        return list(kept.values())

    return chosen


def _lost_mates(last: bool) -> Callable[[Setup, Sequence[Args]], list[Expected]]:
    return lambda setup, args: _oracle(setup, args, chosen=_one_a_rank(len(args[0][3]), last))


def _one_rank_only(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Only what the last of a token's ranks made."""
    local = len(args[0][3])

    def chosen(experts: list[int]) -> list[int]:
        last = max(e // local for e in experts)
        return [j for j, e in enumerate(experts) if e // local == last]

    return _oracle(setup, args, chosen=chosen)


def _sorted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right rows, but sorted by the first expert."""
    right = _oracle(setup, args)
    made = []
    for wanted, a in zip(right, args, strict=True):
        order = torch.argsort(plain(a[1])[:, 0], stable=True)
        made.append(Expected(wanted.returns[order], {}, wanted.atol))
    return made


def _untouched(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return [Expected(plain(a[0])) for a in args]


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
    for call, args in enumerate(run.args):
        copies = _copies(args)
        for rank, row in enumerate(rules.between(run, call)):
            for peer, nbytes in enumerate(row):
                least = (len(copies[rank][peer]) + len(copies[peer][rank])) * _row_nbytes(run)
                if rank != peer and nbytes < least:
                    return rules.no_messages(run) or (
                        f"rank {rank} sends {nbytes} bytes to rank {peer}, but its tokens for that rank and the results that it "
                        f"gives back have {least}: each token must go to its experts' ranks, and come back"
                    )
    return None


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
            broken = _misled(run, rank, copies[rank], plain(args[rank][0]), mine)
            if broken:
                return broken
        broken = _too_much(run, call, copies)
        if broken:
            return broken
    return None


def _misled(run: Run, rank: int, copies: list[set[int]], tokens: torch.Tensor, entries: list[LogEntry]) -> str | None:
    """The first message that carries a token to a rank that does not need it, or for the second time."""
    seen: dict[tuple[int, int], int] = {}
    for entry in entries:
        sent = provenance.numbers(entry)
        if sent is None or entry.group is None or sent.dtype != tokens.dtype:
            continue
        at = 0
        for peer, nbytes in zip(entry.group, entry.splits, strict=True):
            part, at = sent[at : at + nbytes // sent.element_size()], at + nbytes // sent.element_size()
            if peer == rank or len(part) < WIDTH:
                continue
            windows = part.unfold(0, WIDTH, 1)
            for i, token in enumerate(tokens):
                found = int((windows == token).all(1).sum())
                seen[i, peer] = seen.get((i, peer), 0) + found
                if found and i not in copies[peer]:
                    return About(
                        f"rank {rank} sends token {i} to rank {peer}{run.at(entry.line)}, which has none of its experts: "
                        "each token goes to the ranks of its experts, and nowhere else",
                        entry,
                    )
                if seen[i, peer] > 1:
                    return About(
                        f"rank {rank} sends token {i} {_times(seen[i, peer])} to rank {peer}{run.at(entry.line)}: two of its "
                        "experts are there, but one copy of the token is enough for both",
                        entry,
                    )
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
        Group(
            "any routing",
            2,
            (
                _case(3, 4, all_on=0),
                _case(3, 4, k=3, local=3, all_on=2),
                _case(4, 1),
                _case(8, 1),
            ),
        ),
        Group("any number of tokens", 2, (_case(3, 0), _case(3, 0, spread=2), _case(4, 1, spread=1), _case(3, 13))),
        Group(
            "any dtype",
            1,
            (
                _case(3, 4, dtype="float64"),
                _case(3, 4, dtype="bfloat16"),
                _case(3, 4, 1, 2, "bfloat16", case=FINE_WEIGHTS),
            ),
        ),
        Group("any layout", 1, (_case(3, 4, layout="strided"), _case(3, 4, layout="transposed"))),
        Group("any circumstances", 1, (_case(3, 4, times=2), _case(3, 4, outer_world=True))),
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
    mistakes=(
        Mistake(
            "the results were added without their weights",
            lambda s, a: _oracle(s, a, lambda weights: torch.ones_like(weights)),
        ),
        Mistake(
            "the mean of the experts' results: multiply each by its own weight, and add",
            lambda s, a: _oracle(s, a, lambda weights: torch.full_like(weights, 1 / len(weights))),
        ),
        Mistake(
            "each result has the weight of the token's first expert: weights has a column for each choice",
            lambda s, a: _oracle(s, a, lambda weights: weights[:1].expand_as(weights)),
        ),
        Mistake(
            "the results of a rank's experts were added, and their sum multiplied by the sum of their weights: multiply each result by "
            "its own weight, then add",
            _weighted_by_rank,
        ),
        Mistake(
            "only the experts of rank 0 have computed: a number in experts counts all experts, and expert e is expert_fns[e % L] on "
            "rank e // L, where L = len(expert_fns)",
            _of_some(lambda e, local, p: (0, e) if e < local else None),
        ),
        Mistake(
            "expert e was taken to be expert_fns[e % p]: it is expert_fns[e % L] on rank e // L, where L = len(expert_fns)",
            _of_some(lambda e, local, p: (e // local, e % p) if e % p < local else None),
        ),
        Mistake(
            "the weights were divided by their sum: weights are what the router gave, use them as they are",
            lambda s, a: _oracle(s, a, lambda weights: weights / weights.sum()),
        ),
        Mistake(
            "each token got only one of its experts: experts has k columns",
            lambda s, a: _oracle(s, a, chosen=lambda experts: [0]),
        ),
        Mistake(
            "of two experts on one rank only one has computed the token: its one copy needs both experts' numbers and weights",
            _lost_mates(False),
        ),
        Mistake(
            "of two experts on one rank only one has computed the token: its one copy needs both experts' numbers and weights",
            _lost_mates(True),
        ),
        Mistake(
            "the weights were rounded to the tokens' dtype: weights are float32, use them as they are, and send them as float32",
            _rounded_weights,
        ),
        Mistake(
            "the token itself was added: the result is only what its experts make of it",
            _with(lambda total, token: total + token),
        ),
        Mistake(
            "each result has the sum of all of the token's weights: multiply what an expert returns by its own weight",
            _common_weight,
        ),
        Mistake(
            "where several of a token's experts are on one rank, their sum was added that many times: one copy goes there, and one "
            "sum comes back",
            _as_often_as_chosen,
        ),
        Mistake(
            "the sums were added to the tokens in their order: they come back by rank, in the order in which the tokens were sent",
            _added_by_token,
        ),
        Mistake(
            "the copies lie in the order of the tokens, but the splits count them by rank: put those for rank 0 first, then those for "
            "rank 1, and so on",
            _sent_by_token,
        ),
        Mistake(
            "only the first expert of each rank has computed: expert e is expert_fns[e % L] on rank e // L, where L = len(expert_fns)",
            _first_experts_only,
        ),
        Mistake(
            "every token was computed by the first expert of its experts' ranks: expert e is expert_fns[e % L] there",
            _by(_first_of_its_rank),
        ),
        Mistake("a token's sums of several ranks were stored one over the other: add them", _one_rank_only),
        Mistake("a result has the weight of another of the token's experts", _turned_weights),
        Mistake(
            "the token was multiplied by the weight before its expert computed it: multiply what the expert returns",
            _weighted_before,
        ),
        Mistake(
            "the experts are in other places: expert e is expert_fns[e % L] on rank e // L, where L = len(expert_fns)",
            _by(_striped),
        ),
        Mistake(
            "every token was computed by its own rank's experts: it must travel to its experts' ranks", _by(_at_home)
        ),
        Mistake(
            "a rank computed experts of other ranks too: of a token's k choices only those with e // L equal to its rank are its own",
            _all_on_each_rank,
        ),
        Mistake("sorted by expert: put the sums back into the order of the tokens", _sorted),
        Mistake("the tokens came back as they were: no expert's result was used", _untouched),
    ),
    unit="token a rank",
    collective="all_to_all",
    chunking="none",
    demo_setup=_case(4, 3),
    forbidden_advice="It needs all_to_all (or all_to_all_single) only.",
)
