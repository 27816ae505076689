"""An IndexError whose cause is that a vector was cut into fewer pieces than the code counts on, as torch.chunk may cut it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from allranks.checking.cases import Setup, shape_of
from allranks.checking.verdict import Reason
from allranks.errors import capital

Lengths = Callable[[Setup], Sequence[int]]
Count = Callable[[Setup], int]
_QUESTION = "How many pieces do you get of this size, and on how many does this line count?"
# what may have been cut: a name of its units, and the lengths
_CUT: tuple[tuple[str, Lengths], ...] = (
    ("element", lambda s: (s.size,)),
    ("row", lambda s: shape_of(s)[:1]),
    ("element", lambda s: (-(-s.size // 2), s.size // 2)),  # a half for each direction of a ring
)
# into how many pieces
_COUNTS: tuple[tuple[str, Count], ...] = (
    ("p", lambda s: s.ranks),
    ("segments", lambda s: s.option("segments") or 1),
    ("ranks_per_node", lambda s: s.option("ranks_per_node") or 1),
)


def with_cause(
    reason: Reason, setup: Setup, failed: Sequence[Setup], others: Sequence[Setup], text: str, size_in: str
) -> Reason:
    """The reason of an IndexError in a case, with its cause if it came with just the sizes of which some kind of pieces are too few.

    `failed` are all cases with an IndexError and `others` those without, `text` is the function's: one without chunk and split may have
    cut in another way. `size_in` is what the size of a case counts.
    """
    known = [s for s in others if s.earns_credit]
    for whole in (False, True) if size_in == "element" and known else ():
        for unit, lengths in _CUT:
            for name, count in _COUNTS:

                def short(
                    s: Setup, lengths: Lengths = lengths, count: Count = count, whole: bool = whole
                ) -> int | None:
                    """The first length that makes too few pieces."""
                    wanted = count(s)
                    made = (lambda n: pieces_of(n, wanted)) if whole else (lambda n: n)
                    return next((length for length in lengths(s) if made(length) < wanted), None)

                length = short(setup)
                if length is None or any(short(s) is None for s in failed) or any(short(s) is not None for s in known):
                    continue
                cause = _in_words(length, unit, name, count(setup), whole)
                cause = capital(cause) if re.search(r"(?<!\w)(chunk|split)\(", text) else f"Probably {cause}"
                return replace(reason, sentence=f"{reason.seen} {cause}", question=_QUESTION, cause=cause)
    return reason


def _in_words(length: int, unit: str, name: str, count: int, whole: bool) -> str:
    gives = f"{_counted(length, unit)} {'gives' if length == 1 else 'give'}"
    if not whole:
        full = "1 piece that is not empty" if length == 1 else f"{length} pieces that are not empty"
        return f"{gives} at most {full}, but {name} is {count}. torch.tensor_split makes {name} pieces of any size, some of them empty."
    return (
        f"pieces of ceil(size / {name}) {unit}s, as torch.chunk makes them, can be fewer than {name}: {gives} "
        f"{_counted(pieces_of(length, count), 'piece')}, but {name} is {count}. torch.tensor_split makes {name} pieces of any size."
    )


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def pieces_of(length: int, count: int) -> int:
    """How many pieces torch.chunk makes.

    >>> pieces_of(9, 4), pieces_of(10, 4), pieces_of(1, 2)
    (3, 4, 1)
    """
    return -(-length // -(-length // count)) if length else 1
