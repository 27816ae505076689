"""sequence_parallel_norm(x, weight, bias) -> Tensor: layer norm of this rank's tokens, then the tokens of all ranks; differentiable.

After the call the rank calls `.backward(gradient)` on what came back, each rank with a gradient of its own: what follows is
column-parallel, so that each rank has a part of the gradient of every token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from allranks.judge import provenance, rules
from allranks.judge.cases import Args, Expected, Parameter, Setup, Upstream, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

EPS = 1e-5  # of layer norm
NAMES = ("x", "weight", "bias")
GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})
SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_tensor"})


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    width, real = setup.option("_width", 6), replace(setup, values="random")
    weight, bias = draw(real, rng, width), draw(real, rng, width)
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        x, upstream = draw(real, own, setup.size, width), draw(real, own, setup.ranks * setup.size, width)
        tensors = [Parameter.without_gradient("x", x, setup.layout)]
        tensors += [Parameter.without_gradient(n, t) for n, t in (("weight", weight), ("bias", bias))]
        yield (*tensors, Upstream(View.of(upstream, setup.layout)))


class _Whole:
    """All tokens in float64, normalised, and each rank's gradient of all of them."""

    def __init__(self, args: Sequence[Args]) -> None:
        self.ranks, self.count = len(args), args[0][0].data.size[0]
        self.weight, self.bias = (plain(args[0][i])[0].double() for i in (1, 2))
        self.x = torch.cat([plain(given[0])[0] for given in args]).double()
        centred = self.x - self.x.mean(1, keepdim=True)
        self.scale = (centred.square().mean(1, keepdim=True) + EPS).rsqrt()
        self.normal = centred * self.scale
        self.upstream = [plain(given[3]).double() for given in args]
        self.total = torch.stack(self.upstream).sum(0)

    def tokens(self, rank: int) -> slice:
        """The rows of this rank's tokens."""
        return slice(rank * self.count, (rank + 1) * self.count)

    def result(self) -> torch.Tensor:
        """The normalised tokens of all ranks."""
        return self.normal * self.weight + self.bias

    def of_x(self, gradient: torch.Tensor, rank: int) -> torch.Tensor:
        """The gradient of a rank's x, from a gradient of all tokens."""
        mine = self.tokens(rank)
        g, normal = gradient[mine] * self.weight, self.normal[mine]
        return self.scale[mine] * (g - g.mean(1, keepdim=True) - normal * (g * normal).mean(1, keepdim=True))

    def of_parameters(self, gradient: torch.Tensor, rows: slice = slice(None)) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of weight and bias, from a gradient of these tokens."""
        return (gradient * self.normal)[rows].sum(0), gradient[rows].sum(0)


Gradient = Callable[[_Whole, int], torch.Tensor]  # of a rank


def _added(which: int) -> Gradient:
    """The gradient of weight (0) or bias (1), from the sum of the ranks' gradients of all tokens."""
    return lambda w, rank: w.of_parameters(w.total)[which]


_WEIGHT, _BIAS = _added(0), _added(1)


def _of_own_tokens(which: int) -> Gradient:
    """The same from this rank's tokens only."""
    return lambda w, rank: w.of_parameters(w.total, w.tokens(rank))[which]


def _cut_out(which: int, summed: bool) -> Gradient:
    """The same from this rank's rows of its own gradient, or the sum of those over the ranks."""

    def made(w: _Whole, rank: int) -> torch.Tensor:
        ranks = range(w.ranks) if summed else (rank,)
        return torch.stack([w.of_parameters(w.upstream[r], w.tokens(r))[which] for r in ranks]).sum(0)

    return made


@oracle_maker
def _ending(
    setup: Setup,
    args: Sequence[Args],
    x: Gradient = lambda w, rank: w.of_x(w.total, rank),
    weight: Gradient = _WEIGHT,
    bias: Gradient = _BIAS,
    result: Callable[[_Whole], torch.Tensor] | None = None,
) -> Iterator[Expected]:
    """The result and the gradients; with another `result` the gradients may be anything."""
    whole, kind = _Whole(args), args[0][0].data.base.dtype
    steepest = max(float(whole.scale.max()), 1.0) if whole.x.numel() else 1.0
    atol = 64 * torch.finfo(kind).eps * setup.ranks * max(setup.size, 1) * steepest
    for rank in range(setup.ranks):
        gradients = () if result is not None else (x, weight, bias)
        changed = {(i, "grad"): of(whole, rank).to(kind) for i, of in enumerate(gradients)}
        yield Expected((result or _Whole.result)(whole).to(kind), changed, atol)


def _unbiased(w: _Whole) -> torch.Tensor:
    """The result if the variance was divided by the width less one."""
    return (w.x - w.x.mean(1, keepdim=True)) * (w.x.var(1, keepdim=True) + EPS).rsqrt() * w.weight + w.bias


def _pair(run: Run) -> str | None:
    """One gather of the rank's tokens forward, one reduce_scatter of all tokens' gradient backward."""
    if broken := rules.no_messages(run):
        return broken
    for _, rank, mine in run.by_rank(run.collectives):
        for ops, name, when in ((GATHERS, "all_gather", "forward"), (SCATTERS, "reduce_scatter", "backward")):
            found = [e for e in mine if e.op in ops]
            if len(found) > 1:
                words = f"rank {rank} calls {name} {len(found)} times{run.at(found[-1].line)}: one {when} is enough"
                return About(words, found[-1])
            if not found:
                return f"rank {rank} calls no {name}, but it needs one {when}"
    return None


