"""distributed_softmax(logits) -> Tensor: softmax over the last dimension, which is split over the ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, plain
from allranks.judge.common import LOGIT_GROUPS, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run


def _widths(setup: Setup) -> list[int]:
    """Columns on each rank: tensor_split of the whole row, whose width is `columns`."""
    columns = setup.option("columns", 2 * setup.ranks)
    base, longer = divmod(columns, setup.ranks)
    return [base + (r < longer) for r in range(setup.ranks)]


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    scale, shift = setup.option("scale", 1), setup.option("shift", 0)
    made = []
    for rank, width in enumerate(_widths(setup)):
        shape = (width,) if setup.option("row") else (*setup.option("_planes", ()), setup.size, width)
        made.append((View.of(draw(setup, rng.of_rank(rank), *shape) * scale + shift, setup.layout),))
    return made


def _whole(args: Sequence[Args]) -> torch.Tensor:
    return torch.cat([plain(a[0]) for a in args], -1)


def _split(whole: torch.Tensor, setup: Setup, atol: float) -> list[Expected]:
    return [Expected(part.contiguous(), {}, atol) for part in whole.split(_widths(setup), -1)]


def _atol(kind: torch.dtype) -> float:
    return {torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(kind, 1e-5)


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    whole = _whole(args)
    return _split(torch.softmax(whole.double(), -1).to(whole.dtype), setup, _atol(whole.dtype))


def _own_maximum(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each rank subtracts its own maximum; the sums are added as if they were of one scale."""
    parts = [plain(a[0]).double() for a in args]
    tops = [torch.exp(t - t.amax(-1, keepdim=True)) for t in parts]
    total = sum(t.sum(-1, keepdim=True) for t in tops)
    kind = args[0][0].base.dtype
    return [Expected((t / total).to(kind), {}, _atol(kind)) for t in tops]


def _added_maxima(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The maxima added instead of compared: harmless until the logits are large."""
    parts = [plain(a[0]) for a in args]
    exps = torch.exp(torch.cat(parts, -1) - sum(t.amax(-1, keepdim=True) for t in parts))
    return _split(exps / exps.sum(-1, keepdim=True), setup, _atol(exps.dtype))


def _unstable(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    whole = _whole(args)
    exps = torch.exp(whole)
    return _split(exps / exps.sum(-1, keepdim=True), setup, _atol(whole.dtype))


def _unstable_sum(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each rank's sum is that of exp without a maximum, and is made smaller only then."""
    whole, parts = _whole(args), [plain(a[0]) for a in args]
    top = whole.amax(-1, keepdim=True)
    total = sum((t.exp().sum(-1, keepdim=True).log() - top).exp() for t in parts)
    return _split((whole - top).exp() / total, setup, _atol(whole.dtype))


def _own_sum_first(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Divided by the rank's own sum first, which is zero where its columns are far below the row's maximum."""
    whole = _whole(args)
    top = whole.amax(-1, keepdim=True)
    parts = [(plain(a[0]) - top).exp() for a in args]
    own = [t.sum(-1, keepdim=True) for t in parts]
    kind = whole.dtype
    return [Expected(t / mine * (mine / sum(own)), {}, _atol(kind)) for t, mine in zip(parts, own, strict=True)]


def _one_maximum(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The largest of all logits taken from every row: harmless until a row lies far below it."""
    whole = _whole(args)
    exps = torch.exp(whole - whole.amax())
    return _split(exps / exps.sum(-1, keepdim=True), setup, _atol(whole.dtype))


def _over(dim: int, of_sum: bool) -> Oracle:
    """The maxima over this dimension, compared over the ranks, taken for those of the rows; with `of_sum` the sums too."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        parts = [plain(a[0]).double() for a in args]
        if parts[0].dim() < dim + 2:
            raise ValueError(f"dimension {dim} is the last one, or there is none")
        top = torch.stack([t.amax(dim, keepdim=True) for t in parts]).amax(0)
        exps = [torch.exp(t - top) for t in parts]
        total = sum(e.sum(dim if of_sum else -1, keepdim=True) for e in exps)
        kind = args[0][0].base.dtype
        return [Expected((e / total).to(kind), {}, _atol(kind)) for e in exps]

    return oracle


def _rows(setup: Setup) -> int:
    return 1 if setup.option("row") else math.prod(setup.option("_planes", ())) * setup.size


def _log(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    whole = _whole(args)
    return _split(torch.log_softmax(whole.double(), -1).to(whole.dtype), setup, _atol(whole.dtype))


def _two_small(run: Run) -> str | None:
    broken = rules.calls(run, "all_reduce", "two are enough, a maximum and a sum", most=2)
    if broken:
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
    oracle=_oracle,
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("at most two all_reduces of one value per row", 7, _two_small),
        rules.in_dtype(0),
        rules.exchanged(rules.numbers(_rows)),
    ),
    mistakes=known(
        {
            "the maxima were added: reduce them with ReduceOp.MAX": _added_maxima,
            "not stable: exp of large logits overflows or vanishes; subtract each row's maximum over all ranks first": [
                _unstable,
                _unstable_sum,
            ],
            "0/0 is NaN: the sum of a rank's own columns is zero where they are far below the row's maximum; divide "
            "by the sum over all ranks only": _own_sum_first,
            "each rank subtracted its own maximum: the sums only fit "
            "together with the maximum over all ranks": _own_maximum,
            "one maximum for all rows: a row far below it becomes 0/0; subtract "
            "from each row its own, over all ranks": _one_maximum,
            "the maximum of each column was subtracted, as max over dim 0 gives: take each row's, over the last "
            "dimension": _over(0, of_sum=False),
            "the maxima and the sums are over dimension 1: take the last dimension, dim=-1, which is another one "
            "where there are three": _over(1, of_sum=True),
            "the logarithm of the softmax came back": _log,
        }
    ),
    unit="row",
    collective="all_reduce",
    chunking="none",
    demo_setup=Setup(4, 2),
    forbidden_advice="Two all_reduces, of the rows' maxima and of their sums, are all that it needs.",
)
