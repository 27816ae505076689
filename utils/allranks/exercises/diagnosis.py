"""diagnosis(program) -> (rank, line, kind): what is wrong with each of the broken programs of lab 10.

It is called on every rank, so that the rank to blame can depend on the number of ranks. The verdict does not say which of the
three parts is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from allranks.checking.cases import AllOrNothing, Args, Expected, Oracle, Setup
from allranks.checking.drawing import Draws
from allranks.checking.exercise import Exercise, Group, Mistake

EVERY = -1  # in place of a rank, when every rank does the same wrong thing


class Kind(IntEnum):
    """What can be wrong between ranks; the lab lists the same kinds with the same numbers."""

    DTYPE = 1  # tensors that meet have different dtypes
    SHAPE = 2  # ... different shapes
    ORDER = 3  # the same calls, on some rank in another order
    ROOT = 4  # ranks name different roots
    DEADLOCK = 5  # a circle of ranks that wait for each other
    BUFFER = 6  # a buffer that is still in use is written to
    NEVER_WAITED = 7  # no rank waits for an operation that it started
    EARLY = 8  # a rank leaves before a call that the others make
    GROUP = 9  # a group that only some ranks make


Change = Callable[[int, int, int, Setup], tuple[int, int, int]]  # (rank, line, kind, setup) -> another diagnosis


def _first_without(ranks: int) -> int:
    """The first rank that gets none of nine samples, where each takes ceil(9/p)."""
    each = -(-9 // ranks)
    return -(-9 // each)


# by program: the rank to blame among so many, the line of its cell, the kind; then the line that only notices, if one does
TRUTH: dict[str, tuple[Callable[[int], int], int, Kind, int | None]] = {
    "count_samples": (lambda p: EVERY, 4, Kind.DTYPE, 5),
    "mean_loss": (lambda p: p - 1, 4, Kind.ORDER, 6),
    "mirror": (lambda p: EVERY, 8, Kind.DEADLOCK, 9),
    "share_settings": (lambda p: p // 2, 5, Kind.ROOT, None),
    "hand_out": (lambda p: 0, 10, Kind.BUFFER, 13),
    "mean_of_samples": (_first_without, 4, Kind.EARLY, 6),
}
HANGS = ("mirror", "share_settings", "mean_of_samples")
RANKS = {"count_samples": (2, 3, 4, 5), "mirror": (2, 4, 6, 8), "mean_of_samples": (4, 6, 7, 8)}


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    return [(setup.option("program"),) for _ in range(setup.ranks)]


def _oracle_from(change: Change) -> Oracle:
    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        blame, line, kind, _ = TRUTH[setup.option("program")]
        told = change(blame(setup.ranks), line, int(kind), setup)
        return [Expected(AllOrNothing(told, "diagnosis")) for _ in range(setup.ranks)]

    return oracle


def _victim(rank: int, line: int, kind: int, setup: Setup) -> tuple[int, int, int]:
    if rank <= 0 or setup.option("program") not in HANGS:
        raise ValueError("rank 0 is to blame, or everybody, or nobody complains")
    return 0, line, kind


def _noticing(rank: int, line: int, kind: int, setup: Setup) -> tuple[int, int, int]:
    notices = TRUTH[setup.option("program")][3]
    if notices is None:
        raise ValueError("no line does")
    return rank, notices, kind


def _deadlock(hangs: bool) -> Change:
    """Calls a program a deadlock that is not one: one that hangs, or one that does not."""

    def change(rank: int, line: int, kind: int, setup: Setup) -> tuple[int, int, int]:
        if kind == Kind.DEADLOCK or (setup.option("program") in HANGS) is not hangs:
            raise ValueError("it is one, or of the other kind")
        return rank, line, int(Kind.DEADLOCK)

    return change


def _as_for_four(rank: int, line: int, kind: int, setup: Setup) -> tuple[int, int, int]:
    return TRUTH[setup.option("program")][0](4), line, kind


EXERCISE = Exercise(
    name="diagnosis",
    promise="names the rank, the line and the kind of what is wrong",
    groups=tuple(
        Group(name, 1, tuple(Setup(p, 1).with_options(program=name) for p in RANKS.get(name, (4, 5, 6, 8))))
        for name in TRUTH
    ),
    inputs=_inputs,
    oracle=_oracle_from(lambda rank, line, kind, setup: (rank, line, kind)),
    allow=frozenset(),
    mistakes=(
        Mistake("right for 4 ranks only: compute the rank from the number of ranks", _oracle_from(_as_for_four)),
        Mistake("rank 0 is the first to complain, not the one to blame", _oracle_from(_victim)),
        Mistake("this line only shows what another line did wrong", _oracle_from(_noticing)),
        Mistake(
            "this is the line before the right one (the first line of a program is 1)",
            _oracle_from(lambda rank, line, kind, setup: (rank, line - 1, kind)),
        ),
        Mistake(
            "a program can hang without a deadlock: do ranks wait for each other in a circle?",
            _oracle_from(_deadlock(hangs=True)),
        ),
        Mistake("it does not hang, so it is not a deadlock", _oracle_from(_deadlock(hangs=False))),
    ),
    unit="program",
    chunking="none",
    demo_setup=Setup(4, 1).with_options(program="mirror"),
    forbidden_advice="A diagnosis needs no messages.",
)
