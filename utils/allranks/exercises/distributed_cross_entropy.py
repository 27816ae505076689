"""distributed_cross_entropy(logits, targets) -> Tensor: the loss of each row; the vocabulary is split over the ranks.

Rank r holds the columns r*w to (r+1)*w - 1 of every row, w = logits.shape[1]; targets count over all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import everywhere, log_sum_error, seen, steadied
from allranks.judge import evidence, rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import LOGIT_GROUPS, many_ranks, of_width, stretched, three_numbers_a_row
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run, Told

Rows = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
Column = Callable[[torch.Tensor, int], torch.Tensor]
Adds = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    width, only = setup.option("width", 3), setup.option("all_on")
    low, high = (0, width * setup.ranks) if only is None else (only * width, (only + 1) * width)
    targets = rng.integers(low, high, setup.size)
    if only is None and setup.ranks > 1:  # some targets are at the edges of a rank's columns: that must not be luck
        places = rng.permutation(setup.size)[:2]
        for place, last in zip(places, (0, 1), strict=False):
            targets[place] = rng.integer(1, setup.ranks) * width - last
    parts = [stretched(draw(setup, rng.of_rank(r), setup.size, width), setup) for r in range(setup.ranks)]
    return [(View.of(part, setup.layout), View.of(targets)) for part in parts]


@oracle_maker
def _oracle_from(setup: Setup, args: Sequence[Args], losses: Rows) -> list[Expected]:
    """An oracle that gives every rank what `losses(rows, targets, width)` makes of the whole rows, in float64."""
    parts = [plain(a[0]) for a in args]
    whole, kind = torch.cat(parts, -1), parts[0].dtype
    made = losses(whole.double(), plain(args[0][1]), parts[0].shape[1])
    return [Expected(made.to(kind), {}, _atol(whole, setup)) for _ in args]


def _atol(whole: torch.Tensor, setup: Setup) -> torch.Tensor:
    """Large logits leave fewer bits for the difference of two of them."""
    return log_sum_error(whole, setup.ranks)[:, 0].clamp(min=40 * torch.finfo(whole.dtype).eps)


def _losses(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(rows, targets, reduction="none")


def _looked_up(column: Column, adds: Adds, told: Callable[[Oracle], Told] = lambda oracle: oracle) -> list[Told]:
    """Each rank adds its logit in `column(place, width)` where `adds(place, target, width)`, place = target - r*w; with a maximum or
    without."""

    def losses(less_maximum: bool) -> Oracle:
        def made(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
            shifted = rows - rows.amax(-1, keepdim=True) if less_maximum else rows
            loss = torch.logsumexp(shifted, -1)
            for rank, part in enumerate(shifted.split(width, -1)):
                place = targets - rank * width
                own = part.gather(1, column(place, width)[:, None])[:, 0]
                loss = loss - torch.where(adds(place, targets, width), own, 0)
            return loss

        return _oracle_from(made)

    return [told(losses(True)), told(losses(False))]


def _own(place: torch.Tensor, width: int) -> torch.Tensor:
    return place.clamp(0, width - 1)


def _from_the_end(place: torch.Tensor, width: int) -> torch.Tensor:
    return torch.where(place < 0, place % width, _own(place, width))


def _shifted_by(sign: int) -> Oracle:
    """The maximum was subtracted from the target's logit only (-1), or in the sum only (1)."""
    return _oracle_from(lambda rows, targets, width: _losses(rows, targets, width) + sign * rows.amax(-1))


