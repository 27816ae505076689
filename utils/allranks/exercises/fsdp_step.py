"""fsdp_step(shards, compute) -> list of Tensor: a step in which no rank ever has more than two whole blocks of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch

from allranks.judge import computed, rules
from allranks.judge.cases import Args, Blocks, Expected, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import MANY_RANKS, circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.judge.in_rank.arguments import MOST_WHOLE
from allranks.ranks.wire.wait import outermost
from allranks.theory.trace import Event

Life = tuple[float, float, int, Event, int]  # of a whole block: from, to, its number, its all_gather, how many that has
BLOCK_S = 64.0  # of virtual time; with alpha = 1 a gather among p ranks takes p-1
SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_tensor"})
GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    sizes = setup.option("_sizes")  # of each block's shard
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        shards = [View.of(draw(setup, own, n)) for n in sizes]
        gradients = tuple(View.of(draw(setup, own, n * setup.ranks)) for n in sizes)
        yield shards, Blocks(gradients, BLOCK_S)


@oracle_maker
def _gradients(setup: Setup, args: Sequence[Args], own: bool = False, by_blocks: bool = False) -> Iterator[Expected]:
    """Each rank's shards of the gradients, summed over the ranks and divided by p, or by the number of blocks."""
    p = setup.ranks
    by = setup.size if by_blocks else p
    totals = []
    for block in range(len(args[0][0])):
        whole = torch.cat([plain(a[0][block]).double() for a in args])
        parts = [whole * a[1].gradients[block].tensor().double() for a in args]
        totals.append((parts, torch.stack(parts).sum(0) / by))
    kind = args[0][0][0].base.dtype
    atol = 64 * torch.finfo(kind).eps * p if setup.values != "small" else 1e-3
    for rank in range(p):
        shards = [(parts[rank] / by if own else total).chunk(p)[rank].to(kind) for parts, total in totals]
        yield Expected(shards, {}, (atol,) * len(shards))


def _turns(run: Run, rank: int, call: int) -> list[Event]:
    """The times in which a rank computes in one call."""
    works = [e for e in run.outcome.trace if e.op == "compute" and e.rank == rank]
    count = len(works) // run.setup.times
    return works[call * count : (call + 1) * count]


def _events(run: Run, rank: int, call: int) -> list[Event]:
    """The collectives that a rank launched in one call, in their order."""
    events = [e for e in run.outcome.trace if e.rank == rank and e.op in GATHERS | SCATTERS]
    counts = Counter(e.call for e in run.collectives if e.rank == rank)
    before = sum(counts[k] for k in range(call))
    return events[before : before + counts[call]]


def _blocks_of(run: Run, call: int) -> dict[int, int]:
    """The block of each shard, by its bytes."""
    return {v.tensor().numel() * v.base.element_size(): i for i, v in enumerate(run.args[call][0][0])}


