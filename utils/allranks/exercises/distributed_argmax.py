"""distributed_argmax(tensor) -> (value, rank, index): the global maximum; ties go to the lowest rank, then index."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, different_values, oracle_maker, plain, shape_of
from allranks.judge.common import LAYOUTS, Passed, circumstances, lost_digits, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import COLLECTIVES, YOUR_VARIANT, Exercise, Group, Rule, Run, Variants


def _place_highest(setup: Setup, numbers: list[torch.Tensor], rng: Draws) -> None:
    """Puts the highest number on rank 0 if the ranks divide the size, else on another one, and never at rank 0's own place.

    Whether it is rank 0, whether it is above zero, and which number has the largest magnitude, must not be luck: then a wrong answer
    would get points by luck.
    """
    if setup.values == "provenance" or setup.ranks < 2:
        return
    highest, lowest = (float(f(torch.stack([f(n) for n in numbers]))) for f in (torch.max, torch.min))
    if highest > -lowest:  # the largest magnitude is another number than the maximum
        for n in numbers:
            n.neg_()
        highest, lowest = -lowest, -highest
    if highest == -lowest:
        for n in numbers:
            n[n == lowest] -= 1
    elif highest <= 0:  # no other number has this magnitude
        for n in numbers:
            n[n == highest] = max(-highest, 1)
    start = max(range(setup.ranks), key=lambda rank: float(numbers[rank].max()))
    rank = 0 if setup.divides else rng.integer(1, setup.ranks)
    old = int(numbers[start].argmax())
    for index in rng.permutation(len(numbers[rank])):
        high, low = numbers[start][old].clone(), numbers[rank][index].clone()
        numbers[start][old], numbers[rank][index] = low, high
        if rank == 0 or int(numbers[0].argmax()) != index:
            return
        numbers[start][old], numbers[rank][index] = high, low
    # with one element there is one place
    high, low = numbers[start][old].clone(), numbers[rank][0].clone()
    numbers[start][old], numbers[rank][0] = low, high


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    kind = setup.option("case")
    sizes = [setup.size + (rank * setup.option("spread", 0)) % 4 for rank in range(setup.ranks)]  # they may differ
    numbers = different_values(setup, sizes, rng)
    _place_highest(setup, numbers, rng)
    tie, step = rng.integer(1, 50), rng.integer(1, 99)
    highest = max(float(n.max()) for n in numbers)
    top = 2 * highest  # exact in every dtype
    for rank, size in enumerate(sizes):
        values = numbers[rank].reshape(shape_of(setup, size))
        flat = values.view(-1)
        if kind == "ties":
            flat[:] = tie
        elif kind == "later tie" and rank:
            flat[-1] = top
            flat[max(len(flat) - 1 - rank, 0)] = top  # the lowest rank's index is not the lowest of all
        elif kind == "negative":
            flat[:] = flat - highest - 1
        elif kind == "NaN" and rank == setup.ranks - 1:
            flat[-1] = math.nan
        elif kind == "NaN on two ranks" and rank:
            flat[len(flat) - rank] = math.nan  # the lowest rank's index is not the lowest of all
            flat[0] = top
        elif kind == "infinity" and rank == setup.ranks // 2:
            flat[0] = math.inf
        elif kind == "nothing but -infinity":
            flat[:] = -math.inf
        elif kind == "large":
            flat[:] = 2**53 + 2 * step + 1 + torch.arange(len(flat)).remainder(2) + (rank == setup.ranks - 1)
        yield (View.of(values, setup.layout),)


Place = tuple[float, int, int]  # a value, its rank and its index there


def _places(args: Sequence[Args]) -> list[Place]:
    """All values but NaN, rank by rank."""
    values = ((rank, plain(view).reshape(-1).tolist()) for rank, (view,) in enumerate(args))
    return [(value, rank, index) for rank, row in values for index, value in enumerate(row) if value == value]


def _best(args: Sequence[Args], first: int = 0) -> Place:
    """The maximum and its place; of equal ones that of the lowest rank, counted from rank `first`, then of the lowest index."""
    ranks = [(first + place) % len(args) for place in range(len(args))]
    for rank in ranks:
        nan = plain(args[rank][0]).reshape(-1).isnan()
        if bool(nan.any()):
            return math.nan, rank, int(nan.double().argmax())
    return max(_places(args), key=lambda place: (place[0], -ranks.index(place[1]), -place[2]))


@oracle_maker
def _made(setup: Setup, args: Sequence[Args], make: Callable[[Place, Sequence[Args], int], Place]) -> list[Expected]:
    """What each rank returns by `make(the right answer, all ranks' arguments, rank)`."""
    best = _best(args)
    return [Expected(make(best, args, rank)) for rank in range(setup.ranks)]


_oracle = _made(lambda best, args, rank: best)


def _of_passed(setup: Setup, args: Sequence[Args], value_passed: Passed, index_passed: Passed) -> list[Expected]:
    """Each rank's maximum is compared as it arrives."""
    best: Place | None = None
    for rank, a in enumerate(args):
        value, _, index = _best([a])
        value = value_passed(value)
        if best is None or (value != value and best[0] == best[0]) or value > best[0]:
            best = (value, rank, int(index_passed(index)))
    return [Expected(best) for _ in args]


