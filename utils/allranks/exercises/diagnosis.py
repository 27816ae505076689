"""diagnosis(program) -> (rank, line, kind): what is wrong with each of the broken programs of lab 10.

It is called on every rank, so that the rank to blame can depend on the number of ranks. The verdict does not say which of the
three parts is wrong.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from enum import IntEnum

from allranks.judge.cases import AllOrNothing, Args, Expected, Setup, oracle_maker
from allranks.judge.exercise import Exercise, Group

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


# The answers are not written here, where every learner could read them by chance: each is known by its digest, by program and
# number of ranks, and found by trying all. A reader can do so too; solutions/lab10_debugging has the answers in words.
MOST_LINES = 20
DIGESTS = {
    "count_samples": {2: "e3981a7523ae8f3d", 3: "b2f25cc28ea6a00f", 4: "807195d661c8252f", 5: "139773af63692aa5"},
    "mean_loss": {4: "be49a8a909953a05", 5: "05f468fe5c1ed259", 6: "c155d7fd156e2f04", 8: "ca2cd68df6d4cc24"},
    "mirror": {2: "5a30d00cf274232d", 4: "d9b3ca0cc005fb5d", 6: "67dd14ae2d83d3e1", 8: "7cb8e095e4f6fb4a"},
    "share_settings": {4: "9fcb29a944d2fbbe", 5: "a6cb4712418b338d", 6: "7a8bd6ad248c4ac8", 8: "e11428b815e34a59"},
    "hand_out": {4: "e87a08491ccf3a5f", 5: "57198a487eae6087", 6: "89d0d7eacaa3c374", 8: "83a3987cf582f10b"},
    "mean_of_samples": {4: "54e6bc60d5b17aa9", 6: "fa0a53caeb0a13c0", 7: "57e4ce858269702e", 8: "a70f2c2282b262c4"},
}
# of the line that only notices what another line did, where one does
NOTICING = {
    "count_samples": "4111f8228acc0072",
    "mean_loss": "e578d2741cba7918",
    "mirror": "c4192067cc5ebc5c",
    "hand_out": "13aa1363c8dc3042",
    "mean_of_samples": "8cc9c1a0cee99a32",
}
HANGS = ("mirror", "share_settings", "mean_of_samples")


def digest(program: str, *parts: int | str) -> str:
    """What stands for an answer in `DIGESTS` (number of ranks, rank, line, kind) and `NOTICING` ("notices", line)."""
    return hashlib.sha256(" ".join(map(str, ("lab10", program, *parts))).encode()).hexdigest()[:16]


@functools.cache
def truth(program: str, ranks: int) -> tuple[int, int, int]:
    """The rank to blame among so many, the line of its cell, and the kind."""
    tries = itertools.product(range(EVERY, ranks), range(1, MOST_LINES + 1), map(int, Kind))
    return next(told for told in tries if digest(program, ranks, *told) == DIGESTS[program][ranks])


@functools.cache
def noticing(program: str) -> int | None:
    """The line that only notices what another line did; None if none does."""
    lines = range(1, MOST_LINES + 1)
    return next((line for line in lines if digest(program, "notices", line) == NOTICING.get(program)), None)


@oracle_maker
def _oracle_from(setup: Setup, args: Sequence[Args], change: Change) -> list[Expected]:
    told = change(*truth(setup.option("program"), setup.ranks), setup)
    return [Expected(AllOrNothing(told, "diagnosis")) for _ in range(setup.ranks)]


def _victim(rank: int, line: int, kind: int, setup: Setup) -> tuple[int, int, int]:
    if rank <= 0 or setup.option("program") not in HANGS:
        raise ValueError("rank 0 is to blame, or everybody, or nobody complains")
    return 0, line, kind


def _noticing(rank: int, line: int, kind: int, setup: Setup) -> tuple[int, int, int]:
    notices = noticing(setup.option("program"))
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
    return truth(setup.option("program"), 4)[0], line, kind


EXERCISE = Exercise(
    name="diagnosis",
    promise="names the rank, the line and the kind of what is wrong",
    groups=tuple(
        Group(name, 1, tuple(Setup(p, 1).with_options(program=name) for p in by_ranks))
        for name, by_ranks in DIGESTS.items()
    ),
    inputs=lambda setup, rng: [(setup.option("program"),) for _ in range(setup.ranks)],
    oracle=_oracle_from(lambda rank, line, kind, setup: (rank, line, kind)),
    allow=frozenset(),
    mistakes={
        "right for 4 ranks only: compute the rank from the number of ranks": _oracle_from(_as_for_four),
        "rank 0 is the first to complain, not the one to blame": _oracle_from(_victim),
        "this line only shows what another line did wrong": _oracle_from(_noticing),
        "this is the line before the right one (the first line of a program is 1)": _oracle_from(
            lambda rank, line, kind, setup: (rank, line - 1, kind)
        ),
        "a program can hang without a deadlock: do ranks wait for each other in a circle?": _oracle_from(
            _deadlock(hangs=True)
        ),
        "it does not hang, so it is not a deadlock": _oracle_from(_deadlock(hangs=False)),
    },
    unit="program",
    demo_setup=Setup(4, 1).with_options(program="mirror"),
    forbidden_advice="A diagnosis needs no messages.",
)
