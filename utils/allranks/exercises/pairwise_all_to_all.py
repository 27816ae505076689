"""pairwise_all_to_all(chunks) -> list[Tensor]: chunks[i] goes to rank i; one message for each pair and direction.

On rank r everything that arrives has the shape of its own chunks[r]; the chunks for different ranks may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, plain, shape_of
from allranks.judge.common import CIRCUMSTANCES, LAYOUTS, MOVED_DTYPES, RING_RANKS, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run


def _sizes(setup: Setup) -> list[int]:
    """How many elements each rank receives from each other; `size` is the smallest."""
    spread = setup.option("spread", 0)
    return [setup.size + (i * spread) % 5 for i in range(setup.ranks)]


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    shapes = [shape_of(setup, n) for n in _sizes(setup)]
    most = 9 if setup.dtype == "bfloat16" else 9999
    return [
        ([View.of(draw(setup, rng.of_rank(r), *shape, most=most), setup.layout) for shape in shapes],)
        for r in range(setup.ranks)
    ]


def _gathered(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Everybody's chunk for rank 0, or for themselves, on every rank."""
    return [Expected([plain(a[0][i]) for i, a in enumerate(args)]) for _ in args]


def _overwritten(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """What arrives in a step is put into the list from which the later steps send."""
    p, lists = setup.ranks, [[plain(view) for view in a[0]] for a in args]
    for step in range(1, p):
        sent = [chunks[(rank + step) % p] for rank, chunks in enumerate(lists)]
        for rank, chunks in enumerate(lists):
            chunks[(rank - step) % p] = sent[(rank - step) % p]
    return [Expected(chunks) for chunks in lists]


def _once(run: Run) -> str | None:
    if any(_sizes(run.setup)) and not run.sends:
        return rules.no_messages(run)
    sent = Counter((e.rank, e.peer) for e in run.sends)
    for (rank, peer), times in sorted(sent.items()):
        if times > run.setup.times:
            first = next(e for e in run.sends if (e.rank, e.peer) == (rank, peer))
            words = f"rank {rank} sends {times} messages to rank {peer}{run.at(first.line)}: one message to each other rank is enough"
            return About(words, first, f"{times} messages", f"{run.setup.times}")
    for rank in range(run.ranks):
        for peer in range(run.ranks):
            mine = [e for e in run.sends if (e.rank, e.peer) == (rank, peer)]
            nbytes = sum(e.nbytes for e in mine)
            wanted = run.setup.times * _sizes(run.setup)[peer] * run.args[0][0][0][0].base.element_size()
            if rank != peer and nbytes != wanted:
                wide = next(filter(None, (rules.wider(run, e) for e in mine)), None)
                return (
                    wide
                    or f"rank {rank} sends {nbytes} bytes to rank {peer}, but chunk {peer} has {wanted}: send each chunk straight to its rank"
                )
    return None


EXERCISE = Exercise(
    name="pairwise_all_to_all",
    promise="returns the list of what every rank sent to this one",
    won="sends every part once and straight to its rank: no byte travels twice",
    groups=(
        Group("right chunks", 3, (Setup(2, 2), Setup(3, 3), Setup(4, 2))),
        Group("any rank count", 1, (Setup(1, 4), Setup(5, 2), Setup(6, 2))),
        Group(
            "sizes that differ",
            2,
            tuple(s.with_options(spread=2) for s in (Setup(2, 1), Setup(3, 0), Setup(4, 1), Setup(5, 0), Setup(6, 1))),
        ),
        many_ranks(2, Setup(9, 2), ranks=RING_RANKS, size=(2, 3, 5)),
        Group("any size", 1, (Setup(3, 0), Setup(3, 1), Setup(1, 0))),
        Group("any dtype", 1, MOVED_DTYPES),
        Group("any layout", 1, LAYOUTS),
        Group("any circumstances", 1, CIRCUMSTANCES),
    ),
    inputs=_inputs,
    labels={"spread": "more on some ranks"},
    oracle=lambda setup, args: [Expected([plain(a[0][rank]) for a in args]) for rank in range(setup.ranks)],
    allow=P2P,
    rules=(
        Rule("one message for each pair and direction", 6, _once),
        rules.in_rounds(lambda p: 4 * (p - 1), "4(p-1)", 3),  # pairs that send one after the other take fewer
    ),
    blocking_weight=3,
    mistakes={
        "the wrong chunk was sent: chunks[i] goes to rank i": _gathered,
        "what arrived was put in the place of a chunk that had still to be sent: collect it in a list of its own": _overwritten,
    },
    unit="element a chunk",
    collective="all_to_all",
    algorithm="pairwise",
    demo_setup=Setup(4, 3),
    peer_advice="Take the peer's number modulo the number of ranks.",
)
