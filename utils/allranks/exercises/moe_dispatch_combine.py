"""moe_dispatch_combine(tokens, experts, expert_fn) -> Tensor: each token to its expert's rank and back, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import known
from allranks.judge import provenance, rules
from allranks.judge.cases import Args, Expected, Function, Oracle, Setup, View, draw, plain
from allranks.judge.common import SIZES, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.ranks.wire import LogEntry
from allranks.ranks.wire.values import dtype_name

WIDTH = 3


def _count(setup: Setup, rank: int) -> int:
    return setup.size + (rank * setup.option("spread", 0)) % 4


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    made, places, start = [], rng.permutation(setup.ranks), rng.integer(1, max(setup.ranks, 2))
    for rank in range(setup.ranks):
        count = _count(setup, rank)
        mine = rng.of_rank(rank)
        # real numbers, so that a token can be told from what two others make side by side
        tokens, to = draw(replace(setup, values="random"), mine, count, WIDTH), setup.option("all_to")
        experts = (
            torch.full((count,), to) if to is not None else _routed(rank, count, setup.ranks, start, rng.of_rank(rank))
        )
        # every expert computes something different, that the others can't know
        expert = Function(2 + mine.integer(0, 32) / 4, 100.0 * (places[rank] + 1) + mine.integer(0, 50))
        made.append((View.of(tokens, setup.layout), View.of(experts), expert))
    return made


def _routed(rank: int, count: int, ranks: int, start: int, rng: Draws) -> torch.Tensor:
    """Most of a rank's tokens go to one expert each, beginning away from home; a quarter to expert `start`, wanted most."""
    each = count - count // 4
    experts = [(rank + start + i) % ranks for i in range(each)] + [start % ranks] * (count - each)
    mixed = [experts[place] for place in rng.permutation(count)]
    return torch.tensor(mixed[::-1] if mixed == sorted(mixed) else mixed, dtype=torch.int64)


def _through(setup: Setup, args: Sequence[Args], expert_of: Callable[[int, int], int]) -> list[Expected]:
    made = []
    for rank, (tokens, experts, _) in enumerate(args):
        rows = [
            args[expert_of(rank, e)][2](token) for token, e in zip(plain(tokens), plain(experts).tolist(), strict=True)
        ]
        values = torch.stack(rows) if rows else plain(tokens)
        made.append(Expected(values.to(tokens.base.dtype), {}, _atol(tokens.base.dtype)))
    return made


def _atol(kind: torch.dtype) -> float:
    return 1000 * torch.finfo(kind).eps


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _through(setup, args, lambda rank, expert: expert)


