"""distributed_cross_entropy(logits, targets) -> Tensor: the loss of each row; the vocabulary is split over the ranks.

Rank r holds the columns r*w to (r+1)*w - 1 of every row, w = logits.shape[1]; targets count over all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import everywhere, known, log_sum_error
from allranks.judge import evidence, rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, plain
from allranks.judge.common import LOGIT_GROUPS, many_ranks, of_width, one_a_row, three_numbers_a_row
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run

Rows = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    width, scale, shift = setup.option("width", 3), setup.option("scale", 1), setup.option("shift", 0)
    only = setup.option("all_on")
    low, high = (0, width * setup.ranks) if only is None else (only * width, (only + 1) * width)
    targets = rng.integers(low, high, setup.size)
    parts = [draw(setup, rng.of_rank(r), setup.size, width) * scale + shift for r in range(setup.ranks)]
    return [(View.of(part, setup.layout), View.of(targets)) for part in parts]


def _oracle_from(losses: Rows) -> Oracle:
    """An oracle that gives every rank what `losses(rows, targets, width)` makes of the whole rows, in float64."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        parts = [plain(a[0]) for a in args]
        whole, kind = torch.cat(parts, -1), parts[0].dtype
        made = losses(whole.double(), plain(args[0][1]), parts[0].shape[1])
        return [Expected(made.to(kind), {}, _atol(whole, setup)) for _ in args]

    return oracle


def _atol(whole: torch.Tensor, setup: Setup) -> torch.Tensor:
    """Large logits leave fewer bits for the difference of two of them."""
    return log_sum_error(whole, setup.ranks)[:, 0].clamp(min=40 * torch.finfo(whole.dtype).eps)


