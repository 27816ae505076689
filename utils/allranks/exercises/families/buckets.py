"""What the exercises on gradient buckets share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Parameter, Setup, oracle_maker, plain
from allranks.judge.common import MANY_RANKS, circumstances
from allranks.judge.exercise import About, Group, Run
from allranks.ranks.wire.values import dtype_name

SHAPES = ((4,), (2, 3), (5,), (3,), (2, 2))
_WRONG_ITEMSIZES = {1: "bucket_bytes counted elements", 4: "an element had 4 bytes"}

Make = Callable[[int, int], torch.Tensor | None]


def case(ranks: int, shapes: tuple, cap: int, dtype: str = "float32", words: Sequence[str] = (), **more: Any) -> Setup:
    """Parameters of these shapes in buckets of `cap` bytes; `words` say what else is special. Options are those that begin with "_"."""
    own = {name: more.pop(name) for name in list(more) if name.startswith("_")}
    sizes = "sizes " + ", ".join(str(math.prod(shape)) for shape in shapes)
    setup = Setup(ranks, len(shapes), dtype, note=", ".join((sizes, *words)), **more)
    return setup.with_options(bucket_bytes=cap, _shapes=shapes, **own)


FIRST_GROUPS = (
    Group("right average", 3, (case(2, ((3,), (2,)), 1000), case(3, SHAPES, 40), case(4, SHAPES, 32))),
    Group("any rank count", 1, (case(1, SHAPES, 40), case(5, SHAPES, 40), case(8, ((3,), (4,)), 16))),
)
LAST_GROUPS = (
    Group("many ranks", 2, (case(9, SHAPES, 40).with_choices(ranks=MANY_RANKS, bucket_bytes=(28, 44, 52)),)),
    Group("any dtype", 1, (case(3, SHAPES, 64, "float64", values="random"), case(2, SHAPES, 16, "bfloat16"))),
    circumstances(case(3, SHAPES, 40)),
)


def trainable(args: Args) -> dict[int, Parameter]:
    """The parameters that have gradients, by their first index in the list; frozen ones are left out, tied ones come once."""
    return {i: p for i, p in enumerate(args[0]) if isinstance(p, Parameter) and p.grad is not None}


def buckets(args: Args, itemsize: int | None = None) -> list[list[int]]:
    """The parameters' indices in each bucket: filled from the last parameter on, closed before it would exceed the cap.

    `itemsize` replaces the real bytes of an element.
    """
    cap, room = args[1], 0
    found: list[list[int]] = []
    for i, parameter in reversed(trainable(args).items()):
        nbytes = parameter.grad.tensor().numel() * (itemsize or parameter.grad.base.element_size())
        if not found or nbytes > room:
            found.append([])
            room = cap
        found[-1].append(i)
        room -= nbytes
    return found


def numels(args: Args, itemsize: int | None = None) -> list[int]:
    """The number of elements in each bucket."""
    found = trainable(args)
    return [sum(found[i].grad.tensor().numel() for i in bucket) for bucket in buckets(args, itemsize)]


def own(args: Sequence[Args]) -> list[dict[int, torch.Tensor]]:
    """Each rank's gradients, by the parameter's index."""
    return [{i: plain(p.grad) for i, p in trainable(a).items()} for a in args]


def means(args: Sequence[Args]) -> dict[int, torch.Tensor]:
    """The mean gradients, by the parameter's index, in float64."""
    ranks = own(args)
    return {i: torch.stack([grads[i].double() for grads in ranks]).mean(0) for i in ranks[0]}


def expect(setup: Setup, args: Sequence[Args], make: Make) -> list[Expected]:
    """What each rank must end with where `make(index, rank)` is a gradient there, or None if it is unchanged."""
    kind = args[0][0][0].data.base.dtype
    made = []
    for rank in range(setup.ranks):
        values = {i: make(i, rank) for i in trainable(args[rank])}
        changed = {(0, i, "grad"): v.to(kind) for i, v in values.items() if v is not None}
        made.append(Expected(None, changed, 16 * torch.finfo(kind).eps * 10))
    return made


