"""commit_step(weights, update, healthy, at_least) -> int: a step of the optimizer in which failed ranks have no say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, plain, shape_of
from allranks.judge.common import LAYOUTS, SIZES, many_ranks
from allranks.judge.compare import same
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

ILLS = ("not healthy", "NaN", "infinity", "not healthy, NaN")
COUNT_NBYTES = 16  # room for the count of healthy ranks, in any dtype


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    ill = [ILLS[rng.integer(0, len(ILLS))] for _ in range(setup.option("failed", 0))]
    kind = setup.option("with")
    if kind is not None:
        ill = [kind] * len(ill)
    of_rank = dict(zip(rng.permutation(setup.ranks), ill, strict=False))
    weights = draw(setup, rng, *shape_of(setup))
    made = []
    for rank in range(setup.ranks):
        update = draw(setup, rng.of_rank(rank), *shape_of(setup))
        kind = of_rank.get(rank, "")
        if "NaN" in kind or "infinity" in kind:
            place = rng.integer(0, max(update.numel(), 1))
            update.view(-1)[place] = float("nan") if "NaN" in kind else float("inf") * (1 - 2 * rng.integer(0, 2))
        view = View.of(weights, setup.layout), View.of(update, setup.layout)
        made.append((*view, "not healthy" not in kind, setup.option("at_least", 1)))
    return made


def _counts(args: Sequence[Args]) -> list[bool]:
    """Which ranks count: those that say that they are healthy and have finite updates."""
    return [a[2] and bool(plain(a[1]).isfinite().all()) for a in args]


Step = Callable[[torch.Tensor, Sequence[Args], list[bool], int], "tuple[torch.Tensor | None, int | None]"]


def _oracle_from(make: Step) -> Oracle:
    """An oracle from `make(weights, args, counts, rank)`: the new weights (None: as before) and the number returned."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        kind, counts = args[0][0].base.dtype, _counts(args)
        weights = plain(args[0][0]).double()
        parts = [plain(a[1]).double().nan_to_num(0, 0, 0).abs() for a in args]
        atol = (weights.abs() + sum(parts)) * torch.finfo(kind).eps * 2
        found = []
        for rank in range(setup.ranks):
            made, number = make(weights, args, counts, rank)
            ends = plain(args[0][0]) if made is None else made.to(kind)
            found.append(Expected(number, {(0,): ends}, None if made is None else atol))
        return found

    return oracle


def _sum(args: Sequence[Args], use: Sequence[bool]) -> torch.Tensor:
    return sum((plain(a[1]).double() for a, u in zip(args, use, strict=True) if u), torch.zeros(()).double())


def _right(weights: torch.Tensor, args: Sequence[Args], counts: list[bool], rank: int) -> tuple:
    count = sum(counts)
    return (weights + _sum(args, counts) / count if count >= args[0][3] else None), count


