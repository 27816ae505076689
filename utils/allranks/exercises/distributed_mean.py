"""distributed_mean(tensor) -> Tensor: the elementwise mean over all ranks, with one all_reduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, oracle_maker, plain, summed, vectors
from allranks.judge.common import LAYOUTS, circumstances, many_ranks, returning
from allranks.judge.drawing import Draws
from allranks.judge.evidence import unused, used
from allranks.judge.exercise import About, Exercise, Group, Rule, Run


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    """Vectors whose sum is not a multiple of the number of ranks everywhere: there a mean that is rounded would be right."""
    while True:
        made = vectors(setup, rng)
        kept = plain(made[0][0])
        if not setup.earns_credit or setup.values != "small" or kept.is_complex():
            return made
        if any(int(n) % setup.ranks for n in torch.stack([plain(a[0]) for a in made]).double().sum(0).reshape(-1)):
            return made


def _mean(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    tensors = [plain(a[0]) for a in args]
    kind = tensors[0].dtype
    wide = torch.stack([t.to(torch.complex128 if kind.is_complex else torch.float64) for t in tensors])
    # any order of adding is right, and so is dividing before or after
    atol = wide.abs().sum(0) * torch.finfo(kind).eps * 2
    return [Expected(wide.mean(0).to(kind), {}, atol) for _ in args]


@oracle_maker
def _over_elements(setup: Setup, args: Sequence[Args], own: bool, every_place: bool) -> Iterator[Expected]:
    """The mean over all elements, of all ranks or of each rank's own tensor, as one number or in every place."""
    if setup.ranks == 1 or setup.size < 2:
        raise ValueError("it looks like another mistake")
    kind = plain(args[0][0]).dtype
    tensors = [plain(a[0]).to(torch.complex128 if kind.is_complex else torch.float64) for a in args]
    atol = 1e-6 + 4 * torch.finfo(kind).eps * float(torch.stack(tensors).abs().max())
    for tensor in tensors:
        mean = (tensor if own else torch.stack(tensors)).mean()
        yield Expected((mean.expand(tensor.shape) if every_place else mean).to(kind), {}, atol)


def _one_all_reduce(run: Run) -> str | None:
    if broken := rules.calls(run, "all_reduce", "once is enough", least=1, most=1):
        return broken
    wanted = run.setup.size
    for entry in run.collectives:
        # complex numbers may be sent as pairs: torch.view_as_real by hand, or by the functional collectives
        pairs = 2 if run.setup.dtype.startswith("complex") and not entry.dtype.startswith("complex") else 1
        if entry.numel not in (wanted, pairs * wanted):
            return About(
                f"rank {entry.rank} reduces {entry.numel} elements{run.at(entry.line)}, but the tensor has {wanted}",
                entry,
            )
    return None


def _reduced_again(run: Run) -> bool:
    """Whether some rank calls more than one all_reduce of the whole tensor in a call."""
    calls = [e for e in run.collectives if e.rank == 0 and e.numel >= run.setup.size]
    return len(calls) > run.setup.times


FLOATS = (
    Setup(3, 5, "float64", values="precise"),
    Setup(4, 6, "bfloat16"),
    Setup(2, 5, "float16"),
    Setup(3, 4, "complex64"),
)

_divided_twice = returning(lambda t, r, s: summed(t)[0] / len(t) ** 2)

EXERCISE = Exercise(
    name="distributed_mean",
    promise="returns the elementwise mean of tensor over all ranks",
    groups=(
        Group("right mean", 3, (Setup(2, 2), Setup(4, 8), Setup(4, 1))),
        Group("any rank count", 1, (Setup(1, 4), Setup(3, 7), Setup(5, 5), Setup(8, 9), Setup(1, 0), Setup(3, 0))),
        many_ranks(),
        Group("any dtype", 1, (*FLOATS, Setup(3, 7, values="random"))),
        Group("any layout", 1, LAYOUTS),
        circumstances(Setup(3, 6)),
    ),
    inputs=_inputs,
    oracle=_mean,
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("one all_reduce", 2, _one_all_reduce),
        Rule("dtype kept on the wire", 1, rules.wrong_dtype),
        rules.carried(),
    ),
    mistakes={
        "the sum instead of the mean: divide by the number of ranks": (
            returning(lambda t, r, s: summed(t)[0]),
            lambda run: not _reduced_again(run),
        ),
        "p times the mean: a second all_reduce adds p equal tensors": (
            returning(lambda t, r, s: summed(t)[0]),
            _reduced_again,
        ),
        "divided by the number of ranks twice: ReduceOp.AVG divides already": (_divided_twice, used("AVG")),
        "divided by the number of ranks twice: the mean is the sum divided by it once": (_divided_twice, unused("AVG")),
        "divided by 4, whatever the number of ranks: use dist.get_world_size()": returning(
            lambda t, r, s: summed(t)[0] / 4
        ),
        "the mean over the elements too: it must be elementwise, over the ranks only": [
            _over_elements(False, every_place) for every_place in (False, True)
        ],
        "the mean of the elements of the rank's own tensor: it must be elementwise, the sum over the ranks divided by "
        "their number": [_over_elements(True, every_place) for every_place in (False, True)],
        "divided by the number of elements instead of the number of ranks: use dist.get_world_size()": returning(
            lambda t, r, s: summed(t)[0] / t[0].numel()
        ),
    },
    collective="all_reduce",
    demo_setup=Setup(4, 8),
    only_sums=True,
    forbidden_advice="One dist.all_reduce is all that it needs.",
)