def mean_oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Every gradient is the mean over the ranks."""
    right = means(args)
    return expect(setup, args, lambda i, rank: right[i])


@oracle_maker
def divided_by(setup: Setup, args: Sequence[Args], count: Callable[[Args], int]) -> list[Expected]:
    """The sum over the ranks, divided by another number than that of the ranks."""
    right, number = means(args), count(args[0])
    if number in (1, setup.ranks):
        raise ValueError("that number says nothing")
    return expect(setup, args, lambda i, rank: right[i] * setup.ranks / number)


@oracle_maker
def last_left(setup: Setup, args: Sequence[Args], divided: bool, late: bool) -> list[Expected]:
    """The last bucket is as it was, or only divided by the number of ranks, and all others are right.

    `late` buckets are closed only when they have reached the cap, and what is left at the end has not.
    """
    right, mine = means(args), own(args)
    last = _below_the_cap(args[0]) if late else buckets(args[0])[-1]
    left, here = setup.ranks if divided else 1, [trainable(a) for a in args]

    def made(i: int, rank: int) -> torch.Tensor | None:
        if i not in last:
            return right[i]
        return None if here[rank][i].absent else mine[rank][i] / left  # what is absent may still be, or be zero

    return expect(setup, args, made)


def _below_the_cap(args: Args) -> list[int]:
    """The parameters' indices in the last bucket, if the others are closed when they have reached the cap."""
    left, filled = [], 0
    for i, parameter in reversed(trainable(args).items()):
        left.append(i)
        filled += parameter.grad.tensor().nbytes
        if filled >= args[1]:
            left, filled = [], 0
    if not left:
        raise ValueError("nothing is left")
    return left


def left_out_oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """A gradient that did not fit into a bucket is in none; the bucket that is left at the end is reduced."""
    right, mine = means(args), own(args)
    out, filled = set(), 0
    for i, parameter in reversed(trainable(args[0]).items()):
        nbytes = parameter.grad.tensor().nbytes
        if filled and filled + nbytes > args[0][1]:
            out.add(i)
            filled = 0
        else:
            filled += nbytes
    if not out:
        raise ValueError("all fit")
    return expect(setup, args, lambda i, rank: mine[rank][i] if i in out else right[i])


def absent_advice(run: Run) -> str:
    """What calls that differ may come from, where a parameter has no `.grad` on some rank."""
    if not run.setup.option("_unused"):
        return ""
    return (
        "Here a parameter has no .grad on some rank: that rank must contribute zeros, as many as the parameter has elements, and "
        "make the same calls as all others."
    )


def reduces(run: Run, rank: int, call: int) -> list:
    """The rank's all_reduces of one call, in the order of their launch."""
    return sorted((e for e in run.collectives if e.rank == rank and e.call == call), key=lambda e: e.index)


def one_all_reduce_each(run: Run) -> str | None:
    """A rule: one all_reduce for each bucket, each bucket full, in order."""
    if broken := rules.no_messages(run):
        return broken
    for call, args in enumerate(run.args):
        right, cap = numels(args[0]), args[0][1]
        base = args[0][0][0].data.base
        size, kind = base.element_size(), dtype_name(base.dtype)
        again = [p.place for p in args[0][0] if not isinstance(p, Parameter)]
        for rank in range(run.ranks):
            mine = reduces(run, rank, call)
            counts = [e.numel for e in mine]
            if counts == right:
                continue
            first = mine[0] if mine else None
            at = run.at(first.line) if first else ""
            if again and sum(counts) > sum(right):
                return About(
                    f"rank {rank} sends {sum(counts)} elements{at}, but there are {sum(right)}: the tied parameter is in "
                    "the list twice, but it has one gradient",
                    first,
                )
            frozen = sum(p.data.tensor().numel() for p in args[0][0] if isinstance(p, Parameter) and p.grad is None)
            if frozen and sum(counts) == sum(right) + frozen:
                return About(
                    f"rank {rank} sends {sum(counts)} elements{at}, but the gradients have {sum(right)}: a frozen parameter "
                    "(requires_grad is False) takes part, but it has no gradient",
                    first,
                )
            # a single bucket may have other causes than a wrong element size
            mistaken = next(
                (m for b, m in _WRONG_ITEMSIZES.items() if counts == numels(args[0], b) and len(counts) > 1), None
            )
            if mistaken:
                return About(
                    f"rank {rank} fills its buckets as if {mistaken}{at}: an element of {kind} has {size} bytes, "
                    "as element_size() says",
                    first,
                )
            over = next((n for n in counts if n * size > cap and n not in right), None)
            if over is not None:
                return About(
                    f"a bucket of rank {rank} is over the cap of {cap} bytes{at}: {over} elements of {size} bytes each "
                    f"are {over * size}",
                    first,
                )
            if sorted(counts) == sorted(right):
                return About(
                    f"the buckets of rank {rank} go in the wrong order{at}: the last parameter's gradient is ready first",
                    first,
                )
            if again:
                return About(
                    f"rank {rank} has other buckets{at}: a tied parameter's gradient is complete only at its "
                    "first place in the list, which the backward pass reaches last",
                    first,
                )
            many = "more" if len(counts) > len(right) else "fewer" if len(counts) < len(right) else "other"
            alone = ", also if that gradient alone is larger than the cap" if many == "fewer" else ""
            return About(
                f"rank {rank} calls all_reduce {len(counts)} times{at}, {many} than the {len(right)} bucket{'' if len(right) == 1 else 's'}: fill each "
                f"from the last parameter on, and close it only when the next gradient would exceed the cap{alone}",
                first,
            )
    return None