def _home(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _through(setup, args, lambda rank, expert: rank)


def _to_another(by: int) -> Oracle:
    """The tokens of each expert on the rank so many places behind its own."""
    return lambda setup, args: _through(setup, args, lambda rank, expert: (expert + by) % setup.ranks)


Order = Callable[[torch.Tensor], torch.Tensor]  # of each token's expert: the tokens, one after the other


def _as_they_are(experts: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(experts))


def _by_expert(experts: torch.Tensor) -> torch.Tensor:
    return torch.argsort(experts, stable=True)


def _from_the_last(experts: torch.Tensor) -> torch.Tensor:
    return torch.argsort(experts, stable=True, descending=True)


def _in_this_order(sent: Order, back: Order) -> Oracle:
    """The rows were cut by the experts' counts, but they were sent in an order of their own, and put back in `back`."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        made = []
        for right, (tokens, experts, _) in zip(_oracle(setup, args), args, strict=True):
            rows, wanted = plain(tokens), plain(experts)
            result = torch.empty_like(rows)
            places = zip(sent(wanted).tolist(), back(wanted).tolist(), wanted.sort().values.tolist(), strict=True)
            for token, place, expert in places:
                result[place] = args[expert][2](rows[token])
            made.append(Expected(result, {}, right.atol))
        return made

    return oracle


def _sorted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right rows, but sorted by expert."""
    right = _oracle(setup, args)
    return [
        Expected(wanted.returns[torch.argsort(plain(a[1]), stable=True)], {}, wanted.atol)
        for wanted, a in zip(right, args, strict=True)
    ]


def _permuted_twice(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The sort applied to its own result instead of undone."""
    orders = [torch.argsort(plain(a[1]), stable=True) for a in args]
    right = _oracle(setup, args)
    return [Expected(w.returns[order][order], {}, w.atol) for w, order in zip(right, orders, strict=True)]


def _by_present_experts(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The i-th lot of tokens goes to rank i, though experts without tokens have no lot."""
    present = [plain(a[1]).unique().tolist() for a in args]
    return _through(setup, args, lambda rank, expert: present[rank].index(expert))


def _untouched(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return [Expected(plain(a[0])) for a in args]


def _then(second: Callable[[int, int], int], first: Callable[[int, int], int]) -> Oracle:
    """Each token is computed by two experts, one after the other: those of ranks `first(own, expert)` and `second(own, expert)`."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        made = []
        for rank, (once, a) in enumerate(zip(_through(setup, args, first), args, strict=True)):
            kind, experts = once.returns.dtype, plain(a[1]).tolist()
            rows = [args[second(rank, e)][2](row) for row, e in zip(once.returns, experts, strict=True)]
            made.append(Expected(torch.stack(rows).to(kind) if rows else once.returns, {}, once.atol))
        return made

    return oracle


def _own(rank: int, expert: int) -> int:
    return rank


def _of_expert(rank: int, expert: int) -> int:
    return expert


MOST_CALLS = 6  # counts, tokens and tokens back, each with something beside it


def _exchanged(run: Run) -> str | None:
    """What the ranks gave each other must have room for the tokens of one way and of the way back."""
    for call, args in enumerate(run.args):
        counts = [torch.bincount(plain(a[1]), minlength=run.ranks).tolist() for a in args]
        token = WIDTH * args[0][0].base.element_size()
        for rank, row in enumerate(rules.between(run, call)):
            for peer, nbytes in enumerate(row):
                least = (counts[rank][peer] + counts[peer][rank]) * token
                if rank != peer and nbytes < least:
                    return rules.no_messages(run) or (
                        f"rank {rank} sends {nbytes} bytes to rank {peer}, but its tokens for that expert and those that it "
                        f"gives back have {least}: each token must go to its expert's rank, and come back"
                    )
    return None


def _dtypes(run: Run) -> str | None:
    """Tokens go in their dtype, and numbers of tokens in an integer dtype: what is shorter than a token is such a number."""
    broken = rules.other_dtype(run, 0, whole=True)
    if broken:
        return broken
    kind = run.first_view.base.dtype
    for entry in run.collectives:
        parts = {n for n in entry.splits if n}
        if entry.dtype == dtype_name(kind) and parts and max(parts) < WIDTH * kind.itemsize:
            return About(
                f"rank {entry.rank} sends {entry.dtype}{run.at(entry.line)} with room for no token: numbers of tokens are whole numbers, "
                "so send them in an integer dtype",
                entry,
                str(entry.dtype),
                "an integer dtype",
                "numbers in a floating dtype",
            )
    return None


def _experts_only(run: Run) -> str | None:
    """No token may go to another rank than its expert's, and a few calls must do for all tokens."""
    for call, args in enumerate(run.args):
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            if len(mine) > MOST_CALLS:
                return About(
                    f"rank {rank} calls {mine[-1].called} {len(mine)} times{run.at(mine[-1].line)}, but {MOST_CALLS} calls are enough for any number of tokens",
                    mine[-1],
                )
            tokens, experts = plain(args[rank][0]), plain(args[rank][1]).tolist()
            for entry in mine:
                stray = _stray(entry, tokens, experts)
                if stray is not None:
                    return About(
                        f"rank {rank} sends a token of expert {experts[stray[0]]} to rank {stray[1]}{run.at(entry.line)}: "
                        "each token goes to the rank of its expert, and nowhere else",
                        entry,
                    )
        broken = _too_much(run, call)
        if broken:
            return broken
    return None


def _too_much(run: Run, call: int) -> str | None:
    """With padding to the fullest expert, and two more numbers a token, a pair of ranks needs so many bytes and no more."""
    args = run.args[call]
    fullest = max(int(torch.bincount(plain(a[1]), minlength=1).max()) for a in args)
    most = 2 * fullest * WIDTH * args[0][0].base.element_size() + 16 * fullest + 24
    for rank, row in enumerate(rules.between(run, call)):
        for peer, nbytes in enumerate(row):
            if nbytes > most:
                mine = [e for e in run.collectives if e.rank == rank and e.call == call]
                return next(filter(None, (rules.wider(run, e) for e in mine)), None) or (
                    f"rank {rank} sends {nbytes} bytes to rank {peer}, but with room for {fullest} tokens, as many as one rank has "
                    f"for one expert, {most} are enough: send each rank the tokens of its expert only"
                )
    return None


def _stray(entry: LogEntry, tokens: torch.Tensor, experts: list[int]) -> tuple[int, int] | None:
    """(token, rank) of the first token that the message carries to another rank than its expert's."""
    sent = provenance.numbers(entry)
    if sent is None or entry.group is None or sent.dtype != tokens.dtype:
        return None
    at = 0
    for peer, nbytes in zip(entry.group, entry.splits, strict=True):
        part, at = sent[at : at + nbytes // sent.element_size()], at + nbytes // sent.element_size()
        if len(part) < WIDTH:
            continue
        windows = part.unfold(0, WIDTH, 1)
        for token, expert in zip(tokens, experts, strict=True):
            if expert != peer and bool((windows == token).all(1).any()):
                return experts.index(expert), peer
    return None


EXERCISE = Exercise(
    name="moe_dispatch_combine",
    promise="returns each token as its expert's rank computes it, in the order of tokens",
    groups=(
        Group("right tokens", 3, (Setup(2, 4), Setup(3, 5), Setup(4, 6))),
        Group("any rank count", 1, (Setup(1, 4), Setup(5, 5), Setup(8, 6))),
        many_ranks(2, size=SIZES),
        Group("any routing", 2, (*(Setup(3, 4).with_options(all_to=e) for e in (0, 2)), Setup(4, 1), Setup(8, 2))),
        Group(
            "any number of tokens",
            2,
            (Setup(3, 0), Setup(3, 0).with_options(spread=2), Setup(4, 1).with_options(spread=1), Setup(3, 17)),
        ),
        Group("any dtype", 1, (Setup(3, 5, "float64", values="precise"), Setup(3, 5, "bfloat16"))),
        Group("any layout", 1, (Setup(3, 4, layout="strided"), Setup(3, 4, layout="transposed"))),
        Group("any circumstances", 1, (Setup(3, 5, times=2), Setup(3, 5, outer_world=True))),
    ),
    inputs=_inputs,
    labels={"spread": "more on some ranks", "all_to": "all for expert {}"},
    oracle=_oracle,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(
        Rule("each token to its expert and back", 1, _exchanged, essential=True),
        Rule("in the tensors' dtype", 0, _dtypes),
        Rule("to its expert only", 8, _experts_only),
    ),
    mistakes=known(
        {
            "sorted by expert: put the results back into the order of the tokens": _sorted,
            "the permutation was applied again instead of its inverse; write result[order] = returned": _permuted_twice,
            "every token was computed by its own rank's expert: it must travel to its expert's rank before expert_fn "
            "is applied": _home,
            "the tokens came back as they were: expert_fn was never applied, "
            "or what it returned was not used": _untouched,
            "an expert without tokens was left out of the counts, so the tokens of those behind it went to the wrong "
            "ranks: count with torch.bincount(experts, minlength=p)": _by_present_experts,
            "the tokens went to the ranks in the reverse order: expert e is on rank e, not on rank p-1-e": lambda setup, args: (
                _through(setup, args, lambda rank, expert: setup.ranks - 1 - expert)
            ),
            "the tokens were not sent in the order of their experts: the first rows go to rank 0, as many as it "
            "gets, so sort by expert first, from 0 on": [
                _in_this_order(sent, back)
                for sent, back in (
                    (_as_they_are, _by_expert),
                    (_as_they_are, _as_they_are),
                    (_from_the_last, _from_the_last),
                )
            ],
            **{
                f"the tokens of expert e went to rank {where}: expert e is on rank e": _to_another(by)
                for by, where in ((1, "e + 1"), (-1, "e - 1"))
            },
            "expert_fn was applied again after the tokens came back": _then(_own, _of_expert),
            "expert_fn was applied twice on the rank of the expert": _then(_of_expert, _of_expert),
            "expert_fn was applied twice: to the tokens before they left, and on the rank of their expert": _then(
                _of_expert, _own
            ),
        }
    ),
    unit="token a rank",
    collective="all_to_all",
    chunking="none",
    demo_setup=Setup(4, 4),
    forbidden_advice="It needs all_to_all (or all_to_all_single) only.",
)
