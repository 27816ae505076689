"""shift_through_slots(tensor, memory, slots) -> Tensor: the left neighbour's tensor, piece by piece through a few slots of memory.

`memory` is the judge's (`wire.Memory`): others see a put only behind a fence, and every race is found, whatever the order was.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from allranks.judge import puts, rules
from allranks.judge.cases import Args, Expected, Setup, plain, vectors
from allranks.judge.common import LAYOUTS, Make, returning
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, ResultFault, Rule, Run
from allranks.ranks.wire import Memory
from allranks.ranks.wire.memory_model import Access

GENTLE, WEAK = "program", "weak"
SLOT, SLOTS = 2, 3  # elements of a slot, and slots, where a case does not say


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    slots = setup.option("slots", SLOTS)
    numel = slots * setup.option("_slot", SLOT) + setup.option("_spare", 0)
    memory = Memory(numel, setup.dtype, setup.option("order", WEAK))
    return [(view, memory, slots) for (view,) in vectors(setup, rng)]


def _pieces(setup: Setup) -> int:
    return -(-setup.size // setup.option("_slot", SLOT))


def _to_the_right(run: Run) -> str | None:
    """Data must go from rank r to rank r + 1 only, each byte once."""
    p, nbytes = run.ranks, rules.nbytes_of(run) * run.setup.times
    for op in run.outcome.accesses:
        if op.remote:
            source, target = (op.rank, op.peer) if op.kind is Access.PUT else (op.peer, op.rank)
            if (target - source) % p != 1:
                return About(
                    f"data goes from rank {source} to rank {target}{run.at(op.line)}, but only rank {(source + 1) % p} needs it",
                    op,
                )
    for rank in range(p):
        moved = puts.outgoing(run, rank)
        if moved > nbytes:
            return f"{moved} bytes leave rank {rank}, but its tensor has {nbytes}: each piece once"
    return None


def _steps(run: Run) -> str | None:
    pieces = _pieces(run.setup)
    advice = "put the next piece into a free slot before the reader has told you that it is done with the last one"
    return puts.steps_at_most(run, pieces + 2, f"{pieces} pieces + 2", advice)


def _many_pieces(setup: Setup) -> bool:
    return setup.ranks > 1 and setup.times == 1 and setup.option("slots", SLOTS) > 1 and _pieces(setup) > 3


def _last_piece_missing(tensors: list[torch.Tensor], rank: int, setup: Setup) -> torch.Tensor:
    """Only whole pieces were passed on."""
    slot = setup.option("_slot", SLOT)
    left = tensors[rank - 1].reshape(-1)
    return left[: len(left) // slot * slot]


def _explained(run: Run, fault: ResultFault) -> str | None:
    """A last piece that never came leaves there what was in the memory."""
    slot = run.setup.option("_slot", SLOT)
    whole = run.setup.size // slot * slot
    if not whole or not fault.wrong or min(fault.wrong) < whole:
        return None
    return f"rank {fault.rank} is right up to element {whole - 1}, and then the last piece is missing: it may be shorter than a slot"


def _from(step: int) -> Make:
    return lambda tensors, rank, setup: tensors[(rank + step) % setup.ranks]


def _case(ranks: int, size: int, order: str = WEAK, slots: int = SLOTS, slot: int = SLOT, **more: object) -> Setup:
    spare = {"_spare": more.pop("spare")} if "spare" in more else {}  # elements of the memory behind the last slot
    setup = Setup(ranks, size, **more)  # type: ignore[arg-type]
    shown = {"order": order} if order == GENTLE else {"_order": order}
    return setup.with_options(slots=slots, _slot=slot, **shown, **spare)


EXERCISE = Exercise(
    name="shift_through_slots",
    promise="returns the tensor of the rank to the left, which comes piece by piece through a few slots of memory",
    groups=(
        Group("right tensor, puts seen in order", 2, (_case(2, 4, GENTLE), _case(3, 6, GENTLE), _case(4, 4, GENTLE))),
        Group("right tensor, puts seen late", 3, (_case(2, 4), _case(3, 6), _case(4, 4))),
        Group("more pieces than slots", 4, (_case(2, 16), _case(3, 16, slots=2), _case(4, 12, slots=1))),
        Group("any rank count", 1, (_case(1, 8), _case(5, 8), _case(8, 8))),
        Group("many ranks", 1, (_case(9, 12).with_choices(ranks=(9, 11), size=(13, 15, 17), slots=(2, 3)),)),
        Group(
            "any size",
            2,
            (
                _case(3, 7),
                _case(3, 1),
                _case(3, 0),
                _case(2, 11, slots=2, slot=5),
                _case(3, 9, slot=1),
                _case(3, 9, spare=2),
            ),
        ),
        Group(
            "any dtype and layout",
            1,
            (
                _case(3, 9, dtype="float64", values="precise"),
                _case(3, 9, dtype="int64", values="precise"),
                _case(3, 9, dtype="bfloat16"),
                *(replace(s, options=(("slots", SLOTS), ("_slot", SLOT))) for s in LAYOUTS),
            ),
        ),
        Group("any circumstances", 3, (_case(3, 9, times=2), _case(4, 4, times=2), _case(3, 6, outer_world=True))),
    ),
    inputs=_inputs,
    labels={"order": "in {} order"},
    oracle=lambda setup, args: [Expected(plain(args[rank - 1][0])) for rank in range(setup.ranks)],
    allow=frozenset(),
    rules=(
        puts.no_races(6),
        puts.signals_used_up(2),
        Rule("each byte once, to the right neighbour", 2, _to_the_right),
        Rule("several pieces under way", 4, _steps, _many_pieces),
        puts.carried(),
    ),
    mistakes={
        "this rank's own tensor came back: it must be the left neighbour's": returning(_from(0)),
        "the tensor of the rank to the right: data goes to rank r + 1": returning(_from(1)),
        "the last piece is missing: it may be shorter than a slot": returning(_last_piece_missing),
    },
    explain=_explained,
    chunking="split",
    demo_setup=_case(4, 12, dtype="float64", values="provenance"),
    forbidden_advice="There are no messages here: write it with put, get, fence, signal and wait of memory.",
)
