"""tensor_parallel_mlp(x, a_shard, b_shard) -> Tensor: relu(x A) B that can be differentiated, A split by columns and B by rows.

After the call the rank calls `.backward(gradient)` on what came back, and the gradients of all three arguments are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from allranks.exercises.column_row_linear import ANY_PAIR, WIDTH_IN, WIDTH_OUT, pair
from allranks.exercises.families import steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Parameter, Setup, Upstream, View, draw, oracle_maker, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

NAMES = ("x", "a_shard", "b_shard")


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    x, columns, rows = pair(setup, rng)
    # then no element of x A is 0, where clamp and maximum have another slope than relu: A's are whole and below 16
    x[:, 0] += 1 / 16
    upstream = Upstream(View.of(draw(setup, rng, setup.size, WIDTH_OUT), setup.layout))
    return [
        (*(Parameter.without_gradient(n, t, setup.layout) for n, t in zip(NAMES, (x, c, r), strict=True)), upstream)
        for c, r in zip(columns, rows, strict=True)
    ]


class _Whole:
    """All ranks' arguments in float64, what each rank computes of them, and the sums."""

    def __init__(self, args: Sequence[Args]) -> None:
        self.x, self.upstream = plain(args[0][0])[0].double(), plain(args[0][3]).double()
        self.a, self.b = ([plain(given[i])[0].double() for given in args] for i in (1, 2))
        self.h = [torch.relu(self.x @ a) for a in self.a]
        self.y = [h @ b for h, b in zip(self.h, self.b, strict=True)]
        into = [(self.upstream @ b.T) * (h > 0) for h, b in zip(self.h, self.b, strict=True)]  # relu's gradient
        self.grad_x = [g @ a.T for g, a in zip(into, self.a, strict=True)]
        self.grad_a = [self.x.T @ g for g in into]
        self.grad_b = [h.T @ self.upstream for h in self.h]

    def bound(self) -> float:
        """The largest number that any of the products adds up."""
        x, g = self.x.abs(), self.upstream.abs()
        a, b = torch.cat(self.a, 1).abs(), torch.cat(self.b, 0).abs()
        made = (x @ a @ b, g @ b.T @ a.T, x.T @ (g @ b.T), (x @ a).T @ g)
        return max((float(t.max()) for t in made if t.numel()), default=0.0)


Outcome = Callable[[_Whole, int], tuple[torch.Tensor, ...]]  # (y, gradient of x, of a_shard, of b_shard) of a rank


@oracle_maker
def _oracle_from(setup: Setup, args: Sequence[Args], make: Outcome) -> Iterator[Expected]:
    whole, kind = _Whole(args), args[0][0].data.base.dtype
    atol = whole.bound() * torch.finfo(kind).eps * 8
    for rank in range(setup.ranks):
        y, *gradients = (t.to(kind) for t in make(whole, rank))
        yield Expected(y, {(i, "grad"): g for i, g in enumerate(gradients)}, atol)


def _total(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(parts)).sum(0)