def _unlike_right(made: Oracle) -> Oracle:
    """The same oracle, but only where some rank's weights differ from the right ones: else it explains nothing."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        found = list(made(setup, args))
        right = _oracle_from(_right)(setup, args)
        if all(same(a.changed[0,], b.changed[0,]) for a, b in zip(found, right, strict=True)):
            raise ValueError("the same weights, so it is another mistake")
        return found

    return oracle


def _changed(
    step: Callable[[torch.Tensor, Sequence[Args], list[bool]], torch.Tensor],
    when: Callable[[int, int], bool] = lambda count, at_least: count >= at_least,
) -> Oracle:
    """An oracle that adds `step(weights, args, counts)` when `when(count, at_least)`, whatever number is returned."""

    def make(weights: torch.Tensor, args: Sequence[Args], counts: list[bool], rank: int) -> tuple:
        count = sum(counts)
        return (weights + step(weights, args, counts) if when(count, args[0][3]) else None), None

    return _unlike_right(_oracle_from(make))


def _healthy_only(weights: torch.Tensor, args: Sequence[Args], counts: list[bool], rank: int) -> tuple:
    made, _ = _right(weights, args, counts, rank)
    return (made if counts[rank] else None), None


def _flags_only(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    """Ranks that say that they are healthy; their updates are not looked at."""
    flags = [a[2] for a in args]
    return _sum(args, flags) / sum(flags)


def _finite_only(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    """Ranks with finite updates; their word is not asked."""
    finite = [bool(plain(a[1]).isfinite().all()) for a in args]
    return _sum(args, finite) / sum(finite)


def _cleaned(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    """Elements that are not finite became zero, and the others of that rank were added."""
    parts = [plain(a[1]).double().nan_to_num(0, 0, 0) for a in args if a[2]]
    return sum(parts, torch.zeros(()).double()) / len(parts)


def _all_cleaned(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    """The updates of all ranks, with zeros for elements that are not finite, over the number of ranks that count."""
    return sum((plain(a[1]).double().nan_to_num(0, 0, 0) for a in args), torch.zeros(()).double()) / sum(counts)


def _all_finite(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    """The updates of all ranks that have finite ones, over the number of ranks that count."""
    return _sum(args, [bool(plain(a[1]).isfinite().all()) for a in args]) / sum(counts)


def _cleaned_by_count(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    """As `_cleaned`, over the number of ranks that count."""
    parts = [plain(a[1]).double().nan_to_num(0, 0, 0) for a in args if a[2]]
    return sum(parts, torch.zeros(()).double()) / sum(counts)


def _replaced(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    """What must be added that the mean update is left."""
    return _sum(args, counts) / sum(counts) - weights


def _counted(who: Callable[[Args], bool]) -> Oracle:
    """The right weights, and the number of ranks for whose arguments `who` is true."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        number = sum(who(a) for a in args)
        if number == sum(_counts(args)):
            raise ValueError("it is the right number")
        return [replace(right, returns=number) for right in _oracle_from(_right)(setup, args)]

    return oracle


def _times_zero(weights: torch.Tensor, args: Sequence[Args], counts: list[bool]) -> torch.Tensor:
    parts = [plain(a[1]).double() * float(c) for a, c in zip(args, counts, strict=True)]
    return sum(parts, torch.zeros(()).double()) / sum(counts)


def _nowhere(run: Run) -> bool:
    """Whether no rank changed its weights, and enough ranks count."""
    args = run.args[0]
    same_as_before = all(
        r is not None and r.tensors[0][0] is not None and same(r.tensors[0][0], a[0].tensor())
        for r, a in zip(run.results[0], args, strict=True)
    )
    return same_as_before and sum(_counts(args)) >= args[0][3]


