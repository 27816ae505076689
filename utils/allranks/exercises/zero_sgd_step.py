"""zero_sgd_step(parameters, lr): averaged SGD in which each rank updates its own shard only (ZeRO)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from allranks.exercises.families import everywhere, steadied
from allranks.judge import provenance, rules
from allranks.judge.cases import Args, Expected, Oracle, Parameter, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import MANY_RANKS, circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import Exercise, Group, Rule, Run

SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_tensor"})
GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    shapes = setup.option("_shapes")
    data = [draw(setup, rng, *shape) for shape in shapes]
    return [
        (
            [Parameter(View.of(d), View.of(draw(setup, rng.of_rank(rank), *d.shape))) for d in data],
            setup.option("lr", 0.5),
        )
        for rank in range(setup.ranks)
    ]


def _step(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Every parameter less lr times the mean of its gradients."""
    ranks = [plain(a[0]) for a in args]
    changed = {}
    for i, (data, _) in enumerate(ranks[0]):
        mean = torch.stack([own[i][1].double() for own in ranks]).mean(0)
        changed[0, i, "data"] = (data.double() - args[0][1] * mean).to(data.dtype)
    return [Expected(None, changed, 320 * torch.finfo(ranks[0][0][0].dtype).eps) for _ in args]


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.flatten() for t in tensors])


def _flat_step(values: torch.Tensor, like: Sequence[torch.Tensor], atol: Any) -> Expected:
    """The parameters cut from one flat vector."""
    parts = values.split([t.numel() for t in like])
    pairs = zip(parts, like, strict=True)
    return Expected(None, {(0, i, "data"): part.reshape(t.shape) for i, (part, t) in enumerate(pairs)}, atol)


@oracle_maker
def _of_vectors(
    setup: Setup,
    args: Sequence[Args],
    make: Callable[[torch.Tensor, torch.Tensor, int, int], torch.Tensor],
    each: bool = False,
) -> Iterator[Expected]:
    """What `make(before, after, rank, ranks)` gives for all parameters as one vector, or for `each` by itself; with padding."""
    if setup.ranks == 1:
        raise ValueError("there is one shard")
    for rank, wanted in enumerate(_step(setup, args)):
        before = [data for data, _ in plain(args[rank][0])]
        after = [wanted.changed[0, i, "data"] for i in range(len(before))]
        pairs = zip(before, after, strict=True) if each else [(_flat(before), _flat(after))]
        cut = [make(_padded(old, setup), _padded(new, setup), rank, setup.ranks)[: old.numel()] for old, new in pairs]
        yield _flat_step(torch.cat(cut), before, wanted.atol)


def _padded(values: torch.Tensor, setup: Setup) -> torch.Tensor:
    return torch.nn.functional.pad(values.reshape(-1), (0, -values.numel() % setup.ranks))


