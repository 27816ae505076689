"""clip_gradients(sharded, replicated, max_norm) -> norm: clips all gradients by their global norm, each counted once.

Of the parameters in `sharded` each rank has a part; those in `replicated`, and their gradients, are the same on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from allranks.exercises.families import only_where
from allranks.judge import rules
from allranks.judge.cases import Arg, Args, Expected, Parameter, Setup, Tied, View, draw, oracle_maker, plain
from allranks.judge.common import MANY_RANKS, circumstances, layouts
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    rows, shared = setup.option("_rows"), setup.option("_shared")
    scale, frozen = setup.option("_scale", 1), setup.option("_frozen", ())
    same = [(draw(setup, rng, *shape), draw(setup, rng, *shape) * scale) for shape in shared]
    squares = [0.0] * setup.ranks
    lists: list[tuple[list[Arg], list[Arg]]] = []
    for rank in range(setup.ranks):
        own, sharded = rng.of_rank(rank), []
        for place, count in enumerate(rows):
            length = len(range(count)[rank :: setup.ranks])  # as tensor_split cuts, some ranks have one row less
            gradient = draw(setup, own, length, 2) * scale
            gradient = torch.zeros_like(gradient) if setup.option("_zero") else gradient
            taken = None if place in frozen else View.of(gradient, setup.layout)
            sharded.append(Parameter(View.of(draw(setup, own, length, 2)), taken))
            squares[rank] += 0.0 if taken is None else _square(gradient)
        replicated: list[Arg] = [
            Parameter(View.of(d), View.of(torch.zeros_like(g) if setup.option("_zero") else g, setup.layout))
            for d, g in same
        ]
        lists.append((sharded, replicated + [Tied(i) for i in setup.option("_tied", ())]))
    norm = math.sqrt(sum(squares) + (0.0 if setup.option("_zero") else sum(map(_square, (g for _, g in same)))))
    limit = norm * setup.option("_share", 0.5) if norm else 1.0
    for sharded, replicated in lists:
        yield sharded, replicated, round(limit, 3)


def _square(gradient: torch.Tensor) -> float:
    return float(gradient.double().square().sum())


def _gradients(args: Args, which: int) -> dict[int, torch.Tensor]:
    return {i: plain(p.grad) for i, p in enumerate(args[which]) if isinstance(p, Parameter) and p.grad is not None}


class _Squares(NamedTuple):
    """The squares of each rank's sharded gradients, and of the replicated ones, as one rank sees them; all ranks' arguments are at hand."""

    sharded: list[float]
    replicated: float
    rank: int
    args: Sequence[Args]

    @property
    def one_counts(self) -> list[float]:
        """Each rank's squares where rank 0 counts the replicated ones."""
        return [self.sharded[0] + self.replicated, *self.sharded[1:]]

    @property
    def norm(self) -> float:
        return math.sqrt(sum(self.one_counts))

    @property
    def each(self) -> list[float]:
        """The norms of the single gradients."""
        found = [g for given in self.args for g in _gradients(given, 0).values()]
        return [math.sqrt(_square(g)) for g in [*found, *_gradients(self.args[0], 1).values()]]

    @property
    def tied_twice(self) -> float:
        """The norm in which a tied parameter counts twice."""
        again = [self.args[self.rank][1][t.place].grad for t in self.args[self.rank][1] if isinstance(t, Tied)]
        return math.sqrt(self.norm**2 + sum(_square(plain(g)) for g in again))


Norm = Callable[[_Squares], float]


def _squares(args: Sequence[Args]) -> _Squares:
    sharded = [sum(map(_square, _gradients(given, 0).values())) for given in args]
    return _Squares(sharded, sum(map(_square, _gradients(args[0], 1).values())), 0, args)


@oracle_maker
def _oracle_from(
    setup: Setup,
    args: Sequence[Args],
    norm: Norm = lambda squares: squares.norm,
    *,
    returns: Norm | None = None,
    coefficient: Callable[[float, float], float] = lambda norm, most: min(1.0, most / norm) if norm else 1.0,
    lists: tuple[int, ...] = (0, 1),
    times: Callable[[Args, int, int], int] = lambda args, which, place: 1,
) -> Iterator[Expected]:
    """An oracle that scales the gradients of these lists by a coefficient of (norm, max_norm), as often as `times` says."""
    of_all = _squares(args)
    for rank, given in enumerate(args):
        squares = of_all._replace(rank=rank)
        found = norm(squares)
        factor = coefficient(found, args[0][2])
        changed, largest = {}, 1.0
        for which in (0, 1):
            for place, gradient in _gradients(given, which).items():
                scale = factor ** times(given, which, place) if which in lists else 1.0
                changed[which, place, "grad"] = (gradient.double() * scale).to(gradient.dtype)
                largest = max(largest, float(gradient.double().abs().max()) if gradient.numel() else 0.0)
        atol = max(2e-6, 2 * torch.finfo(_kind(args)).eps)
        atol *= max(largest, found if math.isfinite(found) else 1.0)
        yield Expected((returns or norm)(squares), changed, float(atol))


def _kind(args: Sequence[Args]) -> torch.dtype:
    return next(p.data.base.dtype for which in (0, 1) for p in args[0][which] if isinstance(p, Parameter))


def _times_in_list(args: Args, which: int, place: int) -> int:
    return 1 + sum(isinstance(p, Tied) and p.place == place for p in args[which])


def _one_number(run: Run) -> str | None:
    why = "one number is enough: the sum of squares, in which one rank counts the replicated gradients"
    broken = rules.calls(run, "all_reduce", "one is enough, of the sum of squares", least=1, most=1)
    return broken or rules.reduces_other(run, (1,), why)


