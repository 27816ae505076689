"""moe_dispatch_combine(tokens, experts, expert_fn) -> Tensor: each token to its expert's rank and back, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import experts
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Function, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import SIZES, circumstances, layouts, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.ranks.wire.values import dtype_name

WIDTH = 3


def _count(setup: Setup, rank: int) -> int:
    return setup.size + (rank * setup.option("spread", 0)) % 4


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    places, start = rng.permutation(setup.ranks), rng.integer(1, max(setup.ranks, 2))
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
        yield View.of(tokens, setup.layout), View.of(experts), expert


def _routed(rank: int, count: int, ranks: int, start: int, rng: Draws) -> torch.Tensor:
    """Most of a rank's tokens go to one expert each, beginning away from home; a quarter to expert `start`, wanted most."""
    each = count - count // 4
    experts = [(rank + start + i) % ranks for i in range(each)] + [start % ranks] * (count - each)
    while True:
        mixed = torch.tensor([experts[place] for place in rng.permutation(count)], dtype=torch.int64)
        order = mixed.argsort(stable=True)
        # sorting once, or twice, is another order, where there is one
        if count < 3 or ranks == 1 or len(set(experts)) == 1 or not torch.equal(order[order], torch.arange(count)):
            return mixed


Experts = Callable[
    [int, int, int], Sequence[int]
]  # (rank, expert, p) -> the experts that compute a token, one after the other


@oracle_maker
def _through(setup: Setup, args: Sequence[Args], chosen: Experts) -> Iterator[Expected]:
    """Each token computed by the experts that are `chosen` for it."""
    for rank, (tokens, wanted, _) in enumerate(args):
        result, kind = plain(tokens), tokens.base.dtype
        for place, expert in enumerate(plain(wanted).tolist()):
            for one in chosen(rank, expert, setup.ranks):
                result[place] = args[one][2](result[place]).to(kind)
        yield Expected(result, {}, 1000 * torch.finfo(kind).eps)


_right = _through(lambda rank, expert, p: (expert,))


Order = Callable[[torch.Tensor], torch.Tensor]  # of each token's expert: the tokens, one after the other


def _as_they_are(wanted: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(wanted))


def _by_expert(wanted: torch.Tensor) -> torch.Tensor:
    return torch.argsort(wanted, stable=True)


def _from_the_last(wanted: torch.Tensor) -> torch.Tensor:
    return torch.argsort(wanted, stable=True, descending=True)


@oracle_maker
def _in_this_order(setup: Setup, args: Sequence[Args], sent: Order, back: Order) -> Iterator[Expected]:
    """The rows were cut by the experts' counts, but they were sent in an order of their own, and put back in `back`."""
    for right, (tokens, to, _) in zip(_right(setup, args), args, strict=True):
        rows, wanted = plain(tokens), plain(to)
        result = torch.empty_like(rows)
        places = zip(sent(wanted).tolist(), back(wanted).tolist(), wanted.sort().values.tolist(), strict=True)
        for token, place, expert in places:
            result[place] = args[expert][2](rows[token])
        yield Expected(result, {}, right.atol)


@oracle_maker
def _sorted(setup: Setup, args: Sequence[Args], times: int) -> list[Expected]:
    """The right rows, sorted by expert, or with that sort applied to its own result."""
    made = list(_right(setup, args))
    for _ in range(times):
        made = [replace(e, returns=e.returns[_by_expert(plain(a[1]))]) for e, a in zip(made, args, strict=True)]
    return made


def _by_present_experts(setup: Setup, args: Sequence[Args]) -> Sequence[Expected]:
    """The i-th lot of tokens goes to rank i, though experts without tokens have no lot."""
    present = [plain(a[1]).unique().tolist() for a in args]
    return _through(lambda rank, expert, p: (present[rank].index(expert),))(setup, args)


MOST_CALLS = 6  # counts, tokens and tokens back, each with something beside it


def _exchanged(run: Run) -> str | None:
    """What the ranks gave each other must have room for the tokens of one way and of the way back."""
    counts, which = lambda args: experts.counted(args, lambda a: plain(a[1]).tolist()), "its tokens for that expert"
    return experts.not_there_and_back(run, counts, WIDTH * run.itemsize, which)


def _dtypes(run: Run) -> str | None:
    """Tokens go in their dtype, and numbers of tokens in an integer dtype: what is shorter than a token is such a number."""
    if broken := rules.other_dtype(run, 0, whole=True):
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
            tokens, wanted = plain(args[rank][0]), plain(args[rank][1]).tolist()
            for entry in mine:
                for token, peer, found in experts.carried(entry, tokens):
                    if found and wanted[token] != peer:
                        return About(
                            f"rank {rank} sends a token of expert {wanted[token]} to rank {peer}{run.at(entry.line)}: "
                            "each token goes to the rank of its expert, and nowhere else",
                            entry,
                        )
        if broken := _too_much(run, call):
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
            (
                Setup(3, 0),
                Setup(4, 0).with_options(spread=2, all_to=1),
                Setup(4, 1).with_options(spread=1),
                Setup(3, 17),
            ),
        ),
        Group("any dtype", 1, (Setup(3, 5, "float64", values="precise"), Setup(3, 5, "bfloat16"))),
        layouts(Setup(3, 4), "strided", "transposed"),
        circumstances(Setup(3, 5)),
    ),
    inputs=_inputs,
    labels={"spread": "more on some ranks", "all_to": "all for expert {}"},
    oracle=_right,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(
        Rule("each token to its expert and back", 1, _exchanged, essential=True),
        Rule("in the tensors' dtype", 0, _dtypes),
        Rule("to its expert only", 8, _experts_only),
    ),
    mistakes={
        "sorted by expert: put the results back into the order of the tokens": _sorted(1),
        "the permutation was applied again instead of its inverse; write result[order] = returned": _sorted(2),
        "every token was computed by its own rank's expert: it must travel to its expert's rank before expert_fn "
        "is applied": _through(lambda rank, expert, p: (rank,)),
        "an expert without tokens was left out of the counts, so the tokens of those behind it went to the wrong "
        "ranks: count with torch.bincount(experts, minlength=p)": _by_present_experts,
        "the tokens went to the ranks in the reverse order: expert e is on rank e, not on rank p-1-e": _through(
            lambda rank, expert, p: (p - 1 - expert,)
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
        "the tokens of expert e went to rank e + 1: expert e is on rank e": _through(
            lambda rank, expert, p: ((expert + 1) % p,)
        ),
        "the tokens of expert e went to rank e - 1: expert e is on rank e": _through(
            lambda rank, expert, p: ((expert - 1) % p,)
        ),
        "expert_fn was applied again after the tokens came back": _through(lambda rank, expert, p: (expert, rank)),
        "expert_fn was applied twice on the rank of the expert": _through(lambda rank, expert, p: (expert, expert)),
        "expert_fn was applied twice: to the tokens before they left, and on the rank of their expert": _through(
            lambda rank, expert, p: (rank, expert)
        ),
    },
    unit="token a rank",
    collective="all_to_all",
    demo_setup=Setup(4, 4),
    forbidden_advice="It needs all_to_all (or all_to_all_single) only.",
)
