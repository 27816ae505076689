"""What all failing cases have in common, and no passing one has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allranks.judge.cases import Setup
from allranks.judge.causes import Cause, Code, cause

Holds = Callable[[Setup], bool]


def _dtypes(right: Sequence[Setup], wrong: Sequence[Setup]) -> Cause | None:
    """What is said of dtypes: only what was tried."""
    tried = {s.dtype for s in wrong}
    others = {s.dtype for s in right} - {"float32"}
    if others or "float32" in tried:
        return None
    *first, last = sorted(tried)
    return cause(Code.DTYPES, first=", ".join(first), last=last) if first else cause(Code.DTYPE, last=last)


def properties(found: Sequence[tuple[Setup, bool]], unit: str = "element") -> list[tuple[Cause, Holds | None]]:
    """What all failing cases have and no passing one has, the likeliest first.

    `unit` is what the size counts: that ranks divide it says something only of the elements of one tensor.

    With each comes what it says of a setup that must fail, if more setups must be tried before it is said.
    """
    counted = [(setup, passed) for setup, passed in found if setup.earns_credit]
    right = [setup for setup, passed in counted if passed]
    wrong = [setup for setup, passed in counted if not passed]
    if len(right) < 2 or not wrong:
        return []
    codes = [
        (code, holds if must_be_tried else None)
        for code, holds, must_be_tried in _PROPERTIES
        if not any(map(holds, right))
        and all(map(holds, wrong))
        and (unit == "element" or code not in (Code.DIVIDES_SIZE, Code.DIVIDES_ROWS))
    ]
    if any(passed and setup.ranks == 1 for setup, passed in found):
        codes = [(Code.ONLY_ONE_OR_TWO if code is Code.ONLY_TWO else code, holds) for code, holds in codes]
    fitting = [(cause(code), holds) for code, holds in codes]
    about_dtypes = _dtypes(right, wrong)
    if about_dtypes is not None:
        fitting.append((about_dtypes, None))
    if not fitting and {s.ranks for s in right} == {4} and any(s.ranks != 4 for s in wrong):
        fitting.append((cause(Code.ONLY_FOUR), lambda s: s.ranks != 4))  # with luck few cases are right, and all have 4
    return fitting


# what it says of a case that must fail, and whether more cases must be tried before it is said
_PROPERTIES: tuple[tuple[Code, Holds, bool], ...] = (
    (Code.NODES_EQUAL, lambda s: s.option("ranks_per_node", 0) ** 2 not in (0, s.ranks), False),
    (Code.DIVIDES_SIZE, lambda s: not s.divides, True),
    (Code.DIVIDES_ROWS, lambda s: not s.divides_rows, True),
    (Code.ONLY_FOUR, lambda s: s.ranks != 4, True),
    (Code.ONLY_TWO, lambda s: s.ranks > 2, True),
    (Code.POWER_OF_TWO, lambda s: bool(s.ranks & (s.ranks - 1)), True),
    (Code.EVEN, lambda s: s.ranks % 2 == 1, True),
    (Code.AT_MOST_EIGHT, lambda s: s.ranks > 8, True),
    (Code.TRANSPOSED, lambda s: s.layout == "transposed", False),
    (Code.STRIDED, lambda s: s.layout in ("strided", "transposed"), False),
    (Code.WINDOWS, lambda s: s.layout != "contiguous", False),
    (Code.SECOND_TIME, lambda s: s.times > 1, False),
    (Code.LARGER_JOB, lambda s: s.outer_world, False),
    (Code.ROOT_ZERO, lambda s: bool(s.root), False),
    (Code.DELAYED, lambda s: s.delivery == "shuffled", False),
)