def _right(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    return _total(w.y), _total(w.grad_x), w.grad_a[rank], w.grad_b[rank]


def _times(x: float, a: float, b: float, whole_x: bool = True) -> Outcome:
    """The right result, with gradients that are so many times the right ones; `whole_x` False: of this rank's part of x's."""

    def made(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
        y, grad_x, grad_a, grad_b = _right(w, rank)
        p = len(w.a)
        return y, (grad_x if whole_x else w.grad_x[rank]) * p**x, grad_a * p**a, grad_b * p**b

    return made


def _summed_weights(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    """The gradients of the shards added over the ranks, as in data parallelism."""
    return _total(w.y), _total(w.grad_x), _total(w.grad_a), _total(w.grad_b)


def _summed_hidden(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    """The gradients of the ranks' hidden columns added, as if the ranks had the same columns."""
    into = _total([w.upstream @ b.T for b in w.b]) * (w.h[rank] > 0)
    return _total(w.y), into @ w.a[rank].T, w.x.T @ into, w.grad_b[rank]


def _other_relu(inner: bool, outer: str) -> Outcome:
    """relu elsewhere: `inner` between the products, `outer` behind them, on each rank's "part", on the "sum", or on "none"."""

    def made(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
        h = [torch.relu(w.x @ a) if inner else w.x @ a for a in w.a]
        parts = [h_r @ b for h_r, b in zip(h, w.b, strict=True)]
        total = _total(parts)
        back = [w.upstream * {"part": own > 0, "sum": total > 0, "none": total == total}[outer] for own in parts]
        into = [g @ b.T * ((h_r > 0) if inner else 1) for g, b, h_r in zip(back, w.b, h, strict=True)]
        y = {"part": _total([torch.relu(own) for own in parts]), "sum": torch.relu(total), "none": total}[outer]
        grad_x = _total([g @ a.T for g, a in zip(into, w.a, strict=True)])
        return y, grad_x, w.x.T @ into[rank], h[rank].T @ back[rank]

    return made


def _partial(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    return w.y[rank], _total(w.grad_x), w.grad_a[rank], w.grad_b[rank]


def _exchanged(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """g before the pair and f behind it: x is added over the ranks, the partial results are not."""
    whole, kind = _Whole(args), args[0][0].data.base.dtype
    p, made = len(whole.a), []
    for rank in range(setup.ranks):
        # relu(p x A) = p relu(x A); backward, f's sum makes the gradient of the partial result p times as large
        y = whole.y[rank] * p
        gradients = (whole.grad_x[rank] * p, whole.grad_a[rank] * p**2, whole.grad_b[rank] * p**2)
        changed = {(i, "grad"): g.to(kind) for i, g in enumerate(gradients)}
        made.append(Expected(y.to(kind), changed, whole.bound() * p**2 * torch.finfo(kind).eps * 8))
    return made


def _one_each_way(run: Run) -> str | None:
    broken = rules.calls(
        run, "all_reduce", "two are enough, one of the result and one of the gradient of x", least=2, most=2
    )
    if broken:
        return broken
    wanted = [run.setup.size * WIDTH_OUT, run.setup.size * WIDTH_IN]
    for _, _, mine in run.by_rank(sorted(run.collectives, key=lambda e: e.index)):
        for entry, numel, what in zip(mine, wanted, ("the result", "the gradient of x"), strict=False):
            if entry.numel != numel:
                return About(
                    f"rank {entry.rank} reduces {entry.numel} elements{run.at(entry.line)}, but {what} has {numel}: "
                    "forward the result is added over the ranks, backward the gradient of x, and nothing else",
                    entry,
                )
    return None


EXERCISE = Exercise(
    name="tensor_parallel_mlp",
    promise="returns relu(x A) B on every rank, and can be differentiated",
    groups=(Group("right result and gradients", 4, (Setup(2, 2), Setup(3, 4), Setup(4, 3))), *ANY_PAIR),
    inputs=_inputs,
    oracle=_oracle_from(_right),
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("one all_reduce forward and one backward", 6, _one_each_way),
        Rule("in the tensors' dtype", 2, rules.wrong_dtype),
        rules.exchanged(rules.numbers(lambda s: s.size * (WIDTH_IN + WIDTH_OUT))),
    ),
    mistakes={
        "the gradient of x is this rank's part only: every rank used x for its own columns, so backward must add "
        "the parts over the ranks (the function f, before the pair)": _oracle_from(_times(0, 0, 0, whole_x=False)),
        "the sum's backward adds over the ranks again, so gradients are p times too large: every rank has the "
        "whole gradient of the result already, and g passes it on as it is": _oracle_from(_times(1, 1, 1)),
        "the sum's backward adds over the ranks again, so gradients are p times too large, and the gradient of x "
        "is this rank's part only: f and g are both missing": _oracle_from(_times(1, 1, 1, whole_x=False)),
        "the gradients of the hidden layer were added over the ranks: its columns are others on each rank, so f "
        "belongs before the pair, at x": _oracle_from(_summed_hidden),
        "relu is missing: it belongs between the two products, on x A": _oracle_from(_other_relu(False, "none")),
        **{
            f"relu is applied {where}: it belongs between the two products, on x A, and nowhere else": _oracle_from(
                wrong
            )
            for where, wrong in (
                ("to the result, not to x A", _other_relu(False, "sum")),
                ("to each rank's part of the result, not to x A", _other_relu(False, "part")),
                ("to the result once more", _other_relu(True, "sum")),
                ("to each rank's part of the result once more", _other_relu(True, "part")),
            )
        },
        "f and g are exchanged: x was added over the ranks, and the partial results were not": _exchanged,
        "the gradients of the shards were added over the ranks: each rank's columns are its own": _oracle_from(
            _summed_weights
        ),
        "each rank's partial product: the all_reduce of the result is missing": _oracle_from(_partial),
    },
    unit="row",
    collective="all_reduce",
    algorithm="tensor parallel",
    demo_setup=Setup(4, 3),
    only_sums=True,
    forbidden_advice="One dist.all_reduce forward and one backward are all that it needs.",
)
EXERCISE = steadied(EXERCISE, {"relu": lambda setup: True})