def _losses(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(rows, targets, reduction="none")


def _without_mask(column: Callable[[torch.Tensor, int, int], torch.Tensor], *, less_maximum: bool) -> Rows:
    """Every rank adds a logit for the target, that of its own `column(targets, rank, width)`."""

    def losses(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
        shifted = rows - rows.amax(-1, keepdim=True) if less_maximum else rows
        own = [
            part.gather(1, column(targets, rank, width)[:, None])[:, 0]
            for rank, part in enumerate(shifted.split(width, -1))
        ]
        return torch.logsumexp(shifted, -1) - sum(own)

    return losses


def _clamped(targets: torch.Tensor, rank: int, width: int) -> torch.Tensor:
    return (targets - rank * width).clamp(0, width - 1)


def _where_less(*, less_maximum: bool) -> Rows:
    """Every rank looks for the target among its own columns, numbered from 0: only targets below the width are found."""

    def losses(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
        shifted = rows - rows.amax(-1, keepdim=True) if less_maximum else rows
        column = targets.clamp(0, width - 1)[:, None]
        found = sum(torch.where(targets < width, part.gather(1, column)[:, 0], 0) for part in shifted.split(width, -1))
        return torch.logsumexp(shifted, -1) - found

    return losses


def _more_found(first: int, last: int, *, less_maximum: bool) -> Rows:
    """Every rank whose place of the target, target - r*w, is from `first` w to w + `last` adds a logit: behind its columns its last
    one, and a negative place counts from the end."""

    def losses(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
        shifted = rows - rows.amax(-1, keepdim=True) if less_maximum else rows
        found = torch.zeros(len(rows), dtype=rows.dtype)
        for rank, part in enumerate(shifted.split(width, -1)):
            place = targets - rank * width
            index = torch.where(place < 0, place % width, place.clamp(max=width - 1))
            mine = part.gather(1, index[:, None])[:, 0]
            found = found + torch.where((place >= first * width) & (place <= width + last), mine, 0)
        return torch.logsumexp(shifted, -1) - found

    return losses


def _two_scales(*, missing_in_sum: bool) -> Rows:
    """The maximum was subtracted in the sum only, or from the target's logit only."""

    def losses(rows: torch.Tensor, targets: torch.Tensor, width: int) -> torch.Tensor:
        shift = rows.amax(-1) if missing_in_sum else -rows.amax(-1)
        return _losses(rows, targets, width) + shift

    return losses


def _modulo(targets: torch.Tensor, rank: int, width: int) -> torch.Tensor:
    return targets % width


def _unstable(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    whole, targets = torch.cat([plain(a[0]) for a in args], -1), plain(args[0][1])
    made = torch.exp(whole).sum(-1).log() - whole.gather(1, targets[:, None])[:, 0]
    return [Expected(made, {}, _atol(whole, setup)) for _ in args]


def _of_probability(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    whole, targets = torch.cat([plain(a[0]) for a in args], -1), plain(args[0][1])
    made = -torch.softmax(whole, -1).gather(1, targets[:, None])[:, 0].log()
    return [Expected(made, {}, _atol(whole, setup)) for _ in args]


def _kept_off_zero(eps: float, *, added: bool) -> Oracle:
    """The logarithm of the target's probability plus `eps`, or of `eps` where it is less."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        whole, targets = torch.cat([plain(a[0]) for a in args], -1), plain(args[0][1])
        of_target = torch.softmax(whole, -1).gather(1, targets[:, None])[:, 0]
        kept = of_target + eps if added else of_target.clamp(min=eps)
        return [Expected(-kept.log(), {}, _atol(whole, setup)) for _ in args]

    return oracle


def _own_parts(*, maximum: str) -> Oracle:
    """Neither the sum nor the target's logit is added over the ranks; the `maximum` is of "all" ranks, the "own" one, or "no" one."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        parts, targets = [plain(a[0]).double() for a in args], plain(args[0][1])
        whole, width, kind = torch.cat(parts, -1), parts[0].shape[1], args[0][0].base.dtype
        made = []
        for rank, part in enumerate(parts):
            less = {"all": whole, "own": part}.get(maximum, torch.zeros_like(part)).amax(-1, keepdim=True)
            column = targets - rank * width
            mine = (part - less).gather(1, column.clamp(0, width - 1)[:, None])[:, 0]
            loss = torch.logsumexp(part - less, -1) - torch.where((column >= 0) & (column < width), mine, 0)
            made.append(Expected(loss.to(kind), {}, _atol(whole.to(kind), setup)))
        return made

    return oracle


def _own_sum(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The maximum and the target's logit are right; each rank's sum is of its own columns."""
    parts = [plain(a[0]) for a in args]
    whole = torch.cat(parts, -1)
    chosen = whole.double().gather(1, plain(args[0][1])[:, None])[:, 0]
    return [Expected((torch.logsumexp(p.double(), -1) - chosen).to(p.dtype), {}, _atol(whole, setup)) for p in parts]


def _own_maximum(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each rank subtracts its own maximum; the sums are added as if they were of one scale."""
    parts, targets = [plain(a[0]).double() for a in args], plain(args[0][1])
    kind = args[0][0].base.dtype
    shifted = torch.cat([t - t.amax(-1, keepdim=True) for t in parts], -1)
    made = torch.exp(shifted).sum(-1).log() - shifted.gather(1, targets[:, None])[:, 0]
    return [Expected(made.to(kind), {}, _atol(torch.cat(parts, -1).to(kind), setup)) for _ in args]


def _three_small(run: Run) -> str | None:
    enough = "three are enough, a maximum and two sums"
    return three_numbers_a_row(run, enough, "enough in all")


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
        rules.carried(one_a_row, one_a_row),
    ),
    mistakes=known(
        {
            "the logarithm of a probability that was rounded to 0: log(sum) - x needs no probability": _of_probability,
            "not stable: exp of large logits overflows or vanishes; subtract "
            "each row's maximum over all ranks first": _unstable,
            "every rank added a logit for the target: only the rank that holds its column must add it, the others "
            "add 0": [
                everywhere(_oracle_from(_without_mask(column, less_maximum=less_maximum)))
                for column in (_clamped, _modulo)
                for less_maximum in (True, False)
            ],
            "the targets were looked up as if each rank's columns began at 0: rank r's begin at r*w, so look for "
            "target - r*w": [_oracle_from(_where_less(less_maximum=less_maximum)) for less_maximum in (True, False)],
            "ranks to the right of the target's added a logit too: there target - r*w is negative, which as an index "
            "counts from the end, so take only what is from 0 to w-1": [
                _oracle_from(_more_found(-1, -1, less_maximum=less_maximum)) for less_maximum in (True, False)
            ],
            "off by one where a rank looks for the target among its columns: target - r*w = w is the next rank's "
            "first column": [
                _oracle_from(_more_found(0, 0, less_maximum=less_maximum)) for less_maximum in (True, False)
            ],
            "a small number was added to the probability, or put in its place, before the logarithm: log(sum) - x "
            "needs no probability, and no such number": [
                _kept_off_zero(10.0**-digits, added=added)
                for digits in (5, 6, 7, 8, 9, 10, 12, 15, 20, 30)
                for added in (True, False)
            ],
            "neither the sum of exponentials nor the target's logit was added over the ranks": [
                _own_parts(maximum=maximum) for maximum in ("all", "own", "no")
            ],
            "the maximum was subtracted in the sum or from the target's logit, but not in both: the logarithm of the "
            "sum needs it back, or the logit must lack it too": [
                _oracle_from(_two_scales(missing_in_sum=missing)) for missing in (True, False)
            ],
            "the target's logit is missing: this is the logarithm of the sum alone": [
                _oracle_from(lambda rows, targets, width: torch.logsumexp(rows, -1)),
                (
                    _oracle_from(lambda rows, targets, width: torch.logsumexp(rows - rows.amax(-1, keepdim=True), -1)),
                    lambda run: not evidence.maxima_at_least(2)(run),
                ),
            ],
            "the target's logit was reduced with MAX, where the zeros of the other ranks win: add it": (
                _oracle_from(lambda rows, targets, width: torch.logsumexp(rows - rows.amax(-1, keepdim=True), -1)),
                evidence.maxima_at_least(2),
            ),
            "each rank subtracted its own maximum: the sums only fit "
            "together with the maximum over all ranks": _own_maximum,
            "the sum is over each rank's own columns: add it over all ranks": _own_sum,
            "the sign is wrong: the loss is positive": _oracle_from(lambda *a: -_losses(*a)),
            "the mean over the rows came back: return one loss a row": _oracle_from(lambda *a: _losses(*a).mean()),
            "the target's probability came back, not its negative logarithm": _oracle_from(
                lambda *a: torch.exp(-_losses(*a))
            ),
        }
    ),
    unit="row",
    collective="all_reduce",
    chunking="none",
    demo_setup=Setup(4, 2),
    forbidden_advice="All_reduces of three values a row, a maximum and two sums, are all that it needs.",
)
