"""What many exercises share: lists of cases, oracles and typical mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, oracle_maker, plain, summed
from allranks.judge.evidence import travelled_as
from allranks.judge.exercise import About, FaultKind, Group, Mistakes, ResultFault, Run

Make = Callable[[list[torch.Tensor], int, Setup], torch.Tensor | None]  # (all ranks' inputs, rank, setup)


def sum_oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The oracle of functions that replace their first tensor by its sum over the ranks."""
    total, atol = summed([plain(a[0]) for a in args])
    return [Expected(None, {(0,): total}, atol) for _ in args]


@oracle_maker
def in_place(setup: Setup, args: Sequence[Args], make: Make) -> list[Expected]:
    """Of a function that works in place: `make(tensors, rank, setup)` is what it leaves in the rank's tensor.

    None stands for an unchanged tensor. `tensors` are all ranks' inputs.
    """
    tensors = [plain(a[0]) for a in args]
    atol = summed(tensors)[1]
    made = [make(tensors, rank, setup) for rank in range(setup.ranks)]
    return [Expected(None, {} if t is None else {(0,): t}, atol) for t in made]


@oracle_maker
def returning(setup: Setup, args: Sequence[Args], make: Make) -> list[Expected]:
    """Of a function that returns a tensor: `make(tensors, rank, setup)` is what it returns on that rank."""
    tensors = [plain(a[0]) for a in args]
    atol = summed(tensors)[1] if len({t.shape for t in tensors}) == 1 else None
    limit = None if atol is None or not atol.numel() else float(atol.max())
    return [Expected(make(tensors, rank, setup), {}, limit) for rank in range(setup.ranks)]


# the typical mistakes of functions that sum in place
SUM_MISTAKES: Mistakes = {
    "the mean instead of the sum: an all-reduce adds and does not divide": [
        in_place(lambda t, rank, setup: (summed(t)[0] / len(t)).to(t[0].dtype)),
        in_place(lambda t, rank, setup: torch.div(summed(t)[0], len(t), rounding_mode="floor").to(t[0].dtype)),
    ],
    "each rank's own contribution is missing from its result": in_place(lambda t, rank, setup: summed(t)[0] - t[rank]),
    "each rank's own contribution was added twice": in_place(lambda t, rank, setup: summed(t)[0] + t[rank]),
}


def explain_sum(run: Run, fault: ResultFault) -> str | None:
    """By provenance: the first step that sent something wrong, else what is wrong at the end."""
    if fault.kind is not FaultKind.VALUES:
        return None
    return rules.first_wrong_step(run) or rules.wrong_end_state(run, fault.rank, fault.call)


Passed = Callable[[float], float]  # a number as it arrives


def lost_digits(
    value: str, index: str, predict: Callable[[Setup, Sequence[Args], Passed, Passed], list[Expected]]
) -> Mistakes:
    """The mistakes of functions that send values and indices in a dtype which can't hold one of them, or both.

    `value` and `index` name the two. `predict(setup, args, value_passed, index_passed)` is what they then return.
    """
    what = {(True, False): value, (False, True): index, (True, True): f"{value} and {index}"}
    return {
        f"{named} travelled as {str(kind).removeprefix('torch.')} and lost digits: send each in its own dtype": (
            _passed_as(predict, kind, *which),
            travelled_as(kind),
        )
        for kind in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
        for which, named in what.items()
    }


@oracle_maker
def _passed_as(
    setup: Setup,
    args: Sequence[Args],
    predict: Callable[[Setup, Sequence[Args], Passed, Passed], list[Expected]],
    kind: torch.dtype,
    values: bool,
    indices: bool,
) -> list[Expected]:
    """What is returned where values, indices or both travel in this dtype."""
    lost: set[bool] = set()

    def passing(of_value: bool) -> Passed:
        def passed(number: float) -> float:
            arrives = torch.tensor(number, dtype=_wide(number)).to(kind).item()
            if isinstance(number, int) and not math.isfinite(arrives):
                raise ValueError("it arrives as no whole number")
            kept = type(number)(arrives)
            if kept != number and number == number:
                lost.add(of_value)
            return kept

        return passed if (values if of_value else indices) else lambda number: number

    predicted = predict(setup, args, passing(True), passing(False))
    if lost != {of_value for of_value, sent in ((True, values), (False, indices)) if sent}:
        raise ValueError("it holds them")
    return predicted


def _wide(number: float) -> torch.dtype:
    return torch.int64 if isinstance(number, int) else torch.float64


LAYOUTS = (
    Setup(3, 6, layout="offset"),
    Setup(3, 6, layout="strided"),
    Setup(4, 12, layout="transposed"),
    Setup(3, 12, layout="three dimensions"),
)
SUM_DTYPES = (
    Setup(3, 6, "float64", values="precise"),
    Setup(4, 8, "int64", values="precise"),
    Setup(3, 6, "bfloat16"),
    Setup(4, 8, "uint8"),
    Setup(3, 6, "complex64"),
)
MOVED_DTYPES = (
    Setup(3, 6, "float64", values="precise"),
    Setup(4, 8, "int64", values="precise"),
    Setup(3, 6, "bfloat16"),
    Setup(3, 6, "bool"),
    Setup(3, 6, "complex64"),
)
CIRCUMSTANCES = (
    Setup(3, 6, times=2),
    Setup(3, 6, outer_world=True),
    Setup(4, 12, delivery="shuffled"),
    Setup(4, 10, times=2, delivery="shuffled"),
)