def _zero_if_not_committed(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    if sum(_counts(args)) >= args[0][3]:
        raise ValueError("committed, so it is another mistake")
    return [replace(e, returns=0) for e in _oracle_from(_right)(setup, args)]


def _few_bytes(run: Run) -> str | None:
    """One all_reduce of the update and of the count, or one of each."""
    broken = rules.calls(run, "all_reduce", "two are enough, one with the count behind the update", least=1, most=2)
    if broken:
        return broken
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            total, enough = sum(e.nbytes for e in mine), rules.nbytes_of(run, call, rank) + COUNT_NBYTES
            if total > enough:
                worst = max(mine, key=lambda e: e.nbytes)
                # by its dtype alone if the update and a count are all that it has
                wide = rules.wider(run, worst) if sum(e.numel for e in mine) <= run.setup.size + 1 else None
                return wide or About(
                    f"rank {rank} reduces {total} bytes{run.at(worst.line)}, but the update and a count are {enough} at most: "
                    "the votes of all ranks are one number",
                    worst,
                )
    return None


def _update_if_committed(run: Run, call: int, rank: int) -> int:
    """Every rank needs the whole sum, or where nobody commits one vote at least."""
    args = run.args[call]
    return rules.nbytes_of(run, call, rank) if sum(_counts(args)) >= args[0][3] else 1


def _case(ranks: int, size: int, failed: int, at_least: int = 1, kind: str | None = None, **more: object) -> Setup:
    setup = Setup(ranks, size, **more).with_options(failed=failed, at_least=at_least)  # type: ignore[arg-type]
    return setup if kind is None else setup.with_options(**{"with": kind})


EXERCISE = Exercise(
    name="commit_step",
    promise="adds the healthy ranks' mean update to every rank's weights if there are at_least so many, and returns how many there are",
    groups=(
        Group("everybody healthy", 1, (_case(2, 3, 0), _case(3, 2, 0, 3), _case(4, 5, 0, 2))),
        Group("a rank that says it is not", 3, (_case(3, 4, 1, 2, "not healthy"), _case(4, 3, 2, 2, "not healthy"))),
        Group("NaN and infinity", 4, (_case(3, 4, 1, 1, "NaN"), _case(4, 3, 1, 2, "infinity"), _case(5, 4, 2, 1))),
        Group("too few", 4, (_case(3, 4, 2, 2), _case(4, 3, 1, 4), _case(3, 2, 3, 1), _case(2, 5, 1, 2))),
        Group("any rank count", 1, (_case(1, 3, 0), _case(1, 3, 1), _case(5, 3, 2, 3), _case(8, 2, 3, 5))),
        many_ranks(2, _case(9, 19, 4, 4), failed=(3, 4, 5), size=SIZES),
        Group(
            "any dtype",
            1,
            (_case(3, 4, 1, dtype="float64", values="random"), _case(4, 3, 1, dtype="bfloat16"), _case(3, 3, 1)),
        ),
        Group("any layout", 1, tuple(_case(s.ranks, s.size, 1, 2, layout=s.layout) for s in LAYOUTS)),
        Group("any circumstances", 1, (_case(3, 4, 1, times=2), _case(3, 3, 1, outer_world=True))),
    ),
    inputs=_inputs,
    labels={"failed": "{} failed", "with": "by {}"},
    oracle=_oracle_from(_right),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("the update and a count, once", 4, _few_bytes),
        rules.carried(_update_if_committed, _update_if_committed),
    ),
    mistakes=known(
        {
            "divided by the number of all ranks: the mean is over the ranks that count": _changed(
                lambda w, args, counts: _sum(args, counts) / len(args)
            ),
            "the sum of the healthy ranks' updates: divide it by their number": _changed(
                lambda w, args, counts: _sum(args, counts)
            ),
            "zero times NaN is NaN: put zeros in place of a failed rank's update, don't multiply it by zero": _changed(
                _times_zero
            ),
            "the updates of ranks that say that they are not healthy were added: "
            "both the word and the numbers count": _changed(_finite_only),
            "NaN or infinity came into the weights: a rank whose update is not finite does not count, whatever it "
            "says": _changed(_flags_only),
            "elements that are not finite became zero, and the rest of that rank's update was added: the whole rank "
            "must not count": [_changed(_cleaned), _changed(_cleaned_by_count)],
            "the updates of ranks that do not count were added: put zeros in "
            "place of the whole update of such a rank": [_changed(step) for step in (_all_cleaned, _all_finite)],
            "the weights were replaced by the mean update: add it to them": _changed(_replaced),
            "the number of all ranks came back: return the number of those that count": _counted(lambda given: True),
            "the number of ranks that say that they are healthy came back: one whose update is not finite does not "
            "count": _counted(lambda given: given[2]),
            "only the ranks that count changed their weights: the others need the same step, or the weights are no "
            "longer equal": _unlike_right(_oracle_from(_healthy_only)),
            "committed although too few ranks are healthy: then nobody may change its weights": _changed(
                lambda w, args, counts: _sum(args, counts) / max(sum(counts), 1), lambda count, least: count > 0
            ),
            "not committed although there are just enough healthy ranks: at_least itself is enough": _changed(
                lambda w, args, counts: _sum(args, counts) / sum(counts), lambda count, least: count > least
            ),
            "0 came back where nothing was committed: return how many ranks count there too": _zero_if_not_committed,
            "the weights are unchanged although enough ranks are healthy": (
                _changed(lambda w, args, counts: w * 0, lambda count, least: False),
                _nowhere,
            ),
        }
    ),
    collective="all_reduce",
    chunking="none",
    demo_setup=_case(4, 3, 1, 2, "NaN"),
    forbidden_advice="dist.all_reduce is all that it needs.",
)
