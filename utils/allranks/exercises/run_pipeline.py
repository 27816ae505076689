"""run_pipeline(batch, upstream, weight, order) -> Tensor: carries out one rank's order of a pipeline, and returns its weight's gradient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run
from allranks.theory import pipelines

WIDTH = 3  # numbers in a micro-batch
FIRST_LAST = "GPipe, backward from the second, the first one last"
NAMES = ("1f1b", "gpipe", FIRST_LAST)


def _order(setup: Setup, rank: int) -> list[str]:
    schedule = setup.option("schedule", "1f1b")
    if schedule == FIRST_LAST:
        # so that an action's number tells which micro-batch it is of, not its place in the order; a rotation of three and more,
        # unlike a reversal, tells the oldest input from the next row of upstream
        return [f"F{i}" for i in range(setup.size)] + [f"B{(i + 1) % setup.size}" for i in range(setup.size)]
    return [action.short for action in pipelines.order(schedule, rank, setup.ranks, setup.size)]


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        batch, upstream = (draw(setup, own, setup.size, WIDTH) for _ in range(2))
        weight = draw(setup, own, WIDTH)
        # so that the product of all ranks' weights stays exact
        weight = torch.where(weight > 0, 2, -1).to(weight.dtype) if setup.values == "small" else weight
        yield View.of(batch, setup.layout), View.of(upstream), View.of(weight), _order(setup, rank)


class _Stage(NamedTuple):
    """One stage of the pipeline: its weight, the activations that it gets, and whether it is the last one."""

    setup: Setup
    rank: int
    weight: torch.Tensor
    x: torch.Tensor

    @property
    def is_last(self) -> bool:
        return self.rank == self.setup.ranks - 1

    def numbers(self, kind: str) -> list[int]:
        """The micro-batches of its forward or backward passes, in their order."""
        return [int(action[1:]) for action in _order(self.setup, self.rank) if action[0] == kind]


def _everything(stage: _Stage) -> list[int]:
    return list(range(stage.setup.size))


def _gradients(
    setup: Setup,
    args: Sequence[Args],
    *,
    own: Collection[str] = (),
    forward: Callable[[_Stage], torch.Tensor] = lambda stage: stage.x * stage.weight,
    back: Callable[[torch.Tensor, _Stage], torch.Tensor] = lambda g, stage: g * stage.weight,
    upstream: Callable[[torch.Tensor, Setup], torch.Tensor] = lambda rows, setup: rows,
    factor: Callable[[_Stage], torch.Tensor] = lambda stage: stage.x,
    takes: Callable[[_Stage], list[int]] = _everything,
    adds: Callable[[_Stage], list[int]] = _everything,
) -> list[Expected]:
    """The gradient of each rank's weight: the sum over micro-batches of the stage's input times its output's gradient.

    Of a mistake: `own`, whether a rank has its own "batch" or "upstream"; what stages send `forward` and `back`; what the gradient of the
    output is multiplied with, `factor`, and of which micro-batch, `takes`; which micro-batches the sum `adds`.
    """
    p, made = setup.ranks, []
    for rank in range(p):
        x, stages = plain(args[rank if "batch" in own else 0][0]).double(), []
        for number, given in enumerate(args):
            stages.append(_Stage(setup, number, plain(given[2]).double(), x))
            x = x if "batch" in own else forward(stages[-1])
        mine = stages[rank]
        g = upstream(plain(args[rank if "upstream" in own else -1][1]).double(), setup)
        for stage in [] if "upstream" in own else stages[:rank:-1]:
            g = back(g, stage)
        total = (factor(mine)[takes(mine)] * g)[adds(mine)].sum(0)
        made.append(Expected(total.to(args[rank][2].base.dtype), {}, 1e-4 if setup.values != "small" else 0))
    return made


@oracle_maker
def _wrong(setup: Setup, args: Sequence[Args], **how: Any) -> list[Expected]:
    """What a mistake leaves: of so many factors, or of a division, that float32 rounds it."""
    made = _gradients(setup, args, **how)
    return [replace(e, atol=1e-5 * (1 + float(e.returns.abs().max()))) for e in made]


def _latest(stage: _Stage) -> list[int]:
    """For each micro-batch the one whose forward pass was the latest before its backward pass."""
    latest, found = 0, [0] * stage.setup.size
    for action in _order(stage.setup, stage.rank):
        latest = int(action[1:]) if action[0] == "F" else latest
        found[int(action[1:])] = latest
    return found


def _kept(place: int) -> Callable[[_Stage], list[int]]:
    """For each micro-batch the oldest (0) or the newest (-1) one that is kept before its backward pass."""

    def takes(stage: _Stage) -> list[int]:
        kept, found = [], [0] * stage.setup.size
        for action in _order(stage.setup, stage.rank):
            if action[0] == "F":
                kept.append(int(action[1:]))
            else:
                found[int(action[1:])] = kept.pop(place)
        return found

    return takes


def _counted(rows: torch.Tensor, setup: Setup) -> torch.Tensor:
    """The last rank's n-th backward pass begins with row n of `upstream`, whatever its micro-batch."""
    last = _Stage(setup, setup.ranks - 1, rows, rows).numbers("B")
    return rows[[last.index(i) for i in range(setup.size)]]


