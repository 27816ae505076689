"""diloco_round(parameters, anchor, momentum, lr, beta): the outer step of DiLoCo, after the local steps of every rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import DTYPES, Args, Expected, Oracle, Setup, View, draw, plain
from allranks.judge.common import MANY_RANKS
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

State = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # parameters, anchor, momentum


class Before(NamedTuple):
    """What one tensor's outer step is made of: this rank's parameters, their mean over the ranks, and the common rest."""

    mine: torch.Tensor
    mean: torch.Tensor
    anchor: torch.Tensor
    momentum: torch.Tensor
    lr: float
    beta: float
    rank: int
    ranks: int


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    shapes, kind = setup.option("_shapes"), DTYPES[setup.dtype]
    anchor, momentum = ([draw(setup, rng, *shape).double() for shape in shapes] for _ in range(2))
    made: list[Args] = []
    for rank in range(setup.ranks):
        moved = [a + draw(setup, rng.of_rank(rank), *a.shape).double() / 4 for a in anchor]
        lists = [[View.of(t.to(kind), setup.layout) for t in each] for each in (moved, anchor, momentum)]
        made.append((*lists, setup.option("lr", 0.5), setup.option("beta", 0.75)))
    return made


def _nesterov(b: Before) -> State:
    delta = b.anchor - b.mean
    momentum = b.beta * b.momentum + delta
    anchor = b.anchor - b.lr * (delta + b.beta * momentum)
    return anchor, anchor, momentum


def _taking(
    step: Callable[[Before], State], total: Callable[[torch.Tensor], torch.Tensor] = lambda stack: stack.mean(0)
) -> Oracle:
    """The state after `step`; `total` makes one tensor of all ranks' parameters."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        kind, (lr, beta) = args[0][0][0].base.dtype, args[0][3:]
        made = []
        for rank, own in enumerate(args):
            changed: dict[tuple, torch.Tensor] = {}
            for i, (mine, anchor, momentum) in enumerate(zip(*own[:3], strict=True)):
                joined = total(torch.stack([plain(a[0][i]).double() for a in args]))
                own_now, anchored, moving = (plain(t).double() for t in (mine, anchor, momentum))
                state = step(Before(own_now, joined, anchored, moving, lr, beta, rank, len(args)))
                changed |= {(which, i): value.to(kind) for which, value in enumerate(state)}
            made.append(Expected(None, changed, 500 * torch.finfo(kind).eps * 10))
        return made

    return oracle


def _no_outer(b: Before) -> State:
    return b.mean, b.mean, b.momentum


def _stepping(
    way: Callable[[Before, torch.Tensor, torch.Tensor], torch.Tensor],
    momentum: Callable[[Before, torch.Tensor], torch.Tensor] = lambda b, delta: b.beta * b.momentum + delta,
) -> Oracle:
    """Another step: the new `momentum(before, difference)`, and the `way(before, difference, new momentum)` that is subtracted."""

    def step(b: Before) -> State:
        delta = b.anchor - b.mean
        new = momentum(b, delta)
        anchor = b.anchor - way(b, delta, new)
        return anchor, anchor, new

    return _taking(step)


def _right_way(b: Before, delta: torch.Tensor, momentum: torch.Tensor) -> torch.Tensor:
    return b.lr * (delta + b.beta * momentum)


def _turned(b: Before) -> State:
    return _nesterov(b._replace(mean=2 * b.anchor - b.mean))


def _uphill(b: Before) -> State:
    _, after, momentum = _nesterov(b)
    anchor = 2 * b.anchor - after
    return anchor, anchor, momentum


def _own_difference(b: Before) -> State:
    return _nesterov(b._replace(mean=b.mine))


def _own_momentum(b: Before) -> State:
    """All ranks' anchors were averaged, but each rank's momentum took in its own difference."""
    anchor, _, _ = _nesterov(b)
    return anchor, anchor, b.beta * b.momentum + b.anchor - b.mine


