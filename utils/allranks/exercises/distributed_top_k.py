"""distributed_top_k(tensor, k) -> (values, ranks, indices): the k largest of all ranks, largest first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, different_values, plain, shape_of
from allranks.judge.common import LAYOUTS, RING_RANKS, SIZES, Passed, lost_digits, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import COLLECTIVES, Exercise, Group, Rule, Run


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    kind, k = setup.option("case"), setup.option("k", 2)
    numbers, tie = different_values(setup, [setup.size] * setup.ranks, rng), rng.integer(1, 50)
    highest = max((float(n.max()) for n in numbers if n.numel()), default=0.0)
    made = []
    for rank in range(setup.ranks):
        values = numbers[rank].reshape(shape_of(setup))
        flat = values.view(-1)
        if kind == "ties":
            flat[:] = tie
        elif kind == "few values":  # more than sort keeps in order by itself, which is up to 16
            flat[:] = rng.of_rank(rank).integers(1, 4, setup.size).to(flat.dtype)
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
        made.append((View.of(values, setup.layout), k))
    return made


def _ranked(args: Sequence[Args]) -> list[tuple]:
    places = [(v, r, i) for r, a in enumerate(args) for i, v in enumerate(plain(a[0]).reshape(-1).tolist())]
    return sorted(places, key=lambda x: (x[0] == x[0], -x[0] if x[0] == x[0] else 0, x[1], x[2]))


def _made(places: list[tuple], kind: torch.dtype, setup: Setup) -> list[Expected]:
    values = torch.tensor([v for v, _, _ in places], dtype=kind)
    ranks = torch.tensor([r for _, r, _ in places], dtype=torch.int64)
    indices = torch.tensor([i for _, _, i in places], dtype=torch.int64)
    return [Expected((values, ranks, indices)) for _ in range(setup.ranks)]


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _made(_ranked(args)[: args[0][1]], args[0][0].base.dtype, setup)


def _own(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    found = []
    for rank, a in enumerate(args):
        places = [(v, rank, i) for v, _, i in _ranked([a])[: a[1]]]
        found.append(_made(places, a[0].base.dtype, setup)[0])
    return found


def _joined_index(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    places = [(v, r, r * setup.size + i) for v, r, i in _ranked(args)[: args[0][1]]]
    return _made(places, args[0][0].base.dtype, setup)


def _of_passed(setup: Setup, args: Sequence[Args], value_passed: Passed, index_passed: Passed) -> list[Expected]:
    """Each rank's largest are compared as they arrive."""
    k, kind = args[0][1], args[0][0].base.dtype
    passed = [(value_passed(v), r, i) for r, a in enumerate(args) for v, _, i in _ranked([a])[:k]]
    places = sorted(passed, key=lambda x: (x[0] == x[0], -x[0] if x[0] == x[0] else 0, x[1]))[:k]
    return _made([(v, r, int(index_passed(i))) for v, r, i in places], kind, setup)


def _place(among_all: bool) -> Oracle:
    """The place of each candidate among all that were gathered, k of each rank or as many as it has, or among those of its rank."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        k, kind = args[0][1], args[0][0].base.dtype
        each = min(k, setup.size)
        order = [{i: place for place, (_, _, i) in enumerate(_ranked([a])[:k])} for a in args]
        places = [(v, r, order[r][i] + (r * each if among_all else 0)) for v, r, i in _ranked(args)[:k]]
        return _made(places, kind, setup)

    return oracle


def _place_of_padded(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The place among all candidates, where a rank with fewer than k fills up."""
    k = args[0][1]
    return [Expected((*w.returns[:2], w.returns[2] + w.returns[1] * k)) for w in _place(among_all=False)(setup, args)]


