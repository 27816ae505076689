"""commit_step(weights, update, healthy, at_least) -> int: a step of the optimizer in which failed ranks have no say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, oracle_maker, plain, shape_of
from allranks.judge.common import LAYOUTS, SIZES, circumstances, many_ranks
from allranks.judge.compare import same
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

ILLS = ("not healthy", "NaN", "infinity", "not healthy, NaN")
COUNT_NBYTES = 16  # room for the count of healthy ranks, in any dtype


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    failed = setup.option("failed", 0)
    # which there are must not be luck: then the same answer would get other points
    first = 0 if failed > 2 else setup.ranks + setup.size
    ill = [ILLS[(first + i) % len(ILLS)] for i in range(failed)]
    kind = setup.option("with")
    if kind is not None:
        ill = [kind] * len(ill)
    of_rank = dict(zip(rng.permutation(setup.ranks), ill, strict=False))
    weights = draw(setup, rng, *shape_of(setup))
    for rank in range(setup.ranks):
        update = draw(setup, rng.of_rank(rank), *shape_of(setup))
        kind = of_rank.get(rank, "")
        if setup.option("_large") and rank == setup.ranks - 1:  # finite numbers, whose sum and squares overflow
            update.view(-1)[:2] = 0.75 * torch.finfo(update.dtype).max
        if "NaN" in kind or "infinity" in kind:
            place = rng.integer(0, max(update.numel(), 1))
            update.view(-1)[place] = float("nan") if "NaN" in kind else float("inf") * (1 - 2 * rng.integer(0, 2))
        view = View.of(weights, setup.layout), View.of(update, setup.layout)
        yield (*view, "not healthy" not in kind, setup.option("at_least", 1))


def _who(args: Sequence[Args]) -> dict[str, list[bool]]:
    """Which ranks say that they are healthy, which have finite updates, which count, and all of them."""
    healthy, finite = [a[2] for a in args], [bool(plain(a[1]).isfinite().all()) for a in args]
    count = [a and b for a, b in zip(healthy, finite, strict=True)]
    of_sum = [a[2] and bool(plain(a[1]).sum().isfinite()) for a in args]
    who = {"healthy": healthy, "finite": finite, "count": count, "finite sum": of_sum}
    return {**who, "all": [True] * len(args), "one": [True]}


def _counts(args: Sequence[Args]) -> list[bool]:
    """Which ranks count: those that say that they are healthy and have finite updates."""
    return _who(args)["count"]


Step = Callable[[torch.Tensor, Sequence[Args]], torch.Tensor]  # (old weights, args) -> the new ones
When = Callable[[int, int], bool]  # (how many count, at_least) -> whether a step is made


def _mean(
    of: str = "count", by: str = "count", part: Callable[[torch.Tensor, bool], torch.Tensor] = lambda u, counts: u
) -> Step:
    """The weights plus the sum of these ranks' updates over the number of those; `part` makes something of each update first."""

    def step(weights: torch.Tensor, args: Sequence[Args]) -> torch.Tensor:
        who = _who(args)
        parts = [part(plain(a[1]).double(), counts) for a, counts in zip(args, who["count"], strict=True)]
        total = sum((u for u, use in zip(parts, who[of], strict=True) if use), torch.zeros(()).double())
        return weights + total / sum(who[by])

    return step


def _cleaned(of: str, by: str) -> Step:
    """The same with zeros for elements that are not finite."""
    return _mean(of, by, lambda update, counts: update.nan_to_num(0, 0, 0))


@oracle_maker
def _ending(
    setup: Setup,
    args: Sequence[Args],
    step: Step,
    when: When,
    number: Callable[[Sequence[Args]], int] | None,
    who: str = "all",
) -> list[Expected]:
    """`step` on the ranks of `who`, and the number that is returned (None: any)."""
    kind, counts = args[0][0].base.dtype, _counts(args)
    weights = plain(args[0][0]).double()
    atol = weights.abs() + sum(plain(a[1]).double().nan_to_num(0, 0, 0).abs() for a in args)
    atol, made = atol * torch.finfo(kind).eps * 2, when(sum(counts), args[0][3])
    new = step(weights, args).to(kind) if made else weights.to(kind)
    ends = [(new, atol) if made and changes else (weights.to(kind), None) for changes in _who(args)[who]]
    return [Expected(None if number is None else number(args), {(0,): end}, limit) for end, limit in ends]


def _enough(count: int, at_least: int) -> bool:
    return count >= at_least


_right = _ending(_mean(), _enough, lambda args: sum(_counts(args)))


@oracle_maker
def _changed(
    setup: Setup, args: Sequence[Args], step: Step, when: When = _enough, who: str = "all"
) -> Sequence[Expected]:
    """Other weights, whatever number is returned; where they are the right ones it explains nothing."""
    found, right = _ending(step, when, None, who)(setup, args), _right(setup, args)
    if all(same(a.changed[0,], b.changed[0,]) for a, b in zip(found, right, strict=True)):
        raise ValueError("the same weights, so it is another mistake")
    return found


def _counted(number: Callable[[Sequence[Args]], int]) -> Oracle:
    """The right weights with another number."""
    return _ending(_mean(), _enough, number)


def _nowhere(run: Run) -> bool:
    """Whether no rank changed its weights, and enough ranks count."""
    args = run.args[0]
    same_as_before = all(
        r is not None and r.tensors[0][0] is not None and same(r.tensors[0][0], a[0].tensor())
        for r, a in zip(run.results[0], args, strict=True)
    )
    return same_as_before and sum(_counts(args)) >= args[0][3]


