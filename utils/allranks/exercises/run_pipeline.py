"""run_pipeline(batch, upstream, weight, order) -> Tensor: carries out one rank's order of a pipeline, and returns its weight's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, P2P_ONLY, About, Exercise, Group, Rule, Run
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


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    made: list[Args] = []
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        batch, upstream = (draw(setup, own, setup.size, WIDTH) for _ in range(2))
        weight = draw(setup, own, WIDTH)
        # so that the product of all ranks' weights stays exact
        weight = torch.where(weight > 0, 2, -1).to(weight.dtype) if setup.values == "small" else weight
        made.append((View.of(batch, setup.layout), View.of(upstream), View.of(weight), _order(setup, rank)))
    return made


def _gradients(
    setup: Setup,
    args: Sequence[Args],
    *,
    micro_batches: slice = slice(None),
    own_upstream: bool = False,
    own_batch: bool = False,
    back: Callable[[int, int], bool] = lambda rank, ranks: True,
) -> list[Expected]:
    """The gradient of each rank's weight: the sum over micro-batches of the stage's input times its output's gradient.

    `back(rank, ranks)` says which stages multiply what they send back by their weight.
    """
    weights = [plain(a[2]).double() for a in args]
    made = []
    for rank in range(setup.ranks):
        x = plain(args[rank if own_batch else 0][0]).double()
        g = plain(args[rank if own_upstream else -1][1]).double()
        for weight in [] if own_batch else weights[:rank]:
            x = x * weight
        for stage in [] if own_upstream else range(rank + 1, setup.ranks):
            g = g * weights[stage] if back(stage, setup.ranks) else g
        gradient = (x * g)[micro_batches].sum(0)
        made.append(Expected(gradient.to(args[rank][2].base.dtype), {}, 1e-4 if setup.values != "small" else 0))
    return made


def _numbers(setup: Setup, rank: int, kind: str) -> list[int]:
    """The micro-batches of the rank's forward or backward passes, in their order."""
    return [int(action[1:]) for action in _order(setup, rank) if action[0] == kind]