def _own_shard(before: torch.Tensor, after: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """Each rank updated its shard of the flat vector, and none was gathered."""
    return torch.cat([*before.chunk(ranks)[:rank], after.chunk(ranks)[rank], *before.chunk(ranks)[rank + 1 :]])


def _owners_gradient(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each rank updated its shard with its own gradient, and all gathered the shards."""
    alone = [_step(setup, [given])[0] for given in args]
    before = [data for data, _ in plain(args[0][0])]
    by_rank = [_padded(_flat([w.changed[0, i, "data"] for i in range(len(before))]), setup) for w in alone]
    gathered = torch.cat([values.chunk(setup.ranks)[r] for r, values in enumerate(by_rank)])
    return [_flat_step(gathered[: len(_flat(before))], before, wanted.atol) for wanted in alone]


def _misplaced(shard_of: Callable[[int, int], int], each: bool) -> Oracle:
    """On rank r, every place holds the new shard of rank `shard_of(r, p)`; `each` parameter is cut by itself, or all as one vector."""
    return _of_vectors(lambda before, after, rank, p: after.chunk(p)[shard_of(rank, p)].repeat(p), each)


def _next_shards_data(step: int) -> Oracle:
    """Each shard's step was taken from the numbers of the shard `step` places on."""
    return _of_vectors(lambda before, after, rank, p: before.roll(-step * (len(before) // p)) + after - before)


def _volume(run: Run) -> str | None:
    if broken := rules.no_messages(run):
        return broken
    for call, args in enumerate(run.args):
        total = sum(p.data.tensor().numel() for p in args[0][0])
        itemsize = args[0][0][0].data.base.element_size()
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            scattered = sum(e.numel for e in mine if e.op in SCATTERS)
            gathered = sum(e.received_nbytes for e in mine if e.op in GATHERS) // itemsize
            # each collective, or each parameter, may be padded to a multiple of p
            room = (run.ranks - 1) * max(-(-len(mine) // 2), len(args[0][0]))
            if gathered > total + room and not scattered:
                return f"rank {rank} gathers whole gradients, {gathered} elements: reduce_scatter them, then all_gather the parameters"
            if max(scattered, gathered) > total + room:
                return f"rank {rank} moves {scattered + gathered} elements, but 2P = {2 * total} (P to reduce_scatter, P to all_gather) are enough"
        calls = max(Counter(e.rank for e in run.collectives if e.call == call).values(), default=0)
        if calls > 2 * len(args[0][0]):
            return f"a rank calls reduce_scatter and all_gather {calls} times, but one of each a parameter is enough, {2 * len(args[0][0])} in all"
    return None


def _shards_only(run: Run) -> str | None:
    """What is gathered must be the new parameters, each updated by one rank."""
    for call in range(run.setup.times):
        if not _gathers_parameters(run, call):
            return (
                "what is all_gathered are not the new parameters, so every rank must still update all of them: update your "
                "shard with its own gradient, then all_gather the new parameters"
            )
    return None


def _gathers_parameters(run: Run, call: int) -> bool:
    """Whether the new parameters are among the numbers that the ranks gather."""
    sent = [e for e in run.collectives if e.call == call and e.op in GATHERS]
    parts = [part.double() for e in sent if (part := provenance.numbers(e)) is not None]
    if len(parts) < len(sent):
        return True  # too large to be kept
    handed = torch.cat(parts) if parts else torch.empty(0)
    ranks = [plain(args[0]) for args in run.args[call]]
    new = _flat([run.expected[call][0].changed[0, i, "data"] for i in range(len(ranks[0]))]).double()
    kind = run.args[call][0][0][0].data.base.dtype
    return _among(new, handed, 32 * torch.finfo(kind).eps * 10)


def _among(wanted: torch.Tensor, numbers: torch.Tensor, off: float) -> bool:
    """Whether each wanted number is among the others, up to rounding."""
    if not numbers.numel():
        return False
    return bool(((wanted[:, None] - numbers).abs().min(1).values <= off * (1 + wanted.abs())).all())


def _case(ranks: int, shapes: tuple, dtype: str = "float32", lr: float = 0.5, **more: Any) -> Setup:
    return Setup(
        ranks, len(shapes), dtype, note="sizes " + ", ".join(str(math.prod(s)) for s in shapes), **more
    ).with_options(_shapes=shapes, lr=lr)


SHAPES = ((4,), (2, 3), (5,))


def _others_parameters(run: Run, call: int, rank: int) -> int:
    """All new parameters but those of the rank's own shard."""
    total = sum(p.data.tensor().numel() for p in run.args[call][rank][0])
    return (total - -(-total // run.ranks)) * run.args[call][rank][0][0].data.base.element_size()


EXERCISE = Exercise(
    name="zero_sgd_step",
    promise="does an averaged SGD step, each rank updating its shard",
    groups=(
        Group("right step", 3, (_case(2, ((4,),)), _case(3, ((6,), (3,))), _case(4, ((8,), (2, 2))))),
        Group("any rank count", 1, (_case(1, SHAPES), _case(3, SHAPES), _case(5, SHAPES), _case(8, ((8, 2),)))),
        Group(
            "any size",
            2,
            (_case(2, ((3,),)), _case(4, ((1,),)), _case(4, SHAPES), _case(8, ((3,), (2,))), _case(3, ((7,), (1,)))),
        ),
        Group("large parameters", 1, (_case(3, ((64,), (8, 8))),)),
        Group("many ranks", 2, (_case(9, ((19,), (2, 5))).with_choices(ranks=MANY_RANKS, lr=(0.25, 0.75)),)),
        Group("any rate", 1, (_case(3, ((6,),), lr=0.125), _case(3, ((6,),), lr=2.0))),
        Group("any dtype", 1, (_case(3, SHAPES, "float64", values="random"),)),
        circumstances(_case(3, SHAPES)),
    ),
    inputs=_inputs,
    oracle=_step,
    allow=SCATTERS | GATHERS,
    rules=(
        rules.in_dtype(0),
        Rule("2P elements in all", 4, _volume),
        Rule("each parameter updated by one rank", 8, _shards_only),
        rules.carried(_others_parameters, rules.nothing),
    ),
    mistakes={
        "each shard was updated with its owner's gradient only: reduce_scatter the gradients first": _owners_gradient,
        "each rank kept its own shard: the all_gather of the new parameters is missing, or what it brought is "
        "not used": _of_vectors(_own_shard),
        **{
            f"{what} is in every place: place i must hold the new shard of rank i": [
                _misplaced(shard_of, each) for each in (False, True)
            ]
            for what, shard_of in (
                ("rank 0's new shard", lambda rank, p: 0),
                ("the last rank's new shard", lambda rank, p: p - 1),
                ("each rank's own new shard", lambda rank, p: rank),
            )
        },
        "every rank took its step from the first shard's numbers: cut "
        "parameters and gradients at the same place": everywhere(
            _of_vectors(lambda before, after, rank, p: before.chunk(p)[0].repeat(p) + after - before)
        ),
        **{
            f"each rank took its step from the numbers of the {neighbour} rank's shard: cut parameters and gradients at the same place": _next_shards_data(
                step
            )
            for neighbour, step in (("next", 1), ("previous", -1))
        },
    },
    unit="parameter",
    collective="reduce_scatter + all_gather",
    algorithm="ZeRO",
    demo_setup=_case(4, SHAPES),
    only_sums=True,
    forbidden_advice="It needs reduce_scatter and all_gather only.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "the last rank's new shard": lambda setup: True,
        "each rank's own new shard": lambda setup: True,
        "owner's gradient only": lambda setup: setup.option("_shapes") == ((1,),),
        "kept its own shard": lambda setup: setup.option("_shapes") == ((1,),),
        "the first shard's numbers": lambda setup: setup.option("_shapes") != ((1,),),
    },
)