@oracle_maker
def _narrow(
    setup: Setup, args: Sequence[Args], make: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> list[Expected]:
    """What `make(rows, column of the target)` gives in the rows' own dtype."""
    whole = torch.cat([plain(a[0]) for a in args], -1)
    return [Expected(make(whole, plain(args[0][1])[:, None])[:, 0], {}, _atol(whole, setup)) for _ in args]


@oracle_maker
def _by_rank(
    setup: Setup,
    args: Sequence[Args],
    make: Callable[[list[torch.Tensor], torch.Tensor, torch.Tensor, int], torch.Tensor],
    wide: bool = True,
) -> list[Expected]:
    """What `make(parts, whole rows, column of the target, rank)` gives on each rank, in float64 or in the rows' own dtype."""
    kind = args[0][0].base.dtype
    parts = [plain(a[0]).to(torch.float64 if wide else kind) for a in args]
    whole, column = torch.cat(parts, -1), plain(args[0][1])[:, None]
    limit = _atol(whole.to(kind), setup)
    return [Expected(make(parts, whole, column, rank)[:, 0].to(kind), {}, limit) for rank in range(setup.ranks)]


def _own_parts(maximum: str) -> Oracle:
    """Neither the sum nor the target's logit is added over the ranks; the `maximum` is of "all" ranks, or the "own" one."""

    def made(parts: list[torch.Tensor], whole: torch.Tensor, column: torch.Tensor, rank: int) -> torch.Tensor:
        part = parts[rank]
        place, width = column - rank * part.shape[1], part.shape[1]
        less = (whole if maximum == "all" else part).amax(-1, keepdim=True)
        mine = torch.where((place >= 0) & (place < width), (part - less).gather(1, _own(place, width)), 0)
        return torch.logsumexp(part - less, -1, keepdim=True) - mine

    return _by_rank(made)


def _own_maximum(back: bool) -> Oracle:
    """Each rank subtracts its own maximum; the sums are added as if they were of one scale. `back`: each adds its own again."""

    def made(parts: list[torch.Tensor], whole: torch.Tensor, column: torch.Tensor, rank: int) -> torch.Tensor:
        tops = [t.amax(-1, keepdim=True) for t in parts]
        shifted = torch.cat([t - top for t, top in zip(parts, tops, strict=True)], -1)
        total = torch.exp(shifted).sum(-1, keepdim=True).log()
        return total + tops[rank] - whole.gather(1, column) if back else total - shifted.gather(1, column)

    return _by_rank(made)


def _less(maximum: Callable[[list[torch.Tensor]], torch.Tensor]) -> Oracle:
    """This is subtracted from all logits, in place of each row's maximum."""

    def made(parts: list[torch.Tensor], whole: torch.Tensor, column: torch.Tensor, rank: int) -> torch.Tensor:
        shifted = whole - maximum(parts)
        return torch.exp(shifted).sum(-1, keepdim=True).log() - shifted.gather(1, column)

    return _by_rank(made, wide=False)


def _kept_off_zero(found: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether it is the logarithm of the target's probability plus a small number, or of that number where it is less."""
    probability, small = (-right.double()).exp(), (-found.double().max()).exp()
    kept = (probability + small, probability.clamp(min=small))
    return bool(0 < small < 1e-4) and any(torch.allclose(-k.log(), found.double(), rtol=1e-3, atol=1e-3) for k in kept)


def _no_logit_below_zero(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
    """The logit as it is, without a maximum: only below zero another rank's zero wins."""
    logit = rows.gather(1, targets[:, None])[:, 0]
    return _losses(rows, targets, width) + logit - logit.clamp(min=0)


def _three_small(run: Run) -> str | None:
    enough = "three are enough, a maximum and two sums"
    return three_numbers_a_row(run, enough, "enough in all")


_OF_THE_SUM = _oracle_from(lambda rows, targets, width: torch.logsumexp(rows - rows.amax(-1, keepdim=True), -1))

EXERCISE = Exercise(
    name="distributed_cross_entropy",
    promise="returns the loss of each row, whose columns are split over the ranks",
    groups=(
        Group("right loss", 3, (Setup(2, 2), Setup(3, 3), Setup(4, 4))),
        Group("any rank count", 1, (Setup(1, 2), Setup(5, 3), Setup(8, 3))),
        many_ranks(2, Setup(9, 3), width=(2, 3, 4)),
        Group("any width", 1, (*of_width(1, Setup(2, 3), Setup(4, 3)), *of_width(7, Setup(3, 2)))),
        Group(
            "any shape", 1, (Setup(3, 0), Setup(3, 1), Setup(3, 4, layout="transposed"), Setup(3, 4, layout="strided"))
        ),
        Group("any target", 1, tuple(Setup(3, 4).with_options(all_on=rank) for rank in range(3))),
        *LOGIT_GROUPS,
    ),
    inputs=_inputs,
    labels={
        "all_on": "all on rank {}",
        "width": "shares of width {}",
        "scale": "logits times {}",
        "shift": "logits plus {}",
    },
    oracle=_oracle_from(_losses),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("at most three values a row, in three all_reduces", 6, _three_small),
        rules.in_dtype(0),
        rules.exchanged(rules.numbers(lambda s: s.size)),
    ),
    mistakes={
        "the logarithm of a probability that was rounded to 0: log(sum) - x needs no probability": _narrow(
            lambda whole, column: -torch.softmax(whole, -1).gather(1, column).log()
        ),
        "not stable: exp of large logits overflows or vanishes; subtract each row's maximum over all ranks "
        "first": _narrow(lambda whole, column: whole.exp().sum(-1, keepdim=True).log() - whole.gather(1, column)),
        "every rank added a logit for the target: only the rank that holds its column must add it, the others add 0": [
            told
            for column in (_own, lambda place, width: place % width)
            for told in _looked_up(column, lambda place, target, width: target >= 0, everywhere)
        ],
        "the targets were looked up as if each rank's columns began at 0: rank r's begin at r*w, so look for "
        "target - r*w": _looked_up(lambda place, width: place % width, lambda place, target, width: target < width),
        "ranks to the right of the target's added a logit too: there target - r*w is negative, which as an index "
        "counts from the end, so take only what is from 0 to w-1": _looked_up(
            _from_the_end, lambda place, target, width: (place >= -width) & (place < width)
        ),
        "off by one where a rank looks for the target among its columns: target - r*w = w is the next rank's "
        "first column": _looked_up(_own, lambda place, target, width: (place >= 0) & (place <= width)),
        "a small number was added to the probability, or put in its place, before the logarithm: log(sum) - x "
        "needs no probability, and no such number": seen(_oracle_from(_losses), _kept_off_zero),
        "neither the sum of exponentials nor the target's logit was added over the ranks": [
            _own_parts(maximum) for maximum in ("all", "own")
        ],
        "the maximum was subtracted in the sum or from the target's logit, but not in both: the logarithm of the "
        "sum needs it back, or the logit must lack it too": [_shifted_by(1), _shifted_by(-1)],
        "the target's logit is missing: this is the logarithm of the sum alone": [
            _oracle_from(lambda rows, targets, width: torch.logsumexp(rows, -1)),
            (_OF_THE_SUM, lambda run: not evidence.maxima_at_least(2)(run)),
        ],
        "the target's logit was reduced with MAX, where the zeros of the other ranks win: add it": [
            (oracle, evidence.maxima_at_least(2)) for oracle in (_OF_THE_SUM, _oracle_from(_no_logit_below_zero))
        ],
        "each rank subtracted its own maximum: the sums only fit together with the maximum over all ranks": [
            _own_maximum(back) for back in (False, True)
        ],
        "one maximum for all rows: the exponentials of a row far below it are 0, and the logarithm of 0 is minus infinity; "
        "subtract from each row its own, over all ranks": _less(lambda parts: torch.cat(parts, -1).amax()),
        "the maxima were added: reduce them with ReduceOp.MAX": _less(
            lambda parts: torch.stack([t.amax(-1, keepdim=True) for t in parts]).sum(0)
        ),
        "the ranks' logarithms were added: add their sums of exponentials, and take the logarithm of that": _by_rank(
            lambda parts, whole, column, rank: (
                torch.stack([torch.logsumexp(t, -1, keepdim=True) for t in parts]).sum(0) - whole.gather(1, column)
            )
        ),
        "the sum is over each rank's own columns: add it over all ranks": _by_rank(
            lambda parts, whole, column, rank: torch.logsumexp(parts[rank], -1, keepdim=True) - whole.gather(1, column)
        ),
        "the mean over the rows came back: return one loss a row": _oracle_from(lambda *a: _losses(*a).mean()),
        "the target's probability came back, not its negative logarithm": _oracle_from(
            lambda *a: torch.exp(-_losses(*a))
        ),
    },
    unit="row",
    collective="all_reduce",
    demo_setup=Setup(4, 2),
    forbidden_advice="All_reduces of three values a row, a maximum and two sums, are all that it needs.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "to the right of the target's": lambda setup: setup.option("all_on") != 2,
        "off by one": lambda setup: setup.option("all_on") != 0,
        "a logit for the target": lambda setup: setup.size == 1 or setup.option("width") == 1,
        "looked up as if": lambda setup: setup.size < 3 or setup.option("width") == 1,
        "the target's logit is missing": lambda setup: setup.size < 3 or setup.option("width") == 1,
        "reduced with MAX": lambda setup: not setup.option("shift"),
    },
)