def _needed(run: Run, call: int, rank: int) -> int:
    """Activations from the rank before, gradients from the rank behind."""
    return ((rank > 0) + (rank < run.ranks - 1)) * rules.nbytes_of(run, call, rank)


def _sends_of(run: Run, rank: int) -> list[tuple[str, int]]:
    """What a rank must send in one call, in the order of its work: (action, to)."""
    wanted = []
    for action in _order(run.setup, rank):
        peer = rank + (1 if action[0] == "F" else -1)
        if 0 <= peer < run.ranks:
            wanted.append((action, peer))
    return wanted


def _one_message_an_action(run: Run) -> str | None:
    """Each action's result goes to one neighbour, once, and nothing else is sent."""
    one = rules.nbytes_of(run) // max(run.setup.size, 1)
    for _, rank, mine in run.by_rank(run.sends):
        stray = next((e for e in mine if e.peer is None or abs(e.peer - rank) != 1), None)
        if stray is not None:
            return About(
                f"rank {rank} sends to rank {stray.peer}{run.at(stray.line)}: a stage only talks to the ranks before and behind it",
                stray,
            )
        large = next((e for e in mine if e.nbytes > one), None)
        if large is not None:
            return About(
                f"rank {rank} sends {large.nbytes} bytes at once{run.at(large.line)}, but the result of one action has {one}: "
                "send each when it is made, so that the next stage can begin",
                large,
            )
        if len(mine) > len(_sends_of(run, rank)):
            needs = len(_sends_of(run, rank))
            return About(
                f"rank {rank} sends {len(mine)} message{'' if len(mine) == 1 else 's'}, but its order has {needs or 'no'} "
                f"result{'' if needs == 1 else 's'} that a neighbour needs",
                mine[-1],
            )
    return None


def _in_its_order(run: Run) -> str | None:
    """The results must leave in the order of the actions: a rank that works in another order keeps more, or makes others wait."""
    for _, rank, mine in run.by_rank(sorted(run.sends, key=lambda e: e.index)):
        for sent, (action, peer) in zip(mine, _sends_of(run, rank), strict=False):
            if sent.peer != peer:
                return About(
                    f"rank {rank} sends to rank {sent.peer}{run.at(sent.line)} where its order has {action}, whose result goes to "
                    f"rank {peer}: carry out the actions in the order that you were given",
                    sent,
                    f"to rank {sent.peer}",
                    f"{action} to rank {peer}",
                )
    return None


