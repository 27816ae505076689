"""clip_gradients(sharded, replicated, max_norm) -> norm: clips all gradients by their global norm, each counted once.

Of the parameters in `sharded` each rank has a part; those in `replicated`, and their gradients, are the same on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Arg, Args, Expected, Oracle, Parameter, Setup, Tied, View, draw, plain
from allranks.judge.common import MANY_RANKS
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

Squares = tuple[list[float], float]  # of each rank's sharded gradients, and of the replicated ones


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    rows, shared = setup.option("_rows"), setup.option("_shared")
    scale, frozen = setup.option("_scale", 1), setup.option("_frozen", ())
    same = [(draw(setup, rng, *shape), draw(setup, rng, *shape) * scale) for shape in shared]
    squares, made = [0.0] * setup.ranks, []
    lists: list[tuple[list[Arg], list[Arg]]] = []
    for rank in range(setup.ranks):
        own, sharded = rng.of_rank(rank), []
        for place, count in enumerate(rows):
            length = len(range(count)[rank :: setup.ranks])  # as tensor_split cuts, some ranks have one row less
            gradient = draw(setup, own, length, 2) * scale
            gradient = torch.zeros_like(gradient) if setup.option("_zero") else gradient
            taken = None if place in frozen else View.of(gradient, setup.layout)
            sharded.append(Parameter(View.of(draw(setup, own, length, 2)), taken))
            squares[rank] += 0.0 if taken is None else float(gradient.double().square().sum())
        replicated: list[Arg] = [
            Parameter(View.of(d), View.of(torch.zeros_like(g) if setup.option("_zero") else g, setup.layout))
            for d, g in same
        ]
        lists.append((sharded, replicated + [Tied(i) for i in setup.option("_tied", ())]))
    norm = _norm((squares, _of(same, setup)))
    limit = norm * setup.option("_share", 0.5) if norm else 1.0
    for sharded, replicated in lists:
        made.append((sharded, replicated, round(limit, 3)))
    return made


def _of(same: Sequence[tuple[torch.Tensor, torch.Tensor]], setup: Setup) -> float:
    return 0.0 if setup.option("_zero") else sum(float(g.double().square().sum()) for _, g in same)


def _norm(squares: Squares) -> float:
    return math.sqrt(sum(squares[0]) + squares[1])


def _gradients(args: Args, which: int) -> dict[int, torch.Tensor]:
    return {i: plain(p.grad) for i, p in enumerate(args[which]) if isinstance(p, Parameter) and p.grad is not None}


def _squares(args: Sequence[Args]) -> Squares:
    def total(found: dict[int, torch.Tensor]) -> float:
        return sum(float(g.double().square().sum()) for g in found.values())

    return [total(_gradients(given, 0)) for given in args], total(_gradients(args[0], 1))


Norm = Callable[[Squares, int, Sequence[Args]], float]  # (squares, rank, all ranks' arguments)


def _oracle_from(
    norm: Norm,
    *,
    returns: Norm | None = None,
    coefficient: Callable[[float, float], float] = lambda norm, most: min(1.0, most / norm) if norm else 1.0,
    lists: tuple[int, ...] = (0, 1),
    times: Callable[[Args, int, int], int] = lambda args, which, place: 1,
) -> Oracle:
    """An oracle that scales the gradients of these lists by a coefficient of (norm, max_norm), as often as `times` says."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        squares, most, made = _squares(args), args[0][2], []
        for rank, given in enumerate(args):
            found = norm(squares, rank, args)
            factor = coefficient(found, most)
            changed, largest = {}, 1.0
            for which in (0, 1):
                for place, gradient in _gradients(given, which).items():
                    scale = factor ** times(given, which, place) if which in lists else 1.0
                    changed[which, place, "grad"] = (gradient.double() * scale).to(gradient.dtype)
                    largest = max(largest, float(gradient.double().abs().max()) if gradient.numel() else 0.0)
            kind = _kind(args)
            atol = max(2e-6, 2 * torch.finfo(kind).eps) * max(largest, found if math.isfinite(found) else 1.0)
            made.append(Expected((returns or norm)(squares, rank, args), changed, float(atol)))
        return made

    return oracle


def _kind(args: Sequence[Args]) -> torch.dtype:
    return next(p.data.base.dtype for which in (0, 1) for p in args[0][which] if isinstance(p, Parameter))


