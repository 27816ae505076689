"""column_row_linear(x, a_shard, b_shard) -> Tensor: relu(x A) B, A split by columns and B by rows over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances, layouts, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run

WIDTH_IN, WIDTH_OUT = 3, 2  # different, so that the log tells the result from the gradient of x


def pair(setup: Setup, rng: Draws) -> tuple[torch.Tensor, Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """x, each rank's columns of A, and its rows of B."""
    hidden = setup.option("hidden", 2 * setup.ranks)
    x = draw(setup, rng, setup.size, WIDTH_IN)
    a, b = draw(setup, rng, WIDTH_IN, hidden), draw(setup, rng, hidden, WIDTH_OUT)
    return x, a.tensor_split(setup.ranks, 1), b.tensor_split(setup.ranks, 0)


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    x, columns, rows = pair(setup, rng)
    return [(View.of(x, setup.layout), View.of(c), View.of(r)) for c, r in zip(columns, rows, strict=True)]


def _parts(args: Sequence[Args]) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    return plain(args[0][0]).double(), [plain(a[1]).double() for a in args], [plain(a[2]).double() for a in args]


@oracle_maker
def _oracle_from(
    setup: Setup,
    args: Sequence[Args],
    make: Callable[[torch.Tensor, list[torch.Tensor], list[torch.Tensor], int], torch.Tensor],
) -> list[Expected]:
    """An oracle from `make(x, columns, rows, rank)`, which computes in float64."""
    kind = args[0][0].base.dtype
    x, columns, rows = _parts(args)
    bound = (x.abs() @ torch.cat(columns, 1).abs() @ torch.cat(rows, 0).abs()).max() if x.numel() else torch.tensor(0.0)
    atol = float(bound) * torch.finfo(kind).eps * 8
    return [Expected(make(x, columns, rows, rank).to(kind), {}, atol) for rank in range(setup.ranks)]


def _right(x: torch.Tensor, columns: list[torch.Tensor], rows: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.stack([torch.relu(x @ c) @ r for c, r in zip(columns, rows, strict=True)]).sum(0)


def _without_relu(x: torch.Tensor, columns: list[torch.Tensor], rows: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.stack([x @ c @ r for c, r in zip(columns, rows, strict=True)]).sum(0)


def _relu_late(x: torch.Tensor, columns: list[torch.Tensor], rows: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.relu(_without_relu(x, columns, rows, rank))


def _relu_each(between: bool) -> Callable[..., torch.Tensor]:
    """The sum of relus of the partial products; `between`: with the right relu too."""

    def made(x: torch.Tensor, columns: list[torch.Tensor], rows: list[torch.Tensor], rank: int) -> torch.Tensor:
        parts = [(torch.relu(x @ c) if between else x @ c) @ r for c, r in zip(columns, rows, strict=True)]
        return torch.stack([torch.relu(part) for part in parts]).sum(0)

    return made


def _relu_again(x: torch.Tensor, columns: list[torch.Tensor], rows: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.relu(_right(x, columns, rows, rank))


def _one(run: Run) -> str | None:
    wanted, enough = run.setup.size * WIDTH_OUT, "one is enough, after the product with B's rows"
    broken = rules.calls(run, "all_reduce", enough, least=1, most=1)
    return broken or rules.reduces_other(run, (wanted,), f"the result has {wanted}")


ANY_PAIR = (
    Group("any rank count", 1, (Setup(1, 2), Setup(5, 2), Setup(8, 2))),
    Group(
        "any size",
        1,
        (*(Setup(p, 2).with_options(hidden=h) for p, h in ((2, 3), (3, 2), (4, 9))), Setup(3, 1), Setup(3, 0)),
    ),
    many_ranks(2, Setup(9, 3), hidden=(19, 23, 29)),
    Group("any dtype", 1, (Setup(3, 4, "float64", values="random"), Setup(2, 2, values="random"))),
    layouts(Setup(3, 4), "strided", "transposed"),
    circumstances(Setup(3, 4)),
)

EXERCISE = Exercise(
    name="column_row_linear",
    promise="returns relu(x A) B on every rank",
    groups=(Group("right product", 3, (Setup(2, 2), Setup(3, 4), Setup(4, 3))), *ANY_PAIR),
    inputs=_inputs,
    oracle=_oracle_from(_right),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("exactly one all_reduce", 6, _one),
        rules.in_dtype(0),
        rules.exchanged(rules.numbers(lambda s: s.size * WIDTH_OUT)),
    ),
    mistakes={
        "relu is missing between the two products, or its result is not used": _oracle_from(_without_relu),
        "relu came after the second product: it belongs between the two": _oracle_from(_relu_late),
        "relu was applied to the result too": _oracle_from(_relu_again),
        "relu came after the second product, on each rank's partial product: it belongs between the two "
        "products, and a sum of relus is not the relu of a sum": _oracle_from(_relu_each(False)),
        "relu was applied to each rank's partial product too: it belongs between the two products only": _oracle_from(
            _relu_each(True)
        ),
    },
    unit="row",
    collective="all_reduce",
    algorithm="tensor parallel",
    demo_setup=Setup(4, 3),
    only_sums=True,
    forbidden_advice="One dist.all_reduce is all that it needs.",
)
EXERCISE = steadied(EXERCISE, {"relu": lambda setup: True})