def _case(ranks: int, micro_batches: int, schedule: str = "1f1b", **more: object) -> Setup:
    return Setup(ranks, micro_batches, **more).with_options(schedule=schedule)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="run_pipeline",
    promise="carries out this rank's order of a pipeline and returns the gradient of its weight",
    groups=(
        Group("right gradients", 3, (_case(2, 4), _case(3, 5), _case(4, 8))),
        Group("other orders too", 2, (_case(4, 5, "gpipe"), _case(3, 4, FIRST_LAST), _case(2, 3, FIRST_LAST))),
        Group("any rank count", 1, (_case(1, 3), _case(5, 6), _case(8, 8))),
        Group("many ranks", 2, (_case(9, 12).with_choices(ranks=(9, 11), size=(12, 13), schedule=NAMES[:2]),)),
        Group("one micro-batch", 0.5, (_case(3, 1, "gpipe"),)),
        Group(
            "any dtype and layout",
            1,
            (
                _case(3, 4, dtype="float64", values="random"),
                _case(3, 4, layout="transposed"),
                _case(2, 4, layout="strided"),
            ),
        ),
        circumstances(_case(3, 4), delayed=_case(4, 6)),
    ),
    inputs=_inputs,
    oracle=_gradients,
    allow=P2P,
    rules=(
        Rule("in the tensors' dtype", 2, rules.wrong_dtype),
        Rule("one message an action, to a neighbour", 3, _one_message_an_action),
        Rule("in the order that was given", 4, _in_its_order),
        rules.exchanged(_needed),
    ),
    blocking_weight=2,
    mistakes={
        "a stage's output gets this rank's own row of upstream; only on the last rank that is right: the others "
        "receive theirs": _wrong(own=("upstream",)),
        "each rank uses its own batch: only rank 0's goes through the pipeline, the others receive activations": _wrong(
            own=("batch",)
        ),
        "each rank uses its own batch and its own upstream: only rank 0's batch goes through the pipeline": _wrong(
            own=("batch", "upstream")
        ),
        "the gradient is of the last micro-batch alone: those of all micro-batches are added": [
            _wrong(adds=lambda stage: [-1]),
            _wrong(adds=lambda stage: stage.numbers("B")[-1:]),
        ],
        "the gradient is of the first micro-batch alone: those of all micro-batches are added": _wrong(
            adds=lambda stage: [0]
        ),
        "what is sent back is the gradient of the stage's output: B sends that of its input, which is times the "
        "weight": _wrong(back=lambda g, stage: g),
        "the last stage sends upstream back as it is: B sends the gradient of its input, which is times the "
        "weight": _wrong(back=lambda g, stage: g if stage.is_last else g * stage.weight),
        "what is sent back was multiplied by the weight twice: the gradient of the input is that of the output "
        "times the weight": _wrong(back=lambda g, stage: g * stage.weight**2),
        "what is sent back is the output's gradient times the stage's input: the gradient of the input is that "
        "gradient times the weight": _wrong(back=lambda g, stage: g * stage.x),
        "a stage sends on what it gets: its output is its input times the *weight*": _wrong(
            forward=lambda stage: stage.x
        ),
        "`upstream` was not used: the last stage's backward pass of micro-batch i begins with row i of it": _wrong(
            upstream=lambda rows, setup: torch.ones_like(rows)
        ),
        "every backward pass begins with row 0 of `upstream`: micro-batch i has row i": _wrong(
            upstream=lambda rows, setup: rows[:1].expand_as(rows)
        ),
        "the rows of `upstream` were taken one after the other: B of micro-batch i begins with row i, not with "
        "the next one": _wrong(upstream=_counted),
        "the backward passes use the input of the latest forward pass: keep each micro-batch's input until its "
        "own B": _wrong(takes=_latest),
        **{
            f"the backward passes use the {which} input that is kept: B of micro-batch i needs the input of micro-batch i": _wrong(
                takes=_kept(place)
            )
            for which, place in (("oldest", 0), ("newest", -1))
        },
        **{
            f"the gradient of the weight is the output's gradient times the stage's input: {what} was taken instead": _wrong(
                factor=factor
            )
            for what, factor in (
                ("its output", lambda stage: stage.x * stage.weight),
                ("the weight", lambda stage: stage.weight.expand_as(stage.x)),
            )
        },
        "the sum was divided by the number of micro-batches: the gradients of all micro-batches are added": _wrong(
            factor=lambda stage: stage.x / stage.setup.size
        ),
        "the i-th message is taken for micro-batch i: messages come in the order of the neighbour's actions, "
        "which may be another one": _wrong(
            forward=lambda stage: (stage.x * stage.weight)[stage.numbers("F")],
            back=lambda g, stage: (g * stage.weight)[stage.numbers("B")],
        ),
    },
    unit="micro-batch",
    demo_setup=_case(4, 6),
    peer_advice="The first stage receives no activations, the last one no gradients.",
)