def _right(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return _norm(squares)


def _counted_by_all(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return math.sqrt(sum(squares[0]) + len(args) * squares[1])


def _without_replicated(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return math.sqrt(sum(squares[0]))


def _own(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return math.sqrt(squares[0][rank] + squares[1])


def _norms_added(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return sum(math.sqrt(s) for s in squares[0]) + math.sqrt(squares[1])


def _ranks_norms_added(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return sum(math.sqrt(s + squares[1]) for s in squares[0])


def _each_norm_added(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    """The norms of the single gradients, added."""
    gradients = [g for given in args for g in _gradients(given, 0).values()] + [*_gradients(args[0], 1).values()]
    return sum(float(g.double().norm()) for g in gradients)


def _of_each_rank(squares: Squares) -> list[float]:
    """Each rank's squares where one rank counts the replicated ones."""
    return [s + (0.0 if rank else squares[1]) for rank, s in enumerate(squares[0])]


def _one_counts_norms_added(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return sum(map(math.sqrt, _of_each_rank(squares)))


def _largest(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return math.sqrt(max(_of_each_rank(squares)))


def _mean(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    return _norm(squares) / math.sqrt(len(args))


def _tied_twice(squares: Squares, rank: int, args: Sequence[Args]) -> float:
    again = [plain(args[rank][1][t.place].grad) for t in args[rank][1] if isinstance(t, Tied)]
    return math.sqrt(sum(squares[0]) + squares[1] + sum(float(g.double().square().sum()) for g in again))


def _times_in_list(args: Args, which: int, place: int) -> int:
    return 1 + sum(isinstance(p, Tied) and p.place == place for p in args[which])


def _overflowed(setup: Setup, args: Sequence[Args]) -> Sequence[Expected]:
    """The squares in float16 are infinite, so that every gradient is scaled to zero."""
    if _kind(args) != torch.float16:
        raise ValueError("no other dtype overflows with these gradients")
    return _oracle_from(lambda *a: math.inf)(setup, args)


def _zero_divided(setup: Setup, args: Sequence[Args]) -> Sequence[Expected]:
    """All gradients are zero: max_norm / 0 times 0 is NaN."""
    if any(_squares(args)[0]) or _squares(args)[1]:
        raise ValueError("the norm is not zero")
    return _oracle_from(_right, coefficient=lambda norm, most: math.nan)(setup, args)


def _one_number(run: Run) -> str | None:
    broken = rules.calls(run, "all_reduce", "one is enough, of the sum of squares", least=1, most=1)
    if broken:
        return broken
    for entry in run.collectives:
        if entry.numel != 1:
            return About(
                f"rank {entry.rank} reduces {entry.numel} elements{run.at(entry.line)}, but one number is enough: the sum of "
                "squares, in which one rank counts the replicated gradients",
                entry,
            )
    return None


def _half_a_number(run: Run, call: int, rank: int) -> int:
    """The number may have any dtype; where the sharded gradients are none, or zero, each rank has the norm alone."""
    return 2 if any(_squares(run.args[call])[0]) else 0


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
        Group("any layout", 1, (_case(3, layout="strided"), _case(3, layout="transposed"))),
        Group("any circumstances", 1, (_case(3, times=2), _case(3, outer_world=True))),
    ),
    inputs=_inputs,
    oracle=_oracle_from(_right),
    allow=frozenset({"all_reduce"}),
    rules=(Rule("one all_reduce of one number", 6, _one_number), rules.carried(_half_a_number, _half_a_number)),
    mistakes=known(
        {
            "the replicated gradients were counted on every rank, p times: "
            "count them on one rank, or divide by p": _oracle_from(_counted_by_all),
            "the replicated gradients are missing from the norm": _oracle_from(_without_replicated),
            "each rank's own norm: the squares must be added over the ranks before the root": _oracle_from(_own),
            "norms were added: add the squares, and take the root of the sum": [
                _oracle_from(norm)
                for norm in (
                    _norms_added,
                    _ranks_norms_added,
                    _one_counts_norms_added,
                    _each_norm_added,
                    lambda *given: math.sqrt(_each_norm_added(*given)),
                )
            ],
            "the largest of the ranks' squares was taken: add those of all ranks": _oracle_from(_largest),
            "the squares were divided by the number of ranks: the norm is the root of their sum": _oracle_from(_mean),
            "the root is missing: this is the square of the norm": _oracle_from(lambda *a: _right(*a) ** 2),
            "gradients whose norm is below the limit were scaled up: the factor is at most 1": _oracle_from(
                _right, coefficient=lambda norm, most: most / norm if norm else 1.0
            ),
            "the replicated gradients were not scaled: all gradients are clipped by the same factor": _oracle_from(
                _right, lists=(0,)
            ),
            "nothing was scaled: the norm is right, and the gradients are as they were": _oracle_from(_right, lists=()),
            "the norm came back as it is after clipping: return the norm before": _oracle_from(
                _right, returns=lambda s, rank, args: min(_norm(s), args[0][2])
            ),
            "a parameter that is in the list twice was counted twice: it has one gradient": [
                _oracle_from(_tied_twice),
                _oracle_from(_tied_twice, times=_times_in_list),
            ],
            "a parameter that is in the list twice was scaled twice: it has one gradient": _oracle_from(
                _right, times=_times_in_list
            ),
            "the squares of float16 gradients overflow: add them in float32": _overflowed,
            "the norm is zero, and max_norm / 0 times 0 is NaN: then there is nothing to scale": _zero_divided,
        }
    ),
    unit="parameter",
    collective="all_reduce",
    algorithm="gradient clipping",
    chunking="none",
    demo_setup=_case(4),
    only_sums=True,
    forbidden_advice="One dist.all_reduce of one number is all that it needs.",
)
