"""sequence_parallel_linear(x, w) -> Tensor: all ranks' rows of x times this rank's columns of w; backward gathers x again.

After the call the rank calls `.backward(gradient)` on what came back. The router hands that gradient out, so that the log tells
which gather came before it and which one after: between them a rank is to keep its own rows of x only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Parameter, Setup, Upstream, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances, layouts, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.ranks.wire import LogEntry, record

WIDTH = 3
# so large that what a rank keeps until backward is seen in whatever form
LARGE = Setup(8, 4, values="random").with_options(columns=8, width=8192)
LATER_S = 64.0  # of virtual time, in which the layers behind this one compute
NAMES = ("x", "w")
GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})
SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_tensor"})


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    columns, width = setup.option("columns", 2 * setup.ranks), setup.option("width", WIDTH)
    shares = draw(setup, rng, width, columns).tensor_split(setup.ranks, 1)
    for rank, share in enumerate(shares):
        own = rng.of_rank(rank)
        x = draw(setup, own, setup.size, width)
        upstream = View.of(draw(setup, own, setup.ranks * setup.size, share.shape[1]), setup.layout)
        tensors = [Parameter.without_gradient(n, t, setup.layout) for n, t in zip(NAMES, (x, share), strict=True)]
        yield (*tensors, Upstream(upstream, LATER_S))


class _Whole:
    """All ranks' rows in float64, their columns, and their gradients of the products."""

    def __init__(self, args: Sequence[Args]) -> None:
        self.count = args[0][0].data.size[0]
        self.x = torch.cat([plain(given[0])[0].double() for given in args])
        self.w = [plain(given[1])[0].double() for given in args]
        self.upstream = [plain(given[2]).double() for given in args]
        self.parts = [g @ w.T for g, w in zip(self.upstream, self.w, strict=True)]  # of the gradient of all of x

    def rows(self, rank: int) -> slice:
        """The rows of a rank."""
        return slice(rank * self.count, (rank + 1) * self.count)

    def bound(self) -> float:
        """The largest number that any of the products adds up."""
        g, w = [t.abs() for t in self.upstream], [t.abs() for t in self.w]
        sums = torch.stack([a @ b.T for a, b in zip(g, w, strict=True)]).sum(0)
        made = [sums, *(self.x.abs() @ t for t in w), *(self.x.abs().T @ t for t in g)]
        return max((float(t.max()) for t in made if t.numel()), default=0.0)


Outcome = Callable[[_Whole, int], tuple[torch.Tensor, ...]]  # (y, gradient of x, gradient of w) of a rank


@oracle_maker
def _oracle_from(setup: Setup, args: Sequence[Args], make: Outcome) -> Iterator[Expected]:
    whole, kind = _Whole(args), args[0][0].data.base.dtype
    atol = whole.bound() * torch.finfo(kind).eps * 8
    for rank in range(setup.ranks):
        y, *gradients = (t.to(kind).contiguous() for t in make(whole, rank))
        yield Expected(y, {(i, "grad"): g for i, g in enumerate(gradients)}, atol)