def _half_a_number(run: Run, call: int, rank: int) -> int:
    """The number may have any dtype; where the sharded gradients are none, or zero, each rank has the norm alone."""
    return 2 if any(_squares(run.args[call]).sharded) else 0


def _case(
    ranks: int, rows: tuple[int, ...] = (4, 3), shared: tuple = ((2,), (2, 2)), dtype: str = "float32", **more: Any
) -> Setup:
    names = ("frozen", "tied", "scale", "zero", "share")
    own = {name if name == "share" else f"_{name}": more.pop(name) for name in names if name in more}
    words = [f"{len(rows)} sharded and {len(shared)} replicated"]
    words += [text for name, text in (("_frozen", "one frozen"), ("_zero", "all gradients zero")) if name in own]
    words += ["one tied"] if "_tied" in own else []
    words += ["large gradients"] if "_scale" in own else []
    words += ["norm below the limit"] if own.get("share", 0) > 1 else []
    share = own.pop("share", 0.5)
    setup = Setup(ranks, len(rows) + len(shared), dtype, note=", ".join(words), **more)
    return setup.with_options(_rows=rows, _shared=shared, _share=share, **own)


EXERCISE = Exercise(
    name="clip_gradients",
    promise="scales all gradients so that their global norm is at most max_norm, and returns the norm before",
    groups=(
        Group("right norm", 4, (_case(2), _case(3, (6, 3)), _case(4))),
        Group("a norm below the limit", 2, (_case(3, share=1.5), _case(2, share=20.0))),
        Group("any rank count", 1, (_case(1), _case(5), _case(8, (8, 16)))),
        Group("many ranks", 2, (_case(9, (19, 5)).with_choices(ranks=MANY_RANKS, _rows=((19, 5), (23, 4), (11,))),)),
        Group("any shard", 1, (_case(4, (1, 2)), _case(3, (7,)), _case(3, ()), _case(3, (3, 6), ()))),
        Group("frozen and tied parameters", 2, (_case(3, frozen=(1,)), _case(2, tied=(0,)), _case(3, tied=(1, 0)))),
        Group("all zero", 1, (_case(3, zero=True),)),
        Group(
            "any dtype",
            2,
            (
                _case(3, dtype="float64", values="random"),
                _case(2, dtype="bfloat16"),
                _case(3, (6, 3), dtype="float16", scale=100),
            ),
        ),
        layouts(_case(3), "strided", "transposed"),
        circumstances(_case(3)),
    ),
    inputs=_inputs,
    oracle=_oracle_from(),
    allow=frozenset({"all_reduce"}),
    rules=(Rule("one all_reduce of one number", 6, _one_number), rules.exchanged(_half_a_number)),
    mistakes={
        "the replicated gradients were counted on every rank, p times: "
        "count them on one rank, or divide by p": _oracle_from(
            lambda s: math.sqrt(sum(s.sharded) + len(s.args) * s.replicated)
        ),
        "the replicated gradients are missing from the norm": _oracle_from(lambda s: math.sqrt(sum(s.sharded))),
        "norms were added: add the squares, and take the root of the sum": [
            _oracle_from(lambda s: sum(map(math.sqrt, (*s.sharded, s.replicated)))),
            _oracle_from(lambda s: sum(math.sqrt(own + s.replicated) for own in s.sharded)),
            _oracle_from(lambda s: sum(map(math.sqrt, s.one_counts))),
            _oracle_from(lambda s: sum(s.each)),
            _oracle_from(lambda s: math.sqrt(sum(s.each))),
        ],
        "the largest of the ranks' squares was taken: add those of all ranks": _oracle_from(
            lambda s: math.sqrt(max(s.one_counts))
        ),
        "the squares were divided by the number of ranks: the norm is the root of their sum": _oracle_from(
            lambda s: s.norm / math.sqrt(len(s.args))
        ),
        "the root is missing: this is the square of the norm": _oracle_from(lambda s: s.norm**2),
        "gradients whose norm is below the limit were scaled up: the factor is at most 1": _oracle_from(
            coefficient=lambda norm, most: most / norm if norm else 1.0
        ),
        "the replicated gradients were not scaled: all gradients are clipped by the same factor": _oracle_from(
            lists=(0,)
        ),
        "nothing was scaled: the norm is right, and the gradients are as they were": _oracle_from(lists=()),
        "the norm came back as it is after clipping: return the norm before": _oracle_from(
            returns=lambda s: min(s.norm, s.args[0][2])
        ),
        "a parameter that is in the list twice was counted twice: it has one gradient": [
            _oracle_from(lambda s: s.tied_twice),
            _oracle_from(lambda s: s.tied_twice, times=_times_in_list),
        ],
        "a parameter that is in the list twice was scaled twice: it has one gradient": _oracle_from(
            times=_times_in_list
        ),
        "the squares of float16 gradients overflow: add them in float32": only_where(
            lambda setup, args: _kind(args) == torch.float16, _oracle_from(lambda s: math.inf)
        ),
        "the norm is zero, and max_norm / 0 times 0 is NaN: then there is nothing to scale": only_where(
            lambda setup, args: not _squares(args).norm, _oracle_from(coefficient=lambda norm, most: math.nan)
        ),
    },
    unit="parameter",
    collective="all_reduce",
    algorithm="gradient clipping",
    demo_setup=_case(4),
    only_sums=True,
    forbidden_advice="One dist.all_reduce of one number is all that it needs.",
)