def _latest(best: Place, args: Sequence[Args], rank: int) -> Place:
    """Of equal ones the highest rank's first one."""
    ranks = [r for value, r, _ in _places(args) if value == best[0]]
    return next((place for place in _places(args) if place[:2] == (best[0], ranks[-1])), best) if ranks else best


def _last_index(best: Place, args: Sequence[Args], rank: int) -> Place:
    """Of equal ones the lowest rank's last one."""
    values = plain(args[best[1]][0]).reshape(-1).tolist()
    return (*best[:2], max(i for i, v in enumerate(values) if v == best[0] or v != v))


def _lowest_index(best: Place, args: Sequence[Args], rank: int) -> Place:
    """The lowest rank, and the lowest index of all ranks' that hold it."""
    tied = [_best([a]) for a in args]
    return (*best[:2], min(i for value, _, i in tied if value == best[0] or value != value))


_TIES = {
    "the index is the lowest of all ranks that hold the maximum: take that of the lowest of these ranks": _made(
        _lowest_index
    ),
    "ties go to the lowest rank, then the lowest index": _made(_latest),
    "ties go to the lowest rank, then the lowest index: this is the last index of that rank": _made(_last_index),
}


def _with_first(exercise: Exercise, drawn: Mapping[str, int]) -> Exercise:
    first = drawn["first"]
    cause = f"of equal maxima rank {first}'s comes first, then those of the ranks behind it, round the ring: here rank 0's came first"
    return replace(
        exercise,
        oracle=lambda setup, args: [Expected(_best(args, first)) for _ in args],
        groups=(*exercise.groups, Group(YOUR_VARIANT, 4, _case("ties", Setup(8, 2), Setup(5, 3)))),
        # what the others know of ties is true of rank 0 only
        mistakes={cause: _oracle, **{c: told for c, told in exercise.mistakes.items() if c not in _TIES}},
    )


def _bytes(run: Run) -> str | None:
    return rules.received_at_most(run, 16 * run.ranks, f"16 bytes x {run.ranks} ranks")


def _case(name: str, *setups: Setup) -> tuple[Setup, ...]:
    return tuple(s.with_options(case=name) for s in setups)