def _each_block(run: Run) -> str | None:
    """Every message must be one block's: its weights gathered once forward and once backward, its gradients scattered once."""
    for call in range(run.setup.times):
        known = _blocks_of(run, call)
        count = len(known)
        for rank in range(run.ranks):
            if len(_turns(run, rank, call)) != 2 * count:
                return (
                    f"rank {rank} computes {len(_turns(run, rank, call))} times, but {count} blocks have 2 turns each, "
                    f"{2 * count} in all"
                )
            seen: Counter[tuple[bool, int]] = Counter()
            for entry in [e for e in run.collectives if e.rank == rank and e.call == call]:
                gathers = entry.op in GATHERS
                block = known.get(entry.nbytes if gathers else entry.nbytes // run.ranks)
                if block is None:
                    what = "all_gathers" if gathers else "reduce_scatters"
                    return About(
                        f"rank {rank} {what} {entry.nbytes} bytes{run.at(entry.line)}, which is no single block: one call a block, so "
                        "that only one needs to be whole",
                        entry,
                    )
                seen[gathers, block] += 1
                if seen[gathers, block] > 1 + gathers:
                    what = "gathers the weights" if gathers else "scatters the gradients"
                    enough = "forward and backward, twice in all, are" if gathers else "once is"
                    return About(
                        f"rank {rank} {what} of block {block} {seen[gathers, block]} times{run.at(entry.line)}: {enough} enough",
                        entry,
                    )
    return None


def _whole_blocks(run: Run) -> str | None:
    """No rank may have more than two whole blocks, counted from the launch of the all_gather to the end of its last use."""
    for call in range(run.setup.times):
        known = _blocks_of(run, call)
        order = run.args[call][0][1].order
        for rank in range(run.ranks):
            turns = _turns(run, rank, call)
            gathers = [(known[e.nbytes], e) for e in _events(run, rank, call) if e.op in GATHERS]
            lives = []
            for block, event in gathers:
                again = [e for b, e in gathers if b == block]
                uses = [turn.end for b, turn in zip(order, turns, strict=True) if b == block]
                # gathered twice: the first copy is for forward, the second for backward
                last = uses[0] if len(again) == 2 and event is again[0] else uses[-1]
                lives.append((event.start, last, block, event, len(again)))
            for launched, (start, _, _, event, _) in enumerate(lives):
                alive = [life[2] for life in lives[: launched + 1] if start < life[1]]
                if len(alive) <= MOST_WHOLE:
                    continue
                names = ", ".join(f"{b}{' twice' if n > 1 else ''}" for b, n in Counter(alive).items())
                return About(
                    f"rank {rank} has {len(alive)} whole blocks at a time, {names}, but {MOST_WHOLE} are "
                    f"enough, the one that computes and the next: {_why_alive(run, lives[: launched + 1], turns, order)}",
                    event,
                )
    return None


def _in_memory(run: Run) -> str | None:
    """No rank may have kept more than two whole blocks, or copies of them, when a block computes."""
    for call in range(run.setup.times):
        order = run.args[call][0][1].order
        for rank in range(run.ranks):
            for turn, (count, line) in enumerate(computed.most_whole(run, call, rank)):
                if count > MOST_WHOLE:
                    way = "forward" if turn < len(order) // 2 else "backward"
                    return About(
                        f"rank {rank} has {count} whole blocks in memory when block {order[turn]} computes {way}{run.at(line)}, but "
                        f"{MOST_WHOLE} are enough: let go of a block behind its last use, with the handle of its all_gather and all "
                        "copies, and use what was gathered last",
                        Event(rank, "compute", line=outermost(line)),
                    )
    return None


def _kept(run: Run) -> str | None:
    """At most two whole blocks: by the messages where these tell which block they are of, and by what is in memory."""
    return (_if_blocks_right(_whole_blocks)(run) if _tells_blocks(run.setup) else None) or _in_memory(run)


def _why_alive(run: Run, lives: Sequence[Life], turns: Sequence[Event], order: Sequence[int]) -> str:
    """Why there are too many whole blocks when the last of these is launched."""
    start, _, block, event, _ = lives[-1]
    again = sum(life[2] == block for life in lives) > 1
    turn = len(order) - 1 - block if again else block
    at = run.at(event.line)
    if turn >= MOST_WHOLE and start < turns[turn - MOST_WHOLE].end:
        before = order[turn - MOST_WHOLE]
        return f"the all_gather of block {block}{at} was launched before the pass of block {before} was over"
    alive = [life for life in lives[:-1] if start < life[1]]
    if any(life[2] == block for life in alive):
        return f"block {block} is gathered again{at} while it is still whole: use it as it is"
    count = len(order) // 2
    kept = next((life[2] for life in alive if life[4] == 1 and life[2] < count - MOST_WHOLE), None)
    if kept is None:
        return f"launch the all_gather of block {block}{at} later"
    return f"block {kept} is gathered only once, so it stays from forward to backward; free it, and gather it again"


def _no_pause(run: Run) -> str | None:
    """After its first turn a rank must compute without a pause: all messages but the first and the last can hide."""
    for call in range(run.setup.times):
        order = run.args[call][0][1].order
        for rank in range(run.ranks):
            turns = _turns(run, rank, call)
            for number, (before, after) in enumerate(pairwise(turns), 1):
                if after.start - before.end <= 1e-9:
                    continue
                waits = [
                    e for e in run.outcome.trace
                    if e.op == "wait" and e.rank == rank and e.end > before.end and e.start < after.start
                ]  # fmt: skip
                slow = max(waits, key=lambda e: e.end - e.start, default=None)
                way = "forward" if number < len(order) // 2 else "backward"
                words = (
                    f"rank {rank} computes nothing for {after.start - before.end:g} s of virtual time before block "
                    f"{order[number]} {way}{run.at(slow.line) if slow else ''}"
                )
                return About(f"{words}: {_why_pause(run, rank, call, number, slow)}", slow)
    return None


def _why_pause(run: Run, rank: int, call: int, number: int, wait: Event | None) -> str:
    """What to change, by the collective that a rank waits for before its turn `number`."""
    order = run.args[call][0][1].order
    block, last = order[number], "and wait for a reduce_scatter only at the end"
    awaited = None if wait is None else _awaited(run, rank, wait)
    if awaited is not None and awaited.op in SCATTERS:
        return f"launch the reduce_scatter with async_op=True, {last}"
    if block == order[number - 1]:
        return f"it is whole from its forward pass, so use it as it is, {last}"
    if awaited is not None and _tells_blocks(run.setup):
        later = _blocks_of(run, call).get(awaited.nbytes)
        if later not in (None, block):
            return f"wait() for the all_gather of block {later} only when block {block} has computed, {last}"
    return f"launch the next block's all_gather with async_op=True before a block computes, {last}"


def _awaited(run: Run, rank: int, wait: Event) -> Event | None:
    """The collective that a rank waits for."""
    mine = (e for e in run.outcome.trace if e.rank == rank and e.op in GATHERS | SCATTERS)
    return next((e for e in mine if (e.group, e.seq) == (wait.group, wait.seq)), None)


def _tells_blocks(setup: Setup) -> bool:
    """Whether one sees from its bytes which block a message is of."""
    sizes = setup.option("_sizes")
    return setup.ranks > 1 and len(set(sizes)) == len(sizes)


def _if_blocks_right(rule: Callable[[Run], str | None]) -> Callable[[Run], str | None]:
    """The rule, for runs whose messages are one block's each; the rule on those tells of the others."""
    return lambda run: None if _each_block(run) else rule(run)


def _needed(run: Run, call: int, rank: int) -> int:
    """The others' shards, and of this rank's shards the others' gradients."""
    nbytes = sum(v.tensor().numel() * v.base.element_size() for v in run.args[call][rank][0])
    return (run.ranks - 1) * nbytes


def _case(ranks: int, sizes: tuple[int, ...], dtype: str = "float32", note: str = "", **more: object) -> Setup:
    note = note or "shards of " + ", ".join(map(str, sizes))
    return Setup(ranks, len(sizes), dtype, note=note, **more).with_options(_sizes=sizes)  # type: ignore[arg-type]


FOUR = (3, 2, 5, 4)
LARGE = tuple(range(4104, 4096, -1))  # so large and so many that what a rank keeps is seen in whatever form
EXERCISE = Exercise(
    name="fsdp_step",
    promise="computes all blocks forward and backward, and returns this rank's shard of each block's mean gradient",
    groups=(
        Group("right gradients", 3, (_case(2, FOUR), _case(3, FOUR), _case(4, (2, 1, 4, 3, 5)))),
        Group("any rank count", 1, (_case(1, FOUR), _case(5, FOUR), _case(8, (2, 3, 1)))),
        Group(
            "any number of blocks",
            1,
            (_case(2, (3,)), _case(3, (2, 4)), _case(8, LARGE, note="large blocks", values="random")),
        ),
        Group(
            "many ranks",
            2,
            (
                _case(9, FOUR, note="shards of several sizes").with_choices(
                    ranks=MANY_RANKS, _sizes=((3, 2, 5, 4), (1, 4, 3, 2), (2, 5, 1, 3))
                ),
            ),
        ),
        Group(
            "blocks of equal size",
            1,
            (
                _case(2, (3, 3, 3, 3)),
                _case(3, (3, 3, 3, 3), note="shards of which some are equal").with_choices(
                    _sizes=((2, 2, 4, 4), (4, 2, 2, 4), (5, 3, 5, 5), (2, 3, 2, 3))
                ),
            ),
        ),
        Group("any dtype", 1, (_case(3, FOUR, "float64", values="random"), _case(2, FOUR, values="random"))),
        circumstances(_case(3, FOUR)),
    ),
    inputs=_inputs,
    oracle=_gradients(),
    allow=GATHERS | SCATTERS,
    rules=(
        Rule("one all_gather a block and direction, one reduce_scatter a block", 2, _each_block, _tells_blocks),
        Rule("at most two whole blocks at a time", 6, _kept),
        Rule(
            "no pause between two blocks",
            6,
            _if_blocks_right(_no_pause),
            lambda setup: _tells_blocks(setup) and setup.size > 1,
        ),
        Rule("in the tensors' dtype", 2, rules.wrong_dtype),
        rules.carried(_needed, lambda run, call, rank: _needed(run, call, rank) // max(run.ranks - 1, 1)),
    ),
    mistakes={
        "the gradients are in the order of the backward pass: the list begins with that of block 0, as `shards` "
        "does": lambda s, a: [Expected(e.returns[::-1], {}, e.atol) for e in _gradients()(s, a)],
        "divided by the number of blocks instead of the number of ranks": _gradients(by_blocks=True),
        "each rank's own gradients, divided by p: nothing was added over the ranks": _gradients(own=True),
    },
    unit="block",
    demo_setup=_case(4, FOUR),
    only_sums=True,
    forbidden_advice="all_gather_single and reduce_scatter_single, with async_op=True, are all that it needs.",
)
