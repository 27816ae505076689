"""distributed_top_k(tensor, k) -> (values, ranks, indices): the k largest of all ranks, largest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from allranks.exercises.families import only_where, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, different_values, oracle_maker, plain, shape_of
from allranks.judge.common import LAYOUTS, RING_RANKS, SIZES, Passed, circumstances, lost_digits, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import COLLECTIVES, Exercise, Group, Rule, Run


def _dealt(numbers: list[torch.Tensor], k: int, first: int, rng: Draws) -> list[torch.Tensor]:
    """The same numbers: in a small world rank `first` has all but one of the k largest, in a large one each rank has its share of them.

    How many one rank has must not be luck: then an answer in which too few of each rank take part would get points by luck.
    """
    p, size = len(numbers), len(numbers[0])
    ordered = torch.cat(numbers).sort(descending=True).values
    owners = [(first + (i == k - 1 if p <= 4 and k <= size else i)) % p for i in range(k)]
    rest = list(ordered[k:][rng.permutation(len(ordered) - k)])
    made = []
    for rank in range(p):
        mine = [value for value, owner in zip(ordered, owners, strict=False) if owner == rank]
        mine += [rest.pop() for _ in range(size - len(mine))]
        made.append(torch.stack(mine)[rng.permutation(size)])
    return made


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    kind, k = setup.option("case"), setup.option("k", 2)
    numbers, tie = different_values(setup, [setup.size] * setup.ranks, rng), rng.integer(1, 50)
    if setup.values == "small":  # one half is above zero, the other below it: how many are must not be luck
        middle = torch.cat(numbers).sort(descending=True).values[setup.ranks * setup.size // 2]
        numbers = [2 * (n - middle) - 1 for n in numbers]
    if setup.values != "provenance":  # the largest magnitudes are below zero: that must not be luck either
        numbers = [torch.where(n < 0, 2 * n, n) for n in numbers]
    if setup.values != "provenance":
        # the last rank gets a NaN, which is one of the k largest
        numbers = _dealt(numbers, k, rng.integer(0, setup.ranks - (kind == "NaN")), rng)
    highest = max((float(n.max()) for n in numbers if n.numel()), default=0.0)
    for rank in range(setup.ranks):
        values = numbers[rank].reshape(shape_of(setup))
        flat = values.view(-1)
        if kind == "ties":
            flat[:] = tie
        elif kind == "few values":  # more than sort keeps in order by itself, which is up to 16
            flat[:] = torch.tensor([1 + i % 3 for i in rng.of_rank(rank).permutation(setup.size)]).to(flat.dtype)
        elif kind == "all on one rank" and rank < setup.ranks - 1:
            flat[:] = -flat.abs() - 1
        elif kind == "all on one rank":
            flat[:] = 0
            flat[[-1, -3, -2]] = torch.tensor([tie, 2 * tie, 4 * tie]).to(flat.dtype)
        elif kind == "NaN" and rank == setup.ranks - 1:  # one, since two would be a tie
            flat[-1] = math.nan
        elif kind == "nothing but -infinity":
            flat[:] = -math.inf
        elif kind == "negative":
            flat[:] = flat - highest - 1
        yield View.of(values, setup.layout), k


def _ranked(args: Sequence[Args]) -> list[tuple]:
    places = [(v, r, i) for r, a in enumerate(args) for i, v in enumerate(plain(a[0]).reshape(-1).tolist())]
    return sorted(places, key=lambda x: (x[0] == x[0], -x[0] if x[0] == x[0] else 0, x[1], x[2]))


Place = tuple[float, int, int]  # a value, its rank and its index there


@oracle_maker
def _made(
    setup: Setup, args: Sequence[Args], make: Callable[[Sequence[Args], int], Sequence[Place]]
) -> Iterator[Expected]:
    """What each rank returns by `make(all ranks' arguments, rank)`."""
    for rank in range(setup.ranks):
        places, kind = make(args, rank), args[0][0].base.dtype
        kinds = (kind, torch.int64, torch.int64)
        yield Expected(tuple(torch.tensor([p[i] for p in places], dtype=k) for i, k in enumerate(kinds)))


def _top(args: Sequence[Args]) -> list[Place]:
    """The right answer; of some ranks' arguments only, the same among them."""
    return _ranked(args)[: args[0][1]]


