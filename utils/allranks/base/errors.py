"""The root of all errors that the package raises for its readers; how messages name ranks, counts and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WIDTH = 100  # letters in a line


class CourseError(Exception):
    """An error whose message is all that its reader needs.

    A notebook shows it as one line, without a traceback through the package; a command prints it and exits with status
    2.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def name_ranks(ranks: Sequence[int], world_size: int | None = None) -> str:
    """The ranks in words: "rank 2", "ranks 0, 1 and 3"; "all 4 ranks" if the world size shows that these are all.

    >>> name_ranks([3, 0, 1])
    'ranks 0, 1 and 3'
    """
    if len(ranks) == world_size and len(ranks) > 1:
        return f"all {world_size} ranks"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {listed(sorted(ranks))}"


def listed(things: Iterable[object]) -> str:
    """One or more things in words.

    >>> listed([2, 3, 4])
    '2, 3 and 4'
    """
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def counted(count: int, one: str, many: str = "") -> str:
    """A count with its noun, and with the verb where the noun's number needs another one.

    >>> counted(1, "check"), counted(3000, "check"), counted(1, "GPU has", "GPUs have")
    ('1 check', '3,000 checks', '1 GPU has')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_in_words(nbytes: float) -> str:
    """The bytes with the largest unit that fits.

    >>> size_in_words(8 << 20)
    '8 MiB'
    """
    units = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
    return next(f"{nbytes / scale:.3g} {unit}" for unit, scale in units if nbytes >= scale or unit == "B")


def seconds_in_words(seconds: float, digits: int = 3) -> str:
    """The time with the largest unit that fits.

    >>> seconds_in_words(0.00125), seconds_in_words(2.5e-11)
    ('1.25 ms', '0.025 ns')
    """
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
    return next(f"{seconds / scale:.{digits}g} {unit}" for unit, scale in units if seconds >= scale or unit == "ns")


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """The text in lines that break between words; `first` stands before the first one and `rest` before the others.

    >>> wrapped("a word " * 20, "  - ", "    ")[1]
    '    word a word a word a word a word a word a word'
    """
    import textwrap  # not at each start

    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