def _parameters_once(run: Run) -> str | None:
    """The gradients of weight and bias must be added in one all_reduce."""
    broken = rules.calls(
        run, "all_reduce", "one is enough for both parameters: put their gradients into one tensor", most=10**6
    )
    if broken:
        return broken
    wanted = 2 * run.setup.option("_width", 6)
    for _, rank, mine in run.by_rank([e for e in run.collectives if e.op == "all_reduce"]):
        if len(mine) > 1:
            return About(
                f"rank {rank} calls all_reduce {len(mine)} times{run.at(mine[-1].line)}: one is enough for both "
                "parameters, with their gradients in one tensor",
                mine[-1],
            )
        total = sum(e.numel for e in mine)
        if total != wanted:
            return About(
                f"rank {rank} reduces {total} elements, but the gradients of weight and bias have {wanted}",
                mine[0] if mine else None,
            )
    return None


def _own_tokens_only(run: Run) -> str | None:
    """What is gathered must be normalised tokens: else every rank normalises, and keeps, all of them."""
    for call, args in enumerate(run.args):
        whole = _Whole(args)
        for entry in (e for e in run.collectives if e.call == call and e.op in GATHERS):
            sent = provenance.numbers(entry)
            if sent is None:
                continue
            mine = whole.tokens(entry.rank)
            if sent.numel() != entry.numel or sent.numel() != whole.x[mine].numel():
                continue
            if torch.allclose(sent.double(), whole.x[mine].reshape(-1), rtol=1e-6, atol=1e-9):
                return About(
                    f"rank {entry.rank} gathers tokens that are not normalised yet{run.at(entry.line)}, so every rank must "
                    "normalise and keep all of them: normalise your own tokens first, then gather",
                    entry,
                    "tokens of x",
                    "normalised tokens",
                )
    return None


EXERCISE = Exercise(
    name="sequence_parallel_norm",
    promise="returns the layer norm of all ranks' tokens, and can be differentiated",
    groups=(
        Group("right result and gradients", 4, (Setup(2, 2), Setup(3, 3), Setup(4, 2))),
        Group("any rank count", 1, (Setup(1, 3), Setup(5, 2), Setup(8, 1))),
        many_ranks(2, Setup(9, 2), size=(1, 2, 3)),
        Group("any size", 1, (Setup(3, 1), Setup(2, 5).with_options(_width=3), Setup(3, 4).with_options(_width=9))),
        Group("any dtype", 1, (Setup(3, 3, "float64"), Setup(2, 2, "float64"))),
        Group("any layout", 1, (Setup(3, 3, layout="strided"), Setup(3, 2, layout="transposed"))),
        circumstances(Setup(3, 2)),
    ),
    inputs=_inputs,
    oracle=_ending(),
    allow=GATHERS | SCATTERS | {"all_reduce"},
    rules=(
        Rule("one all_gather forward, one reduce_scatter backward", 4, _pair),
        Rule("one all_reduce for both parameters", 4, _parameters_once),
        Rule("each rank normalises its own tokens", 3, _own_tokens_only),
        Rule("in the tensors' dtype", 2, rules.wrong_dtype),
        rules.carried(
            # the other ranks' tokens; of its own tokens, and of its part of the other tokens' gradients; and both parameters' gradients
            rules.numbers(lambda s: ((s.ranks - 1) * s.size + 2) * s.option("_width", 6)),
            rules.numbers(lambda s: (s.ranks * s.size + 2) * s.option("_width", 6)),
        ),
    ),
    mistakes={
        "the gradients of weight and bias are those of this rank's tokens only: all ranks have the same "
        "parameters, so their gradients must be added over the ranks": _ending(
            weight=_of_own_tokens(0), bias=_of_own_tokens(1)
        ),
        "the gradient of bias is that of this rank's tokens only": _ending(bias=_of_own_tokens(1)),
        "backward through the gather took this rank's rows of its own gradient: the other ranks have parts of "
        "the gradient of these tokens too, so backward is a reduce_scatter": [
            _ending(lambda w, rank: w.of_x(w.upstream[rank], rank), _cut_out(0, summed), _cut_out(1, summed))
            for summed in (True, False)
        ],
        "the bias was not added to the result": _ending(result=lambda w: w.normal * w.weight),
        "the variance was divided by the width less one, as torch.var does: layer norm divides by the width, "
        "correction=0": _ending(result=_unbiased),
        "the gradients of weight and bias are swapped: backward returns them "
        "in the order of forward's arguments": _ending(weight=_BIAS, bias=_WEIGHT),
        "the bias got the gradient of the weight: each parameter needs its own": _ending(bias=_WEIGHT),
        "the weight got the gradient of the bias: each parameter needs its own": _ending(weight=_BIAS),
    },
    unit="token a rank",
    collective="all_gather",
    algorithm="sequence parallel",
    demo_setup=Setup(4, 2),
    only_sums=True,
    forbidden_advice="It needs an all_gather forward, and a reduce_scatter and an all_reduce backward.",
)
