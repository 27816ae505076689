"""vocab_cross_entropy(logits_shard, targets) -> (loss, gradient): the mean loss, and its gradient for this rank's columns.

Rank r holds the columns r*w to (r+1)*w - 1 of every row, w = logits_shard.shape[1]; targets count over all columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import everywhere, known, log_sum_error
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, plain
from allranks.judge.common import LOGIT_GROUPS, many_ranks, of_width, one_a_row, three_numbers_a_row
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run

Made = Callable[[torch.Tensor, torch.Tensor, int, int], tuple[torch.Tensor, torch.Tensor]]


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    width, scale, shift = setup.option("width", 3), setup.option("scale", 1), setup.option("shift", 0)
    only = setup.option("all_on")
    low, high = (0, width * setup.ranks) if only is None else (only * width, (only + 1) * width)
    targets = rng.integers(low, high, setup.size)
    parts = [draw(setup, rng.of_rank(r), setup.size, width) * scale + shift for r in range(setup.ranks)]
    return [(View.of(part, setup.layout), View.of(targets)) for part in parts]


def _whole(args: Sequence[Args]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([plain(a[0]) for a in args], -1), plain(args[0][1])


def _oracle_from(make: Made) -> Oracle:
    """An oracle from `make(rows, targets, rank, width)`, which computes in float64: (loss, the rank's part of the gradient)."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        rows, targets = _whole(args)
        kind, width = rows.dtype, args[0][0].size[1]
        eps = torch.finfo(kind).eps
        # of the mean over the rows, and of a softmax's elements, which are 1 at most
        off = float(log_sum_error(rows, setup.ranks).max())
        atol = (max(off, 40 * eps) + len(rows) * eps * off, max(math.expm1(off), 8 * eps))
        made = []
        for rank in range(setup.ranks):
            loss, gradient = make(rows.double(), targets, rank, width)
            made.append(Expected((loss.to(kind), gradient.to(kind)), {}, atol))
        return made

    return oracle


def _parts(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The softmax, and the ones at the targets, in this rank's columns."""
    mine = slice(rank * width, (rank + 1) * width)
    ones = torch.nn.functional.one_hot(targets, rows.shape[1])
    return torch.softmax(rows, -1)[:, mine], ones[:, mine].double()


def _loss(rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(rows, targets)


def _right(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    softmax, ones = _parts(rows, targets, rank, width)
    return _loss(rows, targets), (softmax - ones) / len(rows)


def _scaled(by: Callable[[int, int], float]) -> Made:
    """The right loss, and the gradient times `by(rows, ranks)`."""

    def made(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        loss, gradient = _right(rows, targets, rank, width)
        return loss, gradient * by(len(rows), rows.shape[1] // width)

    return made


def _by_own_targets(
    rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient is divided by the number of targets in this rank's columns, or by 1."""
    loss, gradient = _right(rows, targets, rank, width)
    here = int((targets // width == rank).sum())
    return loss, gradient * len(rows) / max(here, 1)


def _owners_only(only_ones: bool) -> Made:
    """A row's gradient is on the rank whose columns hold its target only: the whole of it, or just its one."""

    def made(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        loss, gradient = _right(rows, targets, rank, width)
        owns = (targets // width == rank)[:, None]
        if only_ones:
            columns = torch.arange(rank * width, (rank + 1) * width, device=targets.device)
            gradient = -(targets[:, None] == columns).to(gradient.dtype) / len(rows)
        return loss, gradient * owns

    return made


def _columns_added(mean: bool) -> Made:
    """The gradients of the ranks' columns added, as if the ranks had the same columns."""

    def made(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        ranks = rows.shape[1] // width
        parts = torch.stack([_right(rows, targets, r, width)[1] for r in range(ranks)])
        return _loss(rows, targets), parts.mean(0) if mean else parts.sum(0)

    return made


def _no_ones(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _loss(rows, targets), _parts(rows, targets, rank, width)[0] / len(rows)


def _ones_everywhere(column: Callable[[torch.Tensor, int, int], torch.Tensor]) -> Made:
    """Every rank subtracts a one for the target, in a column of its own; the loss is right."""

    def made(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        softmax, _ = _parts(rows, targets, rank, width)
        ones = torch.nn.functional.one_hot(column(targets, rank, width), width)
        return _loss(rows, targets), (softmax - ones) / len(rows)

    return made


def _clamped(targets: torch.Tensor, rank: int, width: int) -> torch.Tensor:
    return (targets - rank * width).clamp(0, width - 1)


def _modulo(targets: torch.Tensor, rank: int, width: int) -> torch.Tensor:
    return targets % width


def _all_logits(column: Callable[[torch.Tensor, int, int], torch.Tensor], shifted: bool, ones_too: bool) -> Made:
    """Every rank adds a logit for the target to the loss; the gradient is right, or has these ones too."""

    def made(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        low = rows - rows.amax(-1, keepdim=True) if shifted else rows
        own = [part.gather(1, column(targets, r, width)[:, None])[:, 0] for r, part in enumerate(low.split(width, -1))]
        loss = (torch.logsumexp(low, -1) - sum(own)).mean()
        return loss, (_ones_everywhere(column) if ones_too else _right)(rows, targets, rank, width)[1]

    return made


def _own_softmax(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss is right; the gradient's softmax is over this rank's columns only."""
    _, ones = _parts(rows, targets, rank, width)
    own = torch.softmax(rows[:, rank * width : (rank + 1) * width], -1)
    return _loss(rows, targets), (own - ones) / len(rows)


def _alone(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of loss and gradient is over this rank's columns."""
    own = rows[:, rank * width : (rank + 1) * width]
    chosen = rows.gather(1, targets[:, None])[:, 0]
    return (torch.logsumexp(own, -1) - chosen).mean(), _own_softmax(rows, targets, rank, width)[1]


def _loss_times(by: Callable[[int, int], float]) -> Made:
    """The right gradient, and the loss times `by(rows, ranks)`."""

    def made(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        loss, gradient = _right(rows, targets, rank, width)
        return loss * by(len(rows), rows.shape[1] // width), gradient

    return made


def _ones_added(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    softmax, ones = _parts(rows, targets, rank, width)
    return _loss(rows, targets), (softmax + ones) / len(rows)


def _each_row(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.nn.functional.cross_entropy(rows, targets, reduction="none"), _right(rows, targets, rank, width)[1])


def _own_chosen(shifted: bool) -> Made:
    """A rank subtracts the logit of a target in its own columns only; the gradient is right."""

    def made(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        low = rows - rows.amax(-1, keepdim=True) if shifted else rows
        mine = (targets >= rank * width) & (targets < (rank + 1) * width)
        chosen = low.gather(1, targets[:, None])[:, 0] * mine
        return (torch.logsumexp(low, -1) - chosen).mean(), _right(rows, targets, rank, width)[1]

    return made


def _raw_chosen(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum is of lowered logits, the target's logit is as it was."""
    low = rows - rows.amax(-1, keepdim=True)
    chosen = rows.gather(1, targets[:, None])[:, 0]
    return (torch.logsumexp(low, -1) - chosen).mean(), _right(rows, targets, rank, width)[1]


Tops = Callable[[torch.Tensor, int], torch.Tensor]  # (rows, columns of a rank): what each row's logits are lowered by


def _lowered_by(tops: Tops) -> Oracle:
    """Something else than each row's maximum was subtracted, in the logits' own dtype."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        rows, targets = _whole(args)
        width = args[0][0].size[1]
        low = rows - tops(rows, width)
        exps = low.exp()
        total = exps.sum(-1, keepdim=True)
        loss = (total[:, 0].log() - low.gather(1, targets[:, None])[:, 0]).mean()
        ones = torch.nn.functional.one_hot(targets, rows.shape[1]).to(rows.dtype)
        gradient = (exps / total - ones) / len(rows)
        wanted = _oracle_from(_right)(setup, args)
        parts = gradient.split(width, -1)
        return [Expected((loss, part.contiguous()), {}, wanted[rank].atol) for rank, part in enumerate(parts)]

    return oracle


def _maxima(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Each rank's maximum of each row."""
    return torch.stack([part.amax(-1) for part in rows.split(width, -1)], -1)


def _own_maximum(rows: torch.Tensor, targets: torch.Tensor, rank: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each rank subtracts its own maximum; the sums are added as if they were of one scale."""
    low = torch.cat([t - t.amax(-1, keepdim=True) for t in rows.split(width, -1)], -1)
    exps = torch.exp(low)
    total = exps.sum(-1, keepdim=True)
    loss = (total[:, 0].log() - low.gather(1, targets[:, None])[:, 0]).mean()
    ones = _parts(rows, targets, rank, width)[1]
    return loss, (exps / total)[:, rank * width : (rank + 1) * width].sub(ones) / len(rows)


def _three_small(run: Run) -> str | None:
    enough = "three are enough, a maximum and two sums forward, and none backward"
    return three_numbers_a_row(
        run, enough, "enough in all, and the gradient of its own columns needs nothing of the others"
    )


EXERCISE = Exercise(
    name="vocab_cross_entropy",
    promise="returns the mean loss of the rows, and its gradient for this rank's columns",
    groups=(
        Group("right loss and gradient", 4, (Setup(2, 2), Setup(3, 3), Setup(4, 4))),
        Group("any rank count", 1, (Setup(1, 2), Setup(5, 3), Setup(8, 3))),
        many_ranks(2, Setup(9, 3), width=(2, 3, 4)),
        Group("any width", 1, (*of_width(1, Setup(2, 3), Setup(4, 3)), *of_width(7, Setup(3, 2)))),
        Group(
            "any shape", 1, (Setup(3, 1), Setup(3, 7), Setup(3, 4, layout="transposed"), Setup(3, 4, layout="strided"))
        ),
        Group("any target", 2, tuple(Setup(3, 4).with_options(all_on=rank) for rank in range(3))),
        *LOGIT_GROUPS,
    ),
    inputs=_inputs,
    labels={
        "all_on": "all on rank {}",
        "width": "shares of width {}",
        "scale": "logits times {}",
        "shift": "logits plus {}",
    },
    oracle=_oracle_from(_right),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("at most three values a row, in three all_reduces", 6, _three_small),
        rules.in_dtype(0),
        rules.carried(one_a_row, one_a_row),
    ),
    mistakes=known(
        {
            "not stable: exp of large logits overflows or vanishes; subtract each row's maximum over all ranks first": _lowered_by(
                lambda rows, width: torch.zeros(len(rows), 1)
            ),
            "a rank has the target's logit for the rows whose target is in its own columns only: the other ranks "
            "need it too": [_oracle_from(_own_chosen(shifted)) for shifted in (True, False)],
            "the maximum is missing in the target's logit: it is subtracted in the sum, so it must be subtracted "
            "there too": _oracle_from(_raw_chosen),
            **{
                f"exp of large logits overflows or vanishes: {what}": _lowered_by(tops)
                for what, tops in (
                    (
                        "the ranks' maxima of a row were added, but the row's maximum is the largest of them",
                        lambda rows, width: _maxima(rows, width).sum(-1, keepdim=True),
                    ),
                    (
                        "the smallest of the ranks' maxima of a row was subtracted, but the row's maximum is the largest of them",
                        lambda rows, width: _maxima(rows, width).amin(-1, keepdim=True),
                    ),
                    (
                        "one maximum of all rows was subtracted, but each row has its own",
                        lambda rows, width: rows.amax().expand(len(rows), 1),
                    ),
                    (
                        "each row's minimum was subtracted, but exp needs its maximum",
                        lambda rows, width: rows.amin(-1, keepdim=True),
                    ),
                )
            },
            "every rank subtracted a one for the target: only the rank that holds its column must, where target - "
            "r*w is from 0 to w-1": [
                everywhere(_oracle_from(made))
                for column in (_clamped, _modulo)
                for made in (
                    _ones_everywhere(column),
                    _all_logits(column, True, True),
                    _all_logits(column, False, True),
                )
            ],
            "the ones at the targets are missing from the gradient: this is the softmax alone": _oracle_from(_no_ones),
            "a row's gradient is only on the rank whose columns hold its target: each rank has the softmax of its own "
            "columns in it, whoever holds the target": [_oracle_from(_owners_only(one)) for one in (False, True)],
            "the gradient was added over the ranks: each rank's columns are its own, and nothing is sent backward": [
                _oracle_from(_columns_added(mean)) for mean in (True, False)
            ],
            "the gradient is of the sum of the losses: the loss is their mean, so divide by the number of rows": _oracle_from(
                _scaled(lambda rows, ranks: rows)
            ),
            "the gradient was divided by the number of targets in this rank's columns: the loss is the mean over all "
            "rows, so divide by their number": _oracle_from(_by_own_targets),
            "the gradient was divided by the number of ranks too: these ranks share one loss": _oracle_from(
                _scaled(lambda rows, ranks: 1 / ranks)
            ),
            "the gradient's sign is wrong: it is softmax minus one at the target": _oracle_from(_scaled(lambda *a: -1)),
            "the loss is the sum over the rows, though its gradient is that of the mean: return the mean": _oracle_from(
                _loss_times(lambda rows, ranks: rows)
            ),
            "the loss was divided by the number of ranks too: these ranks share one loss": _oracle_from(
                _loss_times(lambda rows, ranks: 1 / ranks)
            ),
            "the loss was multiplied by the number of ranks: each rank has the whole loss already": _oracle_from(
                _loss_times(lambda rows, ranks: ranks)
            ),
            "the ones at the targets were added to the softmax: the gradient is the softmax minus them": _oracle_from(
                _ones_added
            ),
            "one loss a row came back: return their mean": _oracle_from(_each_row),
            "the gradient's softmax is over this rank's columns: divide by the sum over all ranks": _oracle_from(
                _own_softmax
            ),
            "the sum of exponentials is of this rank's columns only: add it over the ranks": _oracle_from(_alone),
            "each rank subtracted its own maximum: the sums only fit "
            "together with the maximum over all ranks": _oracle_from(_own_maximum),
        }
    ),
    unit="row",
    collective="all_reduce",
    chunking="none",
    demo_setup=Setup(4, 2),
    forbidden_advice="All_reduces of three values a row, a maximum and two sums, are all that it needs.",
)