def _right(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    total = torch.stack(w.parts).sum(0)
    return w.x @ w.w[rank], total[w.rows(rank)], w.x.T @ w.upstream[rank]


def _own_part(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    y, _, grad_w = _right(w, rank)
    return y, w.parts[rank][w.rows(rank)], grad_w


def _own_rows_of_w(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    y, grad_x, _ = _right(w, rank)
    mine = w.rows(rank)
    return y, grad_x, w.x[mine].T @ w.upstream[rank][mine]


def _own_rows_of_both(w: _Whole, rank: int) -> tuple[torch.Tensor, ...]:
    y, grad_x, _ = _own_part(w, rank)
    return y, grad_x, _own_rows_of_w(w, rank)[2]


def _nbytes(run: Run, call: int, rank: int) -> int:
    """Bytes of a rank's rows of x."""
    data = run.args[call][rank][0].data
    return data.tensor().numel() * data.base.element_size()


def _gathers(run: Run, call: int, rank: int) -> list[LogEntry]:
    mine = [e for e in run.collectives if e.rank == rank and e.call == call and e.op in GATHERS]
    return sorted(mine, key=lambda e: e.index)


def _gathered_again(run: Run) -> str | None:
    """x must be gathered once forward and once more backward, so that nobody keeps it in between."""
    if broken := rules.no_messages(run):
        return broken
    whole, sends = "p times as many bytes as its own rows", "gather the rows again in the backward pass"
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            found = _gathers(run, call, rank)
            if len(found) == 1:
                return About(
                    f"rank {rank} gathers x only once{run.at(found[0].line)}, so until its backward pass it keeps the rows of all ranks, "
                    f"{whole}: keep your own rows, and {sends}",
                    found[0],
                )
            if len(found) != 2:
                last = found[-1] if found else None
                words = f"rank {rank} gathers {len(found)} times{run.at(last.line if last else None)}: x once forward and once backward"
                return About(f"{words} are enough", last)
            for entry in found:
                if entry.nbytes != _nbytes(run, call, rank):
                    return rules.wider(run, entry) or About(
                        f"rank {rank} gathers {entry.nbytes} bytes{run.at(entry.line)}, but its rows of x have "
                        f"{_nbytes(run, call, rank)}: only x is gathered",
                        entry,
                    )
    return None


def _after_the_gradient(run: Run) -> str | None:
    """The second gather must come in the backward pass, when the gradient is there."""
    for rank in range(run.ranks):
        mine = [e for e in run.outcome.trace if e.rank == rank]
        worked = max((e.end for e in mine if e.op == "compute"), default=None)
        begun = sorted(e.start for e in mine if e.op in GATHERS)
        if worked is None or len(begun) != 2:
            continue
        entry = _gathers(run, 0, rank)[1]
        if begun[1] < worked:
            return About(
                f"rank {rank} gathers x for the second time{run.at(entry.line)} before there is a gradient, and so keeps all rows until "
                "backward: the second gather belongs into the backward pass",
                entry,
            )
    return None


def _room(setup: Setup) -> int:
    """Elements that a rank may keep until backward, beside its arguments and the result: two copies of its rows and of its columns."""
    columns = setup.option("columns", 2 * setup.ranks)
    return 2 * setup.option("width", WIDTH) * (setup.size + -(-columns // setup.ranks))


def _own_rows_kept(run: Run) -> str | None:
    """Until the gradient comes no rank may keep the other ranks' rows, in whatever tensors or arrays."""
    itemsize = run.args[0][0][0].data.base.element_size()
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            kept = sum(
                int.from_bytes(used.data, "big") for used in record.used(run.outcome.router, rank, call).values()
            )
            if kept > _room(run.setup) * itemsize:
                gather = next(iter(_gathers(run, call, rank)), None)
                return About(
                    f"rank {rank} keeps {kept} bytes from the forward to the backward pass, beside x, w and the result, but its rows of x "
                    f"have {_nbytes(run, call, rank)}: let go of what all_gather brought{run.at(gather.line if gather else None)}, with "
                    "all copies",
                    gather,
                    kind="keeps the gathered rows",
                )
    return None


def _one_scatter(run: Run) -> str | None:
    """One reduce_scatter of the gradient of x."""
    for _, rank, mine in run.by_rank([e for e in run.collectives if e.op in SCATTERS]):
        if len(mine) != 1:
            last = mine[-1] if mine else None
            at = run.at(last.line) if last else ""
            return About(f"rank {rank} calls reduce_scatter {len(mine)} times{at}: once, for the gradient of x", last)
    return None


def _received(run: Run, call: int, rank: int) -> int:
    """The other ranks' rows forward, and its own rows' gradient."""
    return run.ranks * _nbytes(run, call, rank)


def _sent(run: Run, call: int, rank: int) -> int:
    """Its own rows forward, and the gradients of all rows."""
    return (run.ranks + 1) * _nbytes(run, call, rank)


EXERCISE = Exercise(
    name="sequence_parallel_linear",
    promise="returns all ranks' rows of x times w, and can be differentiated; backward gathers x again",
    groups=(
        Group("right result and gradients", 4, (Setup(2, 2), Setup(3, 4), Setup(4, 3))),
        Group("any rank count", 1, (Setup(1, 2), Setup(5, 2), Setup(8, 1))),
        Group(
            "any size",
            1,
            (
                *(Setup(p, n).with_options(columns=c) for p, n, c in ((2, 2, 3), (3, 2, 5), (4, 2, 9), (4, 16, 4))),
                Setup(3, 1),
            ),
        ),
        Group("wide rows", 1, (LARGE,)),
        many_ranks(2, Setup(9, 2), columns=(19, 23, 29)),
        Group("any dtype", 1, (Setup(3, 4, "float64", values="random"), Setup(2, 2, values="random"))),
        layouts(Setup(3, 4), "strided", "transposed"),
        circumstances(Setup(3, 4)),
    ),
    inputs=_inputs,
    labels={"columns": "{} columns", "width": "rows of width {}"},
    oracle=_oracle_from(_right),
    allow=GATHERS | SCATTERS,
    rules=(
        rules.in_dtype(0),
        Rule("x gathered forward, and again backward", 6, _gathered_again),
        Rule("the second gather in the backward pass", 3, _after_the_gradient, rules.on_one_call),
        Rule(
            "only its own rows kept until backward",
            3,
            _own_rows_kept,
            lambda setup: (setup.ranks - 1) * setup.size * setup.option("width", WIDTH) > _room(setup),
        ),
        Rule("one reduce_scatter of the gradient of x", 2, _one_scatter),
        rules.carried(_received, _sent),
    ),
    mistakes={
        "the gradient of x is this rank's part only: every rank used these rows for its own columns, so backward "
        "adds the parts and cuts them in one reduce_scatter": _oracle_from(_own_part),
        "the gradient of w is that of this rank's rows only: it multiplied the rows of all ranks, so gather x "
        "again": _oracle_from(_own_rows_of_w),
        "both gradients are those of this rank's rows and columns only: backward gathers x again for w, and adds "
        "the parts for x": _oracle_from(_own_rows_of_both),
    },
    unit="row a rank",
    collective="all_gather",
    algorithm="sequence parallel",
    demo_setup=Setup(4, 2),
    only_sums=True,
    forbidden_advice="It needs an all_gather forward, and an all_gather and a reduce_scatter backward.",
)
