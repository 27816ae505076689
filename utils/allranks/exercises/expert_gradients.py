"""expert_gradients(dense, experts, ep): averages gradients where experts are split over ep ranks, and the rest is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from allranks.base.errors import name_ranks
from allranks.exercises.families import steadied
from allranks.exercises.families.buckets import absent_advice
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Parameter, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.ranks.wire import LogEntry

DENSE, EXPERTS = 0, 1  # the places of the two lists of parameters
SHAPES = (((4,), (2, 3)), ((5,), (3, 2)))  # dense, experts

# (rank, ranks, ep) -> the ranks whose gradients are added, and what the sum is divided by; None: unchanged
Reduced = Callable[[int, int, int], tuple[Sequence[int], float] | None]


def replicas(rank: int, ranks: int, ep: int) -> range:
    """The ranks that hold the same experts as this one: every ep-th."""
    return range(rank % ep, ranks, ep)


def expert_group(rank: int, ranks: int, ep: int) -> range:
    """The ranks that share out the experts with this one: ep in a row."""
    return range(rank // ep * ep, rank // ep * ep + ep)


def _dense(rank: int, ranks: int, ep: int) -> tuple[Sequence[int], float] | None:
    return range(ranks), ranks


def _expert(rank: int, ranks: int, ep: int) -> tuple[Sequence[int], float] | None:
    return replicas(rank, ranks, ep), ranks


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    ep, shapes = setup.option("ep"), setup.option("_shapes")
    shared = [draw(setup, rng, *shape) for shape in shapes[DENSE]]
    shares = [[draw(setup, rng, *shape) for shape in shapes[EXPERTS]] for _ in range(ep)]
    for rank in range(setup.ranks):
        lists = []
        for which, data in ((DENSE, shared), (EXPERTS, shares[rank % ep])):
            parameters = []
            for i, value in enumerate(data):
                absent = (which, i) in setup.option("_unused", {}).get(rank, ())
                grad = torch.zeros_like(value) if absent else draw(setup, rng.of_rank(rank), *value.shape)
                parameters.append(Parameter(View.of(value), View.of(grad), absent))
            lists.append(parameters)
        yield (*lists, ep)


def _oracle(
    setup: Setup, args: Sequence[Args], dense: Reduced = _dense, expert: Reduced = _expert, absent_too: bool = True
) -> list[Expected]:
    kind, ep = args[0][DENSE][0].data.base.dtype, setup.option("ep")
    made = []
    for rank in range(setup.ranks):
        changed = {}
        for which, reduced in ((DENSE, dense), (EXPERTS, expert)):
            plan = reduced(rank, setup.ranks, ep)
            for i, parameter in enumerate(args[rank][which]):
                if parameter.absent and (plan is None or not absent_too):
                    continue
                if plan is None:
                    changed[which, i, "grad"] = plain(parameter.grad)
                    continue
                total = torch.stack([plain(args[r][which][i].grad).double() for r in plan[0]]).sum(0)
                changed[which, i, "grad"] = (total / plan[1]).to(kind)
        made.append(Expected(None, changed, 160 * torch.finfo(kind).eps))
    return made


def _others_only(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    if not setup.option("_unused"):
        raise ValueError("every parameter has a gradient on every rank")
    return _oracle(setup, args, absent_too=False)


_reducing: Callable[..., Oracle] = oracle_maker(_oracle)


@oracle_maker
def _divided_by(
    setup: Setup,
    args: Sequence[Args],
    divisor: Callable[[int, int], int],
    other: Callable[[int, int], int],
    both: bool = False,
) -> list[Expected]:
    """The experts' sum divided by a wrong number, where it differs from another wrong one, or where they are the same (`both`)."""
    p, ep = setup.ranks, setup.option("ep")
    if divisor(p, ep) == p or (divisor(p, ep) == other(p, ep)) is not both:
        raise ValueError("that number says nothing")
    return _oracle(setup, args, expert=lambda rank, p, ep: (replicas(rank, p, ep), divisor(p, ep)))


def _numel(run: Run, which: int) -> int:
    return sum(p.data.tensor().numel() for p in run.args[0][0][which])


def _among_replicas(run: Run) -> str | None:
    """Dense gradients once over all ranks, experts' once among their replicas, and nothing else."""
    p, ep = run.ranks, run.setup.option("ep")
    for _, rank, mine in run.by_rank([e for e in run.collectives if len(e.group or ()) > 1]):
        if broken := _of_one_rank(run, rank, mine, p, ep):
            return broken
    return None


def _of_one_rank(run: Run, rank: int, mine: list[LogEntry], p: int, ep: int) -> str | None:
    dense, experts = _numel(run, DENSE), _numel(run, EXPERTS)
    group = tuple(replicas(rank, p, ep))
    room = {tuple(range(p)): dense}
    room[group] = room.get(group, 0) + experts
    for entry in mine:
        members = tuple(sorted(entry.group or ()))
        if members not in room:
            return About(
                f"rank {rank} calls {entry.called} on {name_ranks(members)}{run.at(entry.line)}: dense gradients are averaged over all "
                f"ranks, its experts' among {name_ranks(group)} only, which hold the same experts",
                entry,
            )
        room[members] -= entry.numel
        if room[members] < 0:
            whole = len(members) == p and ep > 1
            most = dense if whole else experts + dense * (ep == 1)
            kind = "dense gradients" if whole else "gradients of its experts" if ep > 1 else "gradients"
            more = (
                f". The experts' go among {name_ranks(group)} only" if whole and len(group) < p else ". Each goes once"
            )
            return About(
                f"rank {rank} gives all_reduce more than {most} elements "
                f"over {name_ranks(members)}{run.at(entry.line)}, but there are no more {kind}{more}",
                entry,
            )
    if len(mine) > len(run.args[0][0][DENSE]) + len(run.args[0][0][EXPERTS]):
        return About(
            f"rank {rank} calls all_reduce {len(mine)} times{run.at(mine[-1].line)}, but one for each parameter is enough",
            mine[-1],
        )
    return None