def _but(**left: str) -> Callable[[Before], State]:
    """The right step, but a tensor ends as another one was before: `_but(anchor="anchor")` leaves it alone."""

    def step(b: Before) -> State:
        names = ("parameters", "anchor", "momentum")
        return tuple(getattr(b, left[n]) if n in left else t for n, t in zip(names, _nesterov(b), strict=True))  # type: ignore[return-value]

    return step


def _summed_differences(b: Before) -> State:
    """The ranks' differences were added, and not divided."""
    return _nesterov(b._replace(mean=b.anchor - b.ranks * (b.anchor - b.mean)))


def _same_piece(setup: Setup, args: Sequence[Args]) -> Sequence[Expected]:
    """Every tensor took its mean from the beginning of the flat vector."""
    flat = torch.stack([torch.cat([plain(t).reshape(-1) for t in a[0]]) for a in args]).double().mean(0)
    made = []
    for own in args:
        own_first = [View.of(flat[: plain(t).numel()].reshape(t.size).to(t.base.dtype)) for t in own[0]]
        made.append((own_first, *own[1:]))
    return _taking(_nesterov)(setup, made)


def _count(run: Run, call: int = 0) -> int:
    return sum(view.tensor().numel() for view in run.args[call][0][0])


def _once(run: Run) -> str | None:
    """One all_reduce of all parameters' elements."""
    broken = rules.no_messages(run)
    if broken:
        return broken
    total = _count(run)
    nbytes = _needed(run, 0, 0)
    for entry in run.collectives:
        if entry.nbytes > nbytes and entry.numel <= total:
            return About(
                f"rank {entry.rank} sends {entry.dtype}{run.at(entry.line)}: send the parameters' own dtype", entry
            )
        if entry.numel > total:
            return About(
                f"rank {entry.rank} reduces {entry.numel} elements{run.at(entry.line)}, but the parameters have P = {total}"
                f"{_too_many(run, entry.numel)}",
                entry,
            )
    return rules.calls(run, "all_reduce", "put all tensors into one flat vector, then one is enough", least=1, most=1)


def _too_many(run: Run, numel: int) -> str:
    """What more than the parameters' elements was probably sent; nothing if that can't be read from how many they are."""
    total, sizes = _count(run), [view.tensor().numel() for view in run.args[0][0][0]]
    lists, padded = numel in (2 * total, 3 * total), numel == len(sizes) * max(sizes)
    if lists and not padded:
        return ": only the parameters differ between ranks; anchor and momentum are the same everywhere"
    return (
        ": put them one behind the other, without padding" if padded and not lists else ", and nothing else is needed"
    )


def _needed(run: Run, call: int, rank: int) -> int:
    return _count(run, call) * run.args[call][rank][0][0].base.element_size()


def _case(ranks: int, shapes: tuple, dtype: str = "float32", **fields: object) -> Setup:
    return Setup(
        ranks,
        len(shapes),
        dtype,
        note="sizes " + ", ".join(str(math.prod(s)) for s in shapes),
        **fields,  # type: ignore[arg-type]
    ).with_options(_shapes=shapes)


SHAPES = ((4,), (2, 3), (5,))


