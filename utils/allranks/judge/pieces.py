"""An item that is missing because a vector was cut into fewer pieces than the code counts on, as torch.chunk may cut it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from allranks.base.errors import capital, counted
from allranks.judge.cases import Setup, shape_of
from allranks.judge.verdict import Reason
from allranks.ranks.wire import Failure

_QUESTION = "How many pieces do you get of this size, and on how many does this line count?"


@dataclass(frozen=True)
class _Cut:
    """A way to cut: of what `lengths`, in what `unit`, into how many pieces; in `equal` ones, or in any that are not empty."""

    equal: bool
    unit: str
    lengths: Callable[[Setup], Sequence[int]]
    name: str
    count: Callable[[Setup], int]

    def too_short(self, setup: Setup) -> int | None:
        """The first length of a case that gives too few pieces."""
        wanted = self.count(setup)
        if wanted < 2:
            return None  # the case has no such count
        return next((n for n in self.lengths(setup) if (pieces_of(n, wanted) if self.equal else n) < wanted), None)


_CUTS = tuple(
    _Cut(equal, unit, lengths, name, count)
    for equal in (False, True)
    for unit, lengths in (
        ("element", lambda s: (s.size,)),
        ("row", lambda s: shape_of(s)[:1]),
        ("element", lambda s: (-(-s.size // 2), s.size // 2)),  # a half for each direction of a ring
    )
    for name, count in (
        ("p", lambda s: s.ranks),
        ("segments", lambda s: s.option("segments") or 0),
        ("ranks_per_node", lambda s: s.option("ranks_per_node") or 0),
        ("the number of halves", lambda s: 2),
    )
)


def with_cause(
    reason: Reason,
    failure: Failure,
    setup: Setup,
    failed: Sequence[Setup],
    others: Sequence[Setup],
    text: str,
    size_in: str,
) -> Reason:
    """The reason of a missing item in a case, with its cause if it came with just the sizes of which some kind of pieces are too few.

    `failed` are all cases with a missing item and `others` those without, `text` is the function's: one without chunk and split may have
    cut in another way, and a ValueError of it have any cause. `size_in` is what the size of a case counts. Where other sizes fail too, as
    with pieces of pieces, it is only asked.
    """
    calls = re.search(r"(?<!\w)(chunk|split)\(", text) is not None
    by_number = failure.error == "IndexError"
    known = [s for s in others if s.earns_credit]
    if size_in != "element" or not known or not (calls or by_number):
        return reason
    for cut in _CUTS:
        length = cut.too_short(setup)
        if (
            length is None
            or any(cut.too_short(s) is None for s in failed)
            or any(cut.too_short(s) is not None for s in known)
        ):
            continue
        cause = _in_words(cut, length, cut.count(setup))
        cause = capital(cause) if calls else f"Probably {cause}"
        return replace(reason, sentence=f"{reason.seen} {cause}", question=_QUESTION, cause=cause)
    return replace(reason, question=_QUESTION) if calls and by_number else reason


def lacks_item(failure: Failure | None) -> bool:
    """Whether a rank may have looked for an item that is not there: by its number, or with all that it unpacked."""
    return failure is not None and failure.misuse is None and failure.error in ("IndexError", "ValueError")


def _in_words(cut: _Cut, length: int, count: int) -> str:
    gives = counted(length, f"{cut.unit} gives", f"{cut.unit}s give")
    advice = f"but {cut.name} is {count}. torch.tensor_split always makes as many pieces as you ask for"
    if not cut.equal:
        full = counted(length, "piece that is not empty", "pieces that are not empty")
        return f"{gives} at most {full}, {advice}, some of them empty."
    return (
        f"pieces of ceil(size / {cut.name}) {cut.unit}s, as torch.chunk makes them, can be fewer than {cut.name}: {gives} "
        f"{counted(pieces_of(length, count), 'piece')}, {advice}."
    )


def pieces_of(length: int, count: int) -> int:
    """How many pieces torch.chunk makes.

    >>> pieces_of(9, 4), pieces_of(10, 4), pieces_of(1, 2)
    (3, 4, 1)
    """
    return -(-length // -(-length // count)) if length else 1