def _one_from_each(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Only the best of each rank takes part."""
    best = [(v, r, i) for r, a in enumerate(args) for v, _, i in _ranked([a])[:1]]
    places = sorted(best, key=lambda x: (-x[0], x[1]))[: args[0][1]]
    return _made(places, args[0][0].base.dtype, setup)


def _by_absolute_value(own_only: bool) -> Oracle:
    """Each rank's candidates are those of the largest absolute value, and so are the best of them if not `own_only`."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        k = args[0][1]
        each = [sorted(_ranked([a]), key=lambda x: -abs(x[0]))[:k] for a in args]
        best = [(v, r, i) for r, found in enumerate(each) for v, _, i in found]
        best.sort(key=lambda x: -x[0] if own_only else -abs(x[0]))
        return _made(best[:k], args[0][0].base.dtype, setup)

    return oracle


def _smallest(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _made(sorted(_ranked(args))[: args[0][1]], args[0][0].base.dtype, setup)


def _late_ties(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    places = sorted(_ranked(args), key=lambda x: (-x[0], -x[1], x[2]))[: args[0][1]]
    return _made(places, args[0][0].base.dtype, setup)


def _ascending(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return _made(_ranked(args)[: args[0][1]][::-1], args[0][0].base.dtype, setup)


def _values_only(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right values with any ranks and indices, where values are equal."""
    places, k = _ranked(args), args[0][1]
    least = places[k - 1][0] if 0 < k <= len(places) else -math.inf
    top = [v for v, _, _ in places if v >= least or v != v]
    if len({str(v) for v in top}) == len(top):
        raise ValueError("no two are equal, so it is another mistake")
    return [Expected((wanted.returns[0], None, None)) for wanted in _oracle(setup, args)]


def _own_rank(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right values, with the caller's rank for each."""
    right = _oracle(setup, args)
    return [Expected((w.returns[0], torch.full_like(w.returns[1], r), None)) for r, w in enumerate(right)]


def _rank_by_k(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The rank from the place among all candidates, as if each rank had k of them."""
    k = args[0][1]
    if setup.size >= k:
        raise ValueError("each rank has k candidates, so it is another mistake")
    order = [{i: place for place, (_, _, i) in enumerate(_ranked([a])[:k])} for a in args]
    places = [(v, (r * setup.size + order[r][i]) // k, i) for v, r, i in _ranked(args)[:k]]
    return _made(places, args[0][0].base.dtype, setup)


def _rank_zero(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    if setup.size >= args[0][1]:
        raise ValueError("each rank has k candidates, so it is another mistake")
    right = _oracle(setup, args)
    return [Expected((w.returns[0], torch.zeros_like(w.returns[1]), w.returns[2])) for w in right]


def _swapped(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return [Expected((w.returns[0], w.returns[2], w.returns[1])) for w in _oracle(setup, args)]


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


def _one_value(run: Run, call: int, rank: int) -> int:
    return run.itemsize if run.setup.option("k") else 0


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
        Group("any circumstances", 1, _k(2, Setup(3, 6, times=2), Setup(3, 6, outer_world=True))),
    ),
    inputs=_inputs,
    labels={"case": "{}"},
    oracle=_oracle,
    allow=COLLECTIVES,
    rules=(
        Rule("at most 16 bytes x k x p received", 8, _bytes, lambda s: s.ranks > 1 and s.option("k") > 0),
        rules.in_dtype(0, whole=True),
        rules.carried(_one_value, _one_value),
    ),
    mistakes=known(
        {
            "each rank's own top k: compare over all ranks": _own,
            "the indices count through all ranks' tensors: each must be the flat index on its rank": _joined_index,
        },
        *lost_digits("the values", "the indices", _of_passed),
        {
            "the indices are places among the gathered candidates: send each value's flat index on its rank too, and "
            "take that one": [oracle for oracle in (_place(among_all=True), _place_of_padded)],
            "the indices are places in each rank's own top k: take the flat index in the rank's tensor": _place(
                among_all=False
            ),
            "only the best of each rank took part: several of the top k may be on one rank": _one_from_each,
            "the largest absolute values took part: a negative number is small, however large its absolute value": [
                _by_absolute_value(own_only) for own_only in (True, False)
            ],
            "the k smallest instead of the largest": _smallest,
            "smallest first: the largest must come first": _ascending,
            "ties go to the lowest rank, then the lowest index": _late_ties,
            "the right values with other indices: ties go to the lowest rank, then the lowest index, and neither "
            "torch.topk nor a sort that is not stable promises that": (_values_only, _other_indices),
            "the right values, but one place, an index on a rank, is returned more than once: probably values that "
            "were filled in took part, as where a rank has fewer than k": (_values_only, _repeated),
            "the ranks are those of candidates in groups of k: a rank with fewer "
            "than k values has fewer candidates": _rank_by_k,
            "every value is said to be rank 0's, where a rank has fewer than k values": _rank_zero,
            "ranks and indices are swapped: return values, ranks and indices in this order": _swapped,
            "each rank says that all of them are its own: a value's rank is the one that held it": _own_rank,
        },
    ),
    collective="all_gather",
    chunking="none",
    demo_setup=Setup(4, 4).with_options(k=2),
    forbidden_advice="Use collectives on tensors, such as all_gather.",
)