EXERCISE = Exercise(
    name="diloco_round",
    promise="takes DiLoCo's outer step: mean of the ranks' ways, Nesterov momentum, and all ranks start from the new anchor",
    groups=(
        Group("right step", 3, (_case(2, ((4,),)), _case(3, ((6,), (3,))), _case(4, SHAPES))),
        Group(
            "any rates",
            2,
            (_case(3, SHAPES).with_options(lr=0.25, beta=0.5), _case(2, SHAPES).with_options(lr=1.0, beta=0.0)),
        ),
        Group("any rank count", 1, (_case(1, SHAPES), _case(5, SHAPES), _case(8, ((8, 2),)))),
        Group("many ranks", 2, (_case(9, ((19,), (2, 5))).with_choices(ranks=MANY_RANKS, lr=(0.25, 0.75)),)),
        Group("any size", 1, (_case(2, ((1,),)), _case(3, ((7,), (1,), (2, 2, 2))))),
        Group("any dtype", 1, (_case(3, SHAPES, "float64", values="random"), _case(3, SHAPES, values="random"))),
        Group("any layout", 1, (_case(3, SHAPES, layout="offset"), _case(3, SHAPES, layout="transposed"))),
        Group("any circumstances", 1, (_case(3, SHAPES, times=2), _case(3, SHAPES, outer_world=True))),
    ),
    inputs=_inputs,
    oracle=_taking(_nesterov),
    allow=frozenset({"all_reduce"}),
    rules=(Rule("one all_reduce of P elements", 6, _once), rules.carried(_needed, _needed)),
    mistakes=known(
        {
            "the parameters were averaged, but the outer step is missing: that is local SGD, not DiLoCo": _taking(
                _no_outer
            ),
            "plain momentum: Nesterov's step is difference + beta times the new momentum": _stepping(
                lambda b, delta, m: b.lr * m
            ),
            "the rates were exchanged: the arguments end with lr, beta": _taking(
                lambda b: _nesterov(b._replace(lr=b.beta, beta=b.lr))
            ),
            "momentum was updated, but the step does not use it: anchor moves by lr times (difference + beta times "
            "the new momentum)": _stepping(lambda b, delta, m: b.lr * delta),
            "the parameters were set to the *old* anchor: they must start from the new one": _taking(
                _but(parameters="anchor")
            ),
            "momentum is not used: it must be updated, and the step takes it in": _stepping(
                lambda b, delta, m: b.lr * delta, lambda b, delta: b.momentum
            ),
            "the step used the old momentum: update the momentum first": _stepping(
                lambda b, delta, m: b.lr * (delta + b.beta * b.momentum)
            ),
            "momentum takes the whole difference: beta momentum + difference, without 1 - beta": _stepping(
                _right_way, lambda b, delta: b.beta * b.momentum + (1 - b.beta) * delta
            ),
            "the old momentum is not used: the new one is beta times the old one + difference": _stepping(
                _right_way, lambda b, delta: delta
            ),
            "the difference was multiplied by lr before it went into momentum: lr belongs into the step of anchor "
            "only": [
                _stepping(_right_way, lambda b, delta: b.beta * b.momentum + b.lr * delta),
                _stepping(
                    lambda b, delta, m: b.lr * delta + b.beta * m, lambda b, delta: b.beta * b.momentum + b.lr * delta
                ),
            ],
            "momentum took in this rank's own difference, so the ranks' momentums differ: average the differences "
            "before momentum": _taking(_own_momentum),
            "beta is at the wrong place in the step: it belongs to the momentum, not to the difference": _stepping(
                lambda b, delta, m: b.lr * (b.beta * delta + m)
            ),
            "every tensor took its mean from the beginning of the flat vector: "
            "move on by the elements of each tensor": _same_piece,
            "anchor did not change, and so the parameters went back to the old one": _taking(
                _but(parameters="anchor", anchor="anchor")
            ),
            "the difference has the wrong sign: it is anchor minus the mean of the parameters": _taking(_turned),
            "the step went away from the ranks' mean: subtract lr times it from anchor": _taking(_uphill),
            "the parameters are not set to the new anchor: copy it into their tensors, for a new tensor in one's "
            "place in the list, or under its name, changes "
            "none that the caller keeps": _taking(_but(parameters="mine")),
            "anchor did not change: the next round starts from the new one": _taking(_but(anchor="anchor")),
            "momentum did not change: the next round needs the new one": _taking(_but(momentum="momentum")),
            "each rank took the step with its own difference: average over the ranks first": _taking(_own_difference),
            "the differences were summed, not averaged: divide by the number of ranks": _taking(_summed_differences),
        }
    ),
    unit="parameter",
    collective="all_reduce",
    algorithm="DiLoCo",
    chunking="none",
    demo_setup=_case(4, SHAPES),
    only_sums=True,
    forbidden_advice="One dist.all_reduce is all that it needs.",
)