def _last_pass_alone(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The gradient of the micro-batch whose backward pass comes last on the rank."""
    made = []
    for rank in range(setup.ranks):
        last = _numbers(setup, rank, "B")[-1]
        made.append(_gradients(setup, args, micro_batches=slice(last, last + 1))[rank])
    return made


def _latest_input(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Every backward pass with the input of the latest forward pass."""
    made = []
    for rank, right in enumerate(_gradients(setup, args)):
        x, g = _passing(setup, args, rank)
        total, latest = torch.zeros(WIDTH, dtype=torch.float64), 0
        for action in _order(setup, rank):
            latest = int(action[1:]) if action[0] == "F" else latest
            total += x[latest] * g[int(action[1:])] if action[0] == "B" else 0
        made.append(Expected(total.to(right.returns.dtype), {}, right.atol))
    return made


def _kept_input(place: int) -> Oracle:
    """Every backward pass takes the oldest (0) or the newest (-1) of the inputs that are kept."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        made = []
        for rank, right in enumerate(_gradients(setup, args)):
            x, g = _passing(setup, args, rank)
            total, kept = torch.zeros(WIDTH, dtype=torch.float64), []
            for action in _order(setup, rank):
                i = int(action[1:])
                if action[0] == "F":
                    kept.append(x[i])
                else:
                    total += kept.pop(place) * g[i]
            made.append(Expected(total.to(right.returns.dtype), {}, right.atol))
        return made

    return oracle


def _rows_counted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The last rank's n-th backward pass begins with row n of `upstream`, whatever its micro-batch."""
    last = _numbers(setup, setup.ranks - 1, "B")

    def place(rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([rows[last.index(i)] for i in range(setup.size)])

    return list(_passing_on(upstream=place)(setup, args))


def _passing_on(
    forward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda x, weight: x * weight,
    back: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda g, weight: g * weight,
    upstream: Callable[[torch.Tensor], torch.Tensor] = lambda rows: rows,
) -> Oracle:
    """The weight's gradient where stages make something else of what they get: forward, back, or of `upstream`."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        weights, made = [plain(a[2]).double() for a in args], []
        for rank, right in enumerate(_gradients(setup, args)):
            x, g = plain(args[0][0]).double(), upstream(plain(args[-1][1]).double())
            for weight in weights[:rank]:
                x = forward(x, weight)
            for weight in reversed(weights[rank + 1 :]):
                g = back(g, weight)
            total = (x * g).sum(0)
            atol = 1e-5 * (1 + float((x * g).abs().sum(0).max()))
            made.append(Expected(total.to(right.returns.dtype), {}, atol))
        return made

    return oracle


def _instead_of_input(by: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Oracle:
    """The weight's gradient with `by(input, weight)` in the input's place."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        made = []
        for rank, right in enumerate(_gradients(setup, args)):
            x, g = _passing(setup, args, rank)
            total = (by(x, plain(args[rank][2]).double()) * g).sum(0)
            made.append(Expected(total.to(right.returns.dtype), {}, right.atol))
        return made

    return oracle


def _input_sent_back(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """What is sent back is the gradient times the stage's input."""
    made = []
    for rank, right in enumerate(_gradients(setup, args)):
        x, _ = _passing(setup, args, rank)
        g = plain(args[-1][1]).double()
        for stage in range(rank + 1, setup.ranks):
            g = g * _passing(setup, args, stage)[0]
        total = (x * g).sum(0)  # of so many factors that float32 rounds them
        made.append(Expected(total.to(right.returns.dtype), {}, 1e-5 * (1 + float((x * g).abs().sum(0).max()))))
    return made


def _mean(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The mean over the micro-batches."""
    right = _gradients(setup, args)
    return [Expected(r.returns / setup.size, {}, 1e-5 * (1 + float(r.returns.abs().max()))) for r in right]


def _passing(setup: Setup, args: Sequence[Args], rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The stage's inputs, and the gradients of its outputs."""
    weights = [plain(a[2]).double() for a in args]
    x, g = plain(args[0][0]).double(), plain(args[-1][1]).double()
    for weight in weights[:rank]:
        x = x * weight
    for weight in weights[rank + 1 :]:
        g = g * weight
    return x, g


def _by_arrival(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The i-th message is taken for micro-batch i, in whatever order the neighbour works."""
    p, made = setup.ranks, []
    for rank, right in enumerate(_gradients(setup, args)):
        x, g = _passing(setup, args, rank)
        for stage in range(rank):
            x = x[_numbers(setup, stage, "F")]
        for stage in reversed(range(rank + 1, p)):
            g = g[_numbers(setup, stage, "B")]
        made.append(Expected((x * g).sum(0).to(right.returns.dtype), {}, right.atol))
    return made


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
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            mine = [e for e in run.sends if e.rank == rank and e.call == call]
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
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            mine = sorted((e for e in run.sends if e.rank == rank and e.call == call), key=lambda e: e.index)
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
        Group("many ranks", 2, (_case(9, 12).with_choices(ranks=(9, 11), size=(12, 13), schedule=NAMES),)),
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
        Group(
            "any circumstances",
            1,
            (_case(3, 4, times=2), _case(3, 4, outer_world=True), _case(4, 6, delivery="shuffled")),
        ),
    ),
    inputs=_inputs,
    oracle=_gradients,
    allow=P2P,
    rules=(
        Rule("in the tensors' dtype", 2, rules.wrong_dtype),
        Rule("one message an action, to a neighbour", 3, _one_message_an_action),
        Rule("in the order that was given", 4, _in_its_order),
        rules.carried(_needed, _needed),
    ),
    blocking_weight=2,
    mistakes=known(
        {
            "a stage's output gets this rank's own row of upstream; only on the last rank that is right: the others "
            "receive theirs": lambda s, a: _gradients(s, a, own_upstream=True),
            "each rank uses its own batch: only rank 0's goes through the pipeline, the others receive activations": lambda s, a: (
                _gradients(s, a, own_batch=True)
            ),
            "each rank uses its own batch and its own upstream: only rank 0's batch goes through the pipeline": lambda s, a: (
                _gradients(s, a, own_batch=True, own_upstream=True)
            ),
            "the gradient is of the last micro-batch alone: those of all micro-batches are added": [
                lambda s, a: _gradients(s, a, micro_batches=slice(-1, None)),
                _last_pass_alone,
            ],
            "what is sent back is the gradient of the stage's output: B sends that of its input, which is times the "
            "weight": lambda s, a: _gradients(s, a, back=lambda rank, ranks: False),
            "the last stage sends upstream back as it is: B sends the gradient of its input, which is times the "
            "weight": lambda s, a: _gradients(s, a, back=lambda rank, ranks: rank < ranks - 1),
            "a stage sends on what it gets: its output is its input times the *weight*": _passing_on(
                forward=lambda x, weight: x
            ),
            "what is sent back was multiplied by the weight twice: the gradient of the input is that of the output "
            "times the weight": _passing_on(back=lambda g, weight: g * weight * weight),
            "`upstream` was not used: the last stage's backward pass of micro-batch i begins with row i of it": _passing_on(
                upstream=torch.ones_like
            ),
            "every backward pass begins with row 0 of `upstream`: micro-batch i has row i": _passing_on(
                upstream=lambda rows: rows[:1].expand_as(rows)
            ),
            "the backward passes use the input of the latest forward pass: keep each micro-batch's input until its "
            "own B": _latest_input,
            **{
                f"the backward passes use the {which} input that is kept: B of micro-batch i needs the input of micro-batch i": _kept_input(
                    place
                )
                for which, place in (("oldest", 0), ("newest", -1))
            },
            "the rows of `upstream` were taken one after the other: B of micro-batch i begins with row i, not with "
            "the next one": _rows_counted,
            "the gradient of the weight is the output's gradient times the stage's input: its output was taken "
            "instead": _instead_of_input(lambda x, weight: x * weight),
            "the gradient of the weight is the output's gradient times the stage's input: the weight was taken "
            "instead": _instead_of_input(lambda x, weight: weight.expand_as(x)),
            "what is sent back is the output's gradient times the stage's input: the gradient of the input is that "
            "gradient times the weight": _input_sent_back,
            "the sum was divided by the number of micro-batches: the gradients of all micro-batches are added": _mean,
            "the i-th message is taken for micro-batch i: messages come in the order of the neighbour's actions, "
            "which may be another one": _by_arrival,
            "the gradient is of the first micro-batch alone: those of all micro-batches are added": lambda s, a: (
                _gradients(s, a, micro_batches=slice(0, 1))
            ),
        }
    ),
    unit="micro-batch",
    chunking="none",
    demo_setup=_case(4, 6),
    forbidden_advice=P2P_ONLY,
    peer_advice="The first stage receives no activations, the last one no gradients.",
)
