"""distributed_softmax(logits) -> Tensor: softmax over the last dimension, which is split over the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from allranks.exercises.families import only_where, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import LOGIT_GROUPS, many_ranks, stretched
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run


def _widths(setup: Setup) -> list[int]:
    """Columns on each rank: tensor_split of the whole row, whose width is `columns`."""
    columns = setup.option("columns", 2 * setup.ranks)
    base, longer = divmod(columns, setup.ranks)
    return [base + (r < longer) for r in range(setup.ranks)]


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    for rank, width in enumerate(_widths(setup)):
        shape = (width,) if setup.option("row") else (*setup.option("_planes", ()), setup.size, width)
        yield (View.of(stretched(draw(setup, rng.of_rank(rank), *shape), setup), setup.layout),)


def _atol(kind: torch.dtype) -> float:
    return {torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(kind, 1e-5)


@oracle_maker
def _made(
    setup: Setup, args: Sequence[Args], make: Callable[[list[torch.Tensor], torch.Tensor], Any], wide: bool = False
) -> list[Expected]:
    """What `make(parts, whole rows)` gives, whole rows or parts, in the logits' dtype or, with `wide`, in float64."""
    kind = args[0][0].base.dtype
    parts = [plain(a[0]).to(torch.float64 if wide else kind) for a in args]
    made = make(parts, torch.cat(parts, -1))
    made = made.split([t.shape[-1] for t in parts], -1) if isinstance(made, torch.Tensor) else made
    return [Expected(part.contiguous().to(kind), {}, _atol(kind)) for part in made]


def _top(t: torch.Tensor) -> torch.Tensor:
    return t.amax(-1, keepdim=True)


def _sum(t: torch.Tensor) -> torch.Tensor:
    return t.sum(-1, keepdim=True)


def _normalised(exps: torch.Tensor) -> torch.Tensor:
    return exps / _sum(exps)


def _own_maximum(parts: list[torch.Tensor], whole: torch.Tensor) -> list[torch.Tensor]:
    """Each rank subtracts its own maximum; the sums are added as if they were of one scale."""
    exps = [torch.exp(t - _top(t)) for t in parts]
    return [e / sum(map(_sum, exps)) for e in exps]


def _own_scale_in_the_sum(parts: list[torch.Tensor], whole: torch.Tensor) -> list[torch.Tensor]:
    """The sums are of each rank's own scale, and only what is divided by them is brought to that of all."""
    sums = [_sum(torch.exp(t - _top(t))) for t in parts]
    return [torch.exp(t - _top(whole)) / sum(sums) for t in parts]


def _unstable_sum(parts: list[torch.Tensor], whole: torch.Tensor) -> torch.Tensor:
    """Each rank's sum is that of exp without a maximum, and is made smaller only then."""
    return (whole - _top(whole)).exp() / sum((_sum(t.exp()).log() - _top(whole)).exp() for t in parts)


def _own_sum_first(parts: list[torch.Tensor], whole: torch.Tensor) -> list[torch.Tensor]:
    """Divided by the rank's own sum first, which is zero where its columns are far below the row's maximum."""
    exps = [(t - _top(whole)).exp() for t in parts]
    return [e / _sum(e) * (_sum(e) / sum(map(_sum, exps))) for e in exps]


def _over(dim: int, of_sum: bool) -> Oracle:
    """The maxima over this dimension, compared over the ranks, taken for those of the rows; with `of_sum` the sums too."""

    def make(parts: list[torch.Tensor], whole: torch.Tensor) -> list[torch.Tensor]:
        top = torch.stack([t.amax(dim, keepdim=True) for t in parts]).amax(0)
        exps = [torch.exp(t - top) for t in parts]
        total = sum(e.sum(dim if of_sum else -1, keepdim=True) for e in exps)
        return [e / total for e in exps]

    return only_where(lambda setup, args: plain(args[0][0]).dim() >= dim + 2, _made(make, wide=True))


def _rows(setup: Setup) -> int:
    return 1 if setup.option("row") else math.prod(setup.option("_planes", ())) * setup.size


def _two_small(run: Run) -> str | None:
    if broken := rules.calls(run, "all_reduce", "two are enough, a maximum and a sum", most=2):
        return broken
    rows = _rows(run.setup)
    for entry in run.collectives:
        if entry.numel > rows:
            return About(
                f"rank {entry.rank} reduces {entry.numel} values{run.at(entry.line)}, but there are {rows} rows: one value a row is enough",
                entry,
            )
    return None


EXERCISE = Exercise(
    name="distributed_softmax",
    promise="returns this rank's columns of the softmax over the whole rows",
    groups=(
        Group("right softmax", 3, (Setup(2, 1), Setup(3, 2), Setup(4, 3))),
        Group("any rank count", 1, (Setup(1, 2), Setup(5, 2), Setup(8, 2))),
        many_ranks(2, Setup(9, 3), columns=(41, 43, 47)),
        Group(
            "any width",
            1,
            tuple(
                s.with_options(columns=c)
                for s, c in ((Setup(2, 2), 3), (Setup(3, 2), 4), (Setup(4, 1), 11), (Setup(8, 2), 13))
            ),
        ),
        Group(
            "any shape",
            1,
            (
                Setup(3, 0),
                Setup(3, 1).with_options(row=True),
                Setup(2, 3, note="logits of three dimensions").with_options(_planes=(2,), columns=4),
                Setup(3, 4, layout="transposed"),
                Setup(3, 4, layout="strided"),
            ),
        ),
        *LOGIT_GROUPS,
    ),
    inputs=_inputs,
    labels={"row": "in one dimension", "columns": "{} columns", "scale": "logits times {}", "shift": "logits plus {}"},
    oracle=_made(lambda parts, whole: torch.softmax(whole, -1), wide=True),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("at most two all_reduces of one value per row", 7, _two_small),
        rules.in_dtype(0),
        rules.exchanged(rules.numbers(_rows)),
    ),
    mistakes={
        "the maxima were added: reduce them with ReduceOp.MAX": _made(
            lambda parts, whole: _normalised(torch.exp(whole - sum(map(_top, parts))))
        ),
        "not stable: exp of large logits overflows or vanishes; subtract each row's maximum over all ranks first": [
            _made(lambda parts, whole: _normalised(torch.exp(whole))),
            _made(_unstable_sum),
        ],
        "0/0 is NaN: the sum of a rank's own columns is zero where they are far below the row's maximum; divide "
        "by the sum over all ranks only": _made(_own_sum_first),
        "each rank subtracted its own maximum: the sums only fit together with the maximum over all ranks": [
            _made(_own_maximum, wide=True),
            _made(_own_scale_in_the_sum, wide=True),
        ],
        "one maximum for all rows: a row far below it becomes 0/0; subtract "
        "from each row its own, over all ranks": _made(
            lambda parts, whole: _normalised(torch.exp(whole - whole.amax()))
        ),
        "the maximum of each column was subtracted, as max over dim 0 gives: take each row's, over the last "
        "dimension": _over(0, of_sum=False),
        "the maxima and the sums are over dimension 1: take the last dimension, dim=-1, which is another one "
        "where there are three": _over(1, of_sum=True),
        "the logarithm of the softmax came back": _made(lambda parts, whole: torch.log_softmax(whole, -1), wide=True),
    },
    unit="row",
    collective="all_reduce",
    demo_setup=Setup(4, 2),
    forbidden_advice="Two all_reduces, of the rows' maxima and of their sums, are all that it needs.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "the maximum of each column": lambda setup: setup.option("columns") is None and not setup.option("row"),
        "subtracted its own maximum": lambda setup: True,
    },
)