def _few_bytes(run: Run) -> str | None:
    """One all_reduce of the update and of the count, or one of each."""
    broken = rules.calls(run, "all_reduce", "two are enough, one with the count behind the update", least=1, most=2)
    if broken:
        return broken
    for call, rank, mine in run.by_rank(run.collectives):
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


def _large(setup: Setup) -> Setup:
    return replace(setup, note="large, finite numbers").with_options(_large=True)


EXERCISE = Exercise(
    name="commit_step",
    promise="adds the healthy ranks' mean update to every rank's weights if there are at_least so many, and returns how many there are",
    groups=(
        Group("everybody healthy", 1, (_case(2, 3, 0), _case(3, 2, 0, 3), _case(4, 5, 0, 2))),
        Group("a rank that says it is not", 3, (_case(3, 4, 1, 2, "not healthy"), _case(4, 3, 2, 2, "not healthy"))),
        Group("NaN and infinity", 4, (_case(3, 4, 1, 1, "NaN"), _case(4, 3, 1, 2, "infinity"), _case(5, 4, 2, 1))),
        Group("too few", 4, (_case(3, 4, 2, 2), _case(4, 3, 1, 4), _case(3, 2, 3, 1), _case(2, 5, 1, 2))),
        Group("any rank count", 1, (_case(1, 3, 0), _case(1, 3, 1), _case(5, 3, 2, 3), _case(8, 2, 3, 5))),
        many_ranks(2, _case(9, 19, 4, 3), failed=(3, 4, 5), size=SIZES),
        Group(
            "any dtype",
            1,
            (_case(3, 4, 1, dtype="float64", values="random"), _case(4, 3, 1, dtype="bfloat16"), _case(3, 3, 1)),
        ),
        Group("any layout", 1, tuple(_case(s.ranks, s.size, 1, 2, layout=s.layout) for s in LAYOUTS)),
        circumstances(_case(3, 4, 1), job=_case(3, 3, 1)),
        Group(
            "large, finite numbers", 1, tuple(_large(_case(3, 4, 0, dtype=kind)) for kind in ("float32", "bfloat16"))
        ),
    ),
    inputs=_inputs,
    labels={"failed": "{} failed", "with": "by {}"},
    oracle=_right,
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("the update and a count, once", 4, _few_bytes),
        rules.exchanged(_update_if_committed),
    ),
    mistakes={
        "divided by the number of all ranks: the mean is over the ranks that count": [
            _ending(_mean(by="all"), _enough, number) for number in (lambda args: sum(_counts(args)), len)
        ],
        "divided by the number of ranks that say that they are healthy: one whose update is not finite does not count": _ending(
            _mean(by="healthy"), _enough, lambda args: sum(_who(args)["healthy"])
        ),
        "the sum of the healthy ranks' updates: divide it by their number": _changed(_mean(by="one")),
        "zero times NaN is NaN: put zeros in place of a failed rank's update, don't multiply it by zero": _changed(
            _mean("all", part=lambda update, counts: update * float(counts))
        ),
        "the updates of ranks that say that they are not healthy were added: "
        "both the word and the numbers count": _changed(_mean("finite", "finite")),
        "NaN or infinity came into the weights: a rank whose update is not finite does not count, whatever it "
        "says": _changed(_mean("healthy", "healthy")),
        "a rank with large, finite numbers did not count: ask of each number whether it is finite, since the sum of two, or "
        "a square, may be infinite": _ending(
            _mean("finite sum", "finite sum"), _enough, lambda args: sum(_who(args)["finite sum"])
        ),
        "elements that are not finite became zero, and the rest of that rank's update was added: the whole rank "
        "must not count": [_changed(_cleaned("healthy", by)) for by in ("healthy", "count")],
        "the updates of ranks that do not count were added: put zeros in place of the whole update of such a rank": [
            _changed(_cleaned("all", "count")),
            _changed(_mean("finite", "count")),
        ],
        "the weights were replaced by the mean update: add it to them": _changed(
            lambda weights, args: _mean()(weights * 0, args)
        ),
        "the number of all ranks came back: return the number of those that count": _counted(len),
        "the number of ranks that say that they are healthy came back: one whose update is not finite does not "
        "count": _counted(lambda args: sum(_who(args)["healthy"])),
        "0 came back where nothing was committed: return how many ranks count there too": _counted(
            lambda args: sum(_counts(args)) if sum(_counts(args)) >= args[0][3] else 0
        ),
        "only the ranks that count changed their weights: the others need the same step, or the weights are no "
        "longer equal": _changed(_mean(), who="count"),
        "committed although too few ranks are healthy: then nobody may change its weights": _changed(
            _mean(), lambda count, least: count > 0
        ),
        "not committed although there are just enough healthy ranks: at_least itself is enough": _changed(
            _mean(), lambda count, least: count > least
        ),
        "the weights are unchanged although enough ranks are healthy": (
            _changed(_mean(), lambda count, least: False),
            _nowhere,
        ),
    },
    collective="all_reduce",
    demo_setup=_case(4, 3, 1, 2, "NaN"),
    forbidden_advice="dist.all_reduce is all that it needs.",
)
EXERCISE = steadied(
    EXERCISE, {"divided by the number of all ranks": lambda setup: setup.dtype == "bfloat16" and setup.option("failed")}
)