EXERCISE = Exercise(
    name="distributed_argmax",
    promise="returns the global maximum, its rank and its flat index there",
    groups=(
        Group("right maximum", 3, (Setup(2, 3), Setup(3, 4), Setup(4, 5))),
        Group("any rank count", 1, (Setup(1, 4), Setup(5, 2), Setup(8, 3))),
        many_ranks(size=(47, 53, 59)),
        Group(
            "any size",
            1,
            (Setup(3, 1), Setup(4, 17), Setup(3, 1).with_options(spread=3), Setup(4, 2).with_options(spread=1)),
        ),
        Group("ties", 4, (*_case("ties", Setup(2, 2), Setup(3, 4)), *_case("later tie", Setup(3, 5), Setup(4, 6)))),
        Group(
            "negative, NaN and infinity",
            4,
            (
                *_case("negative", Setup(3, 3), Setup(3, 4)),  # the highest is on rank 0, or on another one
                *_case("NaN", Setup(3, 3)),
                *_case("NaN on two ranks", Setup(3, 4)),
                *_case("infinity", Setup(4, 3)),
                *_case("nothing but -infinity", Setup(3, 3)),
            ),
        ),
        Group(
            "any dtype",
            2,
            (
                Setup(3, 6, "float64", values="precise"),
                Setup(3, 6, "bfloat16"),
                Setup(3, 6, "int32"),
                *_case("large", Setup(3, 6, "int64")),
                *_case("later tie", Setup(2, 603, "bfloat16")),  # an index that bfloat16 can't hold
            ),
        ),
        Group("any layout", 1, LAYOUTS),
        circumstances(Setup(3, 6)),
    ),
    inputs=_inputs,
    labels={"case": "{}", "spread": "more on some ranks"},
    oracle=_oracle,
    allow=COLLECTIVES,
    rules=(
        Rule("at most 16 bytes x p received", 8, _bytes),
        rules.in_dtype(0, whole=True),
        rules.exchanged(rules.numbers(lambda s: 1)),
    ),
    mistakes={
        "each rank's own maximum: compare over all ranks": _made(
            lambda best, args, rank: (_best([args[rank]])[0], rank, _best([args[rank]])[2])
        ),
        "the index counts through all ranks' tensors: it must be the flat index on its rank": _made(
            lambda best, args, rank: (*best[:2], best[2] + sum(plain(a[0]).numel() for a in args[: best[1]]))
        ),
        **lost_digits("the value", "the index", _of_passed),
        **_TIES,
        "each rank's own rank and index with the global maximum: take those of the rank that holds it": _made(
            lambda best, args, rank: (best[0], rank, _best([args[rank]])[2])
        ),
        "the index is that of each rank's own maximum: take the index that came from the rank that holds the "
        "maximum": _made(lambda best, args, rank: (*best[:2], _best([args[rank]])[2])),
        "the index is that of rank 0's own maximum: take the index of the rank that holds the maximum": _made(
            lambda best, args, rank: (*best[:2], _best(args[:1])[2])
        ),
        "rank and index are swapped: return (value, rank, index)": _made(
            lambda best, args, rank: (best[0], best[2], best[1])
        ),
        "the index is that in the last dimension: it must be the flat index, which counts all elements of that "
        "rank's tensor": _made(lambda best, args, rank: (*best[:2], best[2] % plain(args[best[1]][0]).shape[-1])),
        "NaN was ignored: it is the maximum, as in torch.argmax": _made(
            lambda best, args, rank: max(_places(args), key=lambda place: (place[0], -place[1], -place[2]))
        ),
        "the search began with 0, so nothing below it was found: begin with a value that is there": [
            _made(lambda best, args, rank: (0.0, 0, 0) if best[0] < 0 else best),
            _made(lambda best, args, rank: _best(args[:1]) if best[0] < 0 else best),
        ],
        "the largest magnitude instead of the maximum": _made(
            lambda best, args, rank: max(_places(args), key=lambda place: (abs(place[0]), -place[1], -place[2]))
        ),
        "the minimum instead of the maximum": _made(lambda best, args, rank: min(_places(args))),
    },
    variants=Variants(
        (("first", (1, 2, 3, 4, 5, 6, 7)),),
        "ties begin at rank {first}",
        "of equal maxima the one of rank {first} comes first (rank {first} mod p in a world of p ranks), then those of the ranks behind it, "
        "round the ring, and rank {first} - 1 comes last. On one rank it is the lowest index, as before.",
        _with_first,
    ),
    collective="all_gather",
    demo_setup=Setup(4, 4),
    forbidden_advice="Use collectives on tensors, such as all_gather.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "each rank's own maximum: take the index": lambda setup: (
            setup.size > 1 and setup.option("case") not in ("ties", "nothing but -infinity", "large")
        ),
        "rank 0's own maximum": lambda setup: (
            setup.option("case") in ("later tie", "NaN", "NaN on two ranks", "infinity")
        ),
        "rank and index are swapped": lambda setup: (
            setup.option("case") in (None, "negative") and (setup.size > 1 or bool(setup.option("spread")))
        ),
        "the index is that in the last dimension": lambda setup: setup.layout in ("transposed", "three dimensions"),
        "the value travelled as bfloat16": lambda setup: setup.ranks > 8,
    },
)