_oracle = _made(lambda args, rank: _top(args))


def _each(change: Callable[[Place, Sequence[Args], int], Place]) -> Oracle:
    """The right answer with `change(place, args, rank)` for each of its places."""
    return _made(lambda args, rank: [change(place, args, rank) for place in _top(args)])


def _numel(args: Sequence[Args]) -> int:
    return plain(args[0][0]).numel()


def _of_passed(setup: Setup, args: Sequence[Args], value_passed: Passed, index_passed: Passed) -> list[Expected]:
    """Each rank's largest are compared as they arrive."""
    passed = [(value_passed(v), r, i) for r, a in enumerate(args) for v, _, i in _top([a])]
    places = sorted(passed, key=lambda x: (x[0] == x[0], -x[0] if x[0] == x[0] else 0, x[1]))[: args[0][1]]
    return list(_made(lambda args, rank: [(v, r, int(index_passed(i))) for v, r, i in places])(setup, args))


def _as_candidate(place: Place, args: Sequence[Args], each: int) -> int:
    """Where a value stands among its rank's candidates, with `each` candidates of every rank before it."""
    _, rank, index = place
    return [i for _, _, i in _top([args[rank]])].index(index) + rank * each


def _best_by(key: Callable[[float], float], of_each: Callable[[Sequence[Args]], Sequence[Place]]) -> Oracle:
    """The candidates `of_each` rank, sorted by `key`."""

    def make(args: Sequence[Args], rank: int) -> list[Place]:
        found = [(v, r, i) for r, a in enumerate(args) for v, _, i in of_each([a])]
        return sorted(found, key=lambda place: (place[0] == place[0], key(place[0])))[: args[0][1]]

    return _made(make)


def _numbers(args: Sequence[Args]) -> list[Place]:
    """All values but NaN, largest first."""
    return [place for place in _ranked(args) if place[0] == place[0]]


def _largest_magnitudes(args: Sequence[Args]) -> list[Place]:
    return sorted(_ranked(args), key=lambda place: (place[0] == place[0], -abs(place[0])))[: args[0][1]]


def _too_few(of_each: Callable[[int, int], int]) -> Oracle:
    """Only the best `of_each(k, p)` of each rank take part."""

    def make(args: Sequence[Args], rank: int) -> list[Place]:
        k, p = args[0][1], len(args)
        best = {(r, place[2]) for r, a in enumerate(args) for place in _ranked([a])[: max(of_each(k, p), 1)]}
        return [place for place in _ranked(args) if place[1:] in best][:k]

    return _made(make)


def _few(setup: Setup, args: Sequence[Args]) -> bool:
    """Whether a rank has fewer than k values: else it is another mistake."""
    return setup.size < args[0][1]


def _some_equal(setup: Setup, args: Sequence[Args]) -> bool:
    """Whether two values are equal of those that are at least the k-th largest."""
    places, k = _ranked(args), args[0][1]
    least = places[k - 1][0] if 0 < k <= len(places) else -math.inf
    top = [str(v) for v, _, _ in places if v >= least or v != v]
    return len(set(top)) < len(top)


# the right values with any ranks and indices, where values are equal
_VALUES_ONLY = only_where(
    _some_equal, lambda setup, args: [Expected((e.returns[0], None, None)) for e in _oracle(setup, args)]
)