def _needed(run: Run, call: int, rank: int) -> int:
    """Bytes of all gradients for which there is a second rank."""
    shared = run.ranks > run.setup.option("ep")
    return (_numel(run, DENSE) + (_numel(run, EXPERTS) if shared else 0)) * run.itemsize


def _case(ranks: int, ep: int, shapes: tuple = SHAPES, dtype: str = "float32", **more: Any) -> Setup:
    unused = more.pop("unused", {})
    setup = Setup(ranks, sum(map(len, shapes)), dtype, **more)
    numbers = ["/".join(str(math.prod(s)) for s in part) for part in shapes]
    words = [f"dense {numbers[DENSE]}, experts {numbers[EXPERTS]}"]
    words += [
        f"{'expert' if which else 'dense'} parameter {i} unused on rank {rank}"
        for rank, places in unused.items()
        for which, i in places
    ]
    setup = setup.with_options(ep=ep, _shapes=shapes, **({"_unused": unused} if unused else {}))
    return Setup(**{**setup.__dict__, "note": ", ".join(words)})


EXERCISE = Exercise(
    name="expert_gradients",
    promise="replaces every gradient by that of the mean loss of all ranks",
    groups=(
        Group("right gradients", 3, (_case(4, 2), _case(6, 3), _case(6, 2))),
        Group("experts on one rank only", 1, (_case(2, 2), _case(3, 3), _case(4, 4))),
        Group("every rank has all experts", 1, (_case(2, 1), _case(3, 1))),
        Group("any rank count", 1, (_case(1, 1), _case(8, 4), _case(8, 2))),
        Group("many ranks", 2, (_case(12, 3).with_choices(ranks=(12,), ep=(2, 3, 4, 6)),)),
        Group(
            "parameters unused on some ranks",
            2,
            (
                _case(4, 2, unused={1: ((EXPERTS, 0),)}),
                _case(6, 3, unused={0: ((EXPERTS, 1),), 3: ((EXPERTS, 1), (DENSE, 0))}),
            ),
        ),
        Group(
            "any shapes", 1, (_case(4, 2, (((1,),), ((7,), (2,), (3,)))), _case(6, 2, (((3,), (2, 2), (5,)), ((1,),))))
        ),
        Group("any dtype", 1, (_case(4, 2, dtype="float64", values="random"), _case(4, 2, dtype="bfloat16"))),
        circumstances(_case(4, 2)),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("experts among their replicas only", 8, _among_replicas),
        Rule("in the tensors' dtype", 2, rules.wrong_dtype),
        rules.exchanged(_needed),
    ),
    mistakes={
        "the experts' gradients are ep times too large: they were averaged over the ranks that hold the same "
        "experts, but a rank's gradient has the tokens of all ep ranks of its group already; divide by the "
        "number of all ranks": _reducing(expert=lambda rank, p, ep: (replicas(rank, p, ep), p // ep)),
        "the experts' gradients are the sum over the ranks that hold the same experts, and were never divided": _reducing(
            expert=lambda rank, p, ep: (replicas(rank, p, ep), 1)
        ),
        "the experts' gradients were divided twice: once by the number of all ranks is right": _divided_by(
            lambda p, ep: p * (p // ep), lambda p, ep: ep * ep
        ),
        "the experts' sum was divided by ep twice: divide it by the number of all ranks, once": _divided_by(
            lambda p, ep: ep * ep, lambda p, ep: p * (p // ep)
        ),
        "the experts' sum was divided by ep instead of the number of all ranks": _reducing(
            expert=lambda rank, p, ep: (replicas(rank, p, ep), ep)
        ),
        "the gradients of different experts were added: the ranks of one expert group hold different experts; "
        "rank r's replicas are the ranks r % ep, r % ep + ep, and so on": [
            _reducing(expert=lambda rank, p, ep, d=divisor: (expert_group(rank, p, ep), d(p, ep)))
            for divisor in (lambda p, ep: ep, lambda p, ep: p, lambda p, ep: 1)
        ],
        "the experts' gradients were averaged over all ranks, which hold different experts": _reducing(expert=_dense),
        "the experts' gradients are unchanged": _reducing(expert=lambda rank, p, ep: None),
        "each rank's own gradient of its experts was divided, but the other ranks with the same experts are "
        "missing": _reducing(expert=lambda rank, p, ep: ((rank,), p)),
        "the dense gradients were averaged over the ranks with the same experts only: every rank holds them": _reducing(
            dense=lambda rank, p, ep: (replicas(rank, p, ep), p // ep)
        ),
        "the sum instead of the mean of the dense gradients": _reducing(dense=lambda rank, p, ep: (range(p), 1)),
        "a rank whose .grad is None must get the result too: give it a .grad of zeros first": _others_only,
    },
    unit="parameter",
    collective="all_reduce",
    algorithm="bucketed",
    demo_setup=_case(4, 2),
    only_sums=True,
    forbidden_advice="dist.all_reduce is all that it needs, over all ranks or on a group that dist.new_group makes.",
    call_advice=absent_advice,
)
EXERCISE = steadied(
    EXERCISE, {"the dense gradients were averaged over": lambda setup: setup.option("_shapes")[0] == ((1,),)}
)