# of rank counts and sizes: larger than those of the other cases, odd, and no size a multiple of a rank count. Pieces of length
# ceil(size / ranks) are fewer than the ranks for all of them, so that one who cuts so fails with every secret, or with none
MANY_RANKS = (9, 11, 13)
RING_RANKS = (9, 11)  # where p ranks send p(p-1) messages or more: a verdict has a second
SIZES = (19, 23, 29, 47)


def three_numbers_a_row(run: Run, enough: str, why: str) -> str | None:
    """At most three all_reduces, of three values a row in all: `enough` and `why` say so in words."""
    if broken := rules.calls(run, "all_reduce", enough, most=3):
        return broken
    rows = run.setup.size
    for rank in range(run.ranks):
        mine = [e for e in run.collectives if e.rank == rank]
        if sum(e.numel for e in mine) > 3 * rows * run.setup.times:
            most = max(mine, key=lambda e: e.numel)
            return About(
                f"rank {rank} reduces {most.numel} values{run.at(most.line)}, but there are {rows} rows: three values a row are {why}",
                most,
            )
    return None


def of_width(width: int, *setups: Setup) -> tuple[Setup, ...]:
    """The setups with so many columns a rank."""
    return tuple(s.with_options(width=width) for s in setups)


def many_ranks(weight: float = 2, setup: Setup | None = None, **choices: tuple) -> Group:
    """A group of one case with a rank count from 9 to 13 and a size that nobody can know before."""
    setup, choices = setup or Setup(9, 19), choices or {"size": SIZES}
    return Group("many ranks", weight, (setup.with_choices(**{"ranks": MANY_RANKS, **choices}),))


def circumstances(case: Setup, *, job: Setup | None = None, delayed: Setup | None = None) -> Group:
    """A group: the case twice in a row, it or `job` as part of a larger job, and `delayed` with messages that are late."""
    late = () if delayed is None else (replace(delayed, delivery="shuffled"),)
    return Group("any circumstances", 1, (replace(case, times=2), replace(job or case, outer_world=True), *late))


def layouts(case: Setup, *names: str) -> Group:
    """A group: the case in these layouts."""
    return Group("any layout", 1, tuple(replace(case, layout=name) for name in names))


# rows of logits, shifted and scaled so that exp without a maximum subtracted overflows
LOGIT_GROUPS = (
    Group(
        "stable",
        3,
        (
            *tuple(s.with_options(shift=c) for s, c in ((Setup(2, 2), 10000), (Setup(3, 2), -10000))),
            *tuple(s.with_options(scale=1000) for s in (Setup(3, 2), Setup(4, 3))),
            Setup(4, 2, "float64", values="random").with_options(scale=10000),
        ),
    ),
    Group(
        "any dtype",
        1,
        (Setup(3, 2, "float64", values="random"), Setup(3, 2, "bfloat16"), Setup(2, 3, values="random")),
    ),
    circumstances(Setup(3, 2)),
)


def stretched(logits: torch.Tensor, setup: Setup) -> torch.Tensor:
    """Logits as the options `scale` and `shift` say. With a scale each row is far below the one before: that must not be luck."""
    scale, shift = setup.option("scale", 1), setup.option("shift", 0)
    return logits * scale + shift - (20 * scale * torch.arange(setup.size)[:, None] if scale > 1 else 0)


def with_root(setups: Sequence[Setup], root: int = 1) -> tuple[Setup, ...]:
    """The same setups with this root, or with their last rank if they have fewer ranks."""
    return tuple(replace(s, root=min(root, s.ranks - 1)) for s in setups)


def every_root(ranks: int, size: int) -> tuple[Setup, ...]:
    """One setup for each root."""
    return tuple(Setup(ranks, size, root=root) for root in range(ranks))


def rooted_groups(first: str, dtypes: Sequence[Setup]) -> tuple[Group, ...]:
    """The groups of an exercise with a root; `first` is the name of the first group."""
    return (
        Group(first, 3, with_root((Setup(2, 3), Setup(3, 4), Setup(4, 5)), 0)),
        Group("every root", 2, (*every_root(2, 3), *every_root(3, 3), *every_root(5, 2))),
        Group(
            "any rank count",
            1,
            (
                *with_root((Setup(1, 3),), 0),
                *with_root((Setup(4, 6), Setup(5, 3), Setup(8, 5)), 2),
                Setup(8, 4, root=7),
            ),
        ),
        many_ranks(root=(3, 6, 8), size=SIZES),
        Group("any size", 1, with_root((Setup(3, 0), Setup(3, 1), Setup(4, 17)))),
        Group("any dtype", 1, with_root(dtypes)),
        Group("any layout", 1, with_root(LAYOUTS)),
        Group("any circumstances", 1, with_root(CIRCUMSTANCES)),
    )