def _own_rank(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right values, with the caller's rank for each."""
    right = _oracle(setup, args)
    return [Expected((w.returns[0], torch.full_like(w.returns[1], r), None)) for r, w in enumerate(right)]


Triple = Sequence[Any]  # values, ranks and indices


def _triples(run: Run) -> list[tuple[Triple, Triple]]:
    """What ranks returned that has three items, each with what it had to be."""
    return [
        (got.returned, want.returns)
        for results, wanted in zip(run.results, run.expected, strict=True)
        for got, want in zip(results, wanted, strict=True)
        if got is not None and isinstance(got.returned, tuple | list) and len(got.returned) == 3
    ]


def _other_indices(run: Run) -> bool:
    """Whether some rank's indices differ from the right ones, and each place is named once."""
    differ = any(isinstance(got[2], torch.Tensor) and not torch.equal(got[2], want[2]) for got, want in _triples(run))
    return differ and not _repeated(run)


def _repeated(run: Run) -> bool:
    """Whether a rank returned one place, an index on a rank, more than once."""
    for (_, ranks, indices), _ in _triples(run):
        if isinstance(ranks, torch.Tensor) and isinstance(indices, torch.Tensor):
            places = list(zip(ranks.reshape(-1).tolist(), indices.reshape(-1).tolist(), strict=False))
            if len(set(places)) < len(places):
                return True
    return False


def _bytes(run: Run) -> str | None:
    k = run.args[0][0][1]
    return rules.received_at_most(run, 16 * k * run.ranks, f"16 bytes x k = {k} x {run.ranks} ranks")


def _k(k: int, *setups: Setup) -> tuple[Setup, ...]:
    return tuple(s.with_options(k=k) for s in setups)


def _case(name: str, *setups: Setup) -> tuple[Setup, ...]:
    return tuple(s.with_options(case=name) for s in setups)


EXERCISE = Exercise(
    name="distributed_top_k",
    promise="returns the k largest values of all ranks with their ranks and flat indices, largest first",
    groups=(
        Group("right values", 3, _k(2, Setup(2, 4), Setup(3, 5), Setup(4, 6))),
        Group(
            "any k",
            2,
            (*_k(1, Setup(3, 4)), *_k(5, Setup(3, 2)), *_k(6, Setup(3, 2)), *_k(3, Setup(4, 1)), *_k(0, Setup(3, 4))),
        ),
        Group("any rank count", 1, _k(3, Setup(1, 4), Setup(5, 3), Setup(8, 4))),
        many_ranks(ranks=RING_RANKS, k=(3, 4), size=SIZES),
        Group(
            "ties",
            4,
            (
                *_k(3, *_case("ties", Setup(2, 2), Setup(3, 4))),
                *_k(11, *_case("few values", Setup(3, 20), Setup(4, 5))),
            ),
        ),
        Group(
            "negative and NaN",
            2,
            (
                *_k(3, *_case("negative", Setup(3, 3)), *_case("NaN", Setup(3, 4))),
                *_k(3, *_case("all on one rank", Setup(3, 5))),
                *_k(5, *_case("nothing but -infinity", Setup(3, 2))),
            ),
        ),
        Group(
            "any dtype",
            2,
            _k(
                3,
                Setup(3, 6, "float64", values="precise"),
                Setup(3, 6, "bfloat16"),
                Setup(3, 6, "int32"),
                Setup(3, 6, "int64", values="precise"),
                *_case("all on one rank", Setup(2, 600, "bfloat16")),  # indices that bfloat16 can't hold
            ),
        ),
        Group("any layout", 1, _k(2, *LAYOUTS)),
        circumstances(*_k(2, Setup(3, 6))),
    ),
    inputs=_inputs,
    labels={"case": "{}"},
    oracle=_oracle,
    allow=COLLECTIVES,
    rules=(
        Rule("at most 16 bytes x k x p received", 8, _bytes, lambda s: s.ranks > 1 and s.option("k") > 0),
        rules.in_dtype(0, whole=True),
        rules.exchanged(rules.numbers(lambda s: min(s.option("k"), 1))),
    ),
    mistakes={
        "each rank's own top k: compare over all ranks": _made(
            lambda args, rank: [(v, rank, i) for v, _, i in _top([args[rank]])]
        ),
        "the indices count through all ranks' tensors: each must be the flat index on its rank": _each(
            lambda place, args, rank: (*place[:2], place[1] * _numel(args) + place[2])
        ),
        **lost_digits("the values", "the indices", _of_passed),
        "the indices are places among the gathered candidates: send each value's flat index on its rank too, and "
        "take that one": [
            _each(lambda place, args, rank: (*place[:2], _as_candidate(place, args, len(_top(args[:1]))))),
            _each(lambda place, args, rank: (*place[:2], _as_candidate(place, args, args[0][1]))),
        ],
        "the indices are places in each rank's own top k: take the flat index in the rank's tensor": _each(
            lambda place, args, rank: (*place[:2], _as_candidate(place, args, 0))
        ),
        "only the best of each rank took part: several of the top k may be on one rank": _too_few(lambda k, p: 1),
        "fewer than k candidates of each rank took part: all of the top k may be on one rank": [
            _too_few(of_each)
            for of_each in (
                lambda k, p: -(-k // p),
                lambda k, p: k // p + 1,
                lambda k, p: -(-k // p) + 1,
                lambda k, p: k - 1,
            )
        ],
        "NaN was passed over: it counts as the largest, as in torch.topk": _made(
            lambda args, rank: _numbers(args)[: args[0][1]]
        ),
        "the largest absolute values took part: a negative number is small, however large its absolute value": [
            _best_by(key, _largest_magnitudes) for key in (lambda value: -value, lambda value: -abs(value))
        ],
        "the k smallest instead of the largest": _made(lambda args, rank: sorted(_ranked(args))[: args[0][1]]),
        "smallest first: the largest must come first": _made(lambda args, rank: _top(args)[::-1]),
        "ties go to the lowest rank, then the lowest index": _made(
            lambda args, rank: sorted(_ranked(args), key=lambda x: (-x[0], -x[1], x[2]))[: args[0][1]]
        ),
        "the right values with other indices: ties go to the lowest rank, then the lowest index, and neither "
        "torch.topk nor a sort that is not stable promises that": (_VALUES_ONLY, _other_indices),
        "the right values, but one place, an index on a rank, is returned more than once: probably values that "
        "were filled in took part, as where a rank has fewer than k": (_VALUES_ONLY, _repeated),
        "the ranks are those of candidates in groups of k: a rank with fewer "
        "than k values has fewer candidates": only_where(
            _few,
            _each(
                lambda place, args, rank: (
                    place[0],
                    _as_candidate(place, args, _numel(args)) // args[0][1],
                    place[2],
                )
            ),
        ),
        "every value is said to be rank 0's, where a rank has fewer than k values": only_where(
            _few, _each(lambda place, args, rank: (place[0], 0, place[2]))
        ),
        "ranks and indices are swapped: return values, ranks and indices in this order": _each(
            lambda place, args, rank: (place[0], place[2], place[1])
        ),
        "each rank says that all of them are its own: a value's rank is the one that held it": _own_rank,
    },
    collective="all_gather",
    demo_setup=Setup(4, 4).with_options(k=2),
    forbidden_advice="Use collectives on tensors, such as all_gather.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "the indices are places among": lambda setup: setup.option("k") > 0 and setup.option("case") != "ties",
        "the indices count": lambda setup: setup.option("k") == 1,
        "the indices are places in each": lambda setup: (
            setup.option("k") > 0 and setup.size > 1 and setup.option("case") in (None, "negative")
        ),
        "ranks and indices are swapped": lambda setup: setup.option("k") > 0,
        "the largest absolute values": lambda setup: (
            0 < setup.option("k") < setup.size and setup.option("case") in (None, "NaN")
        ),
    },
)
