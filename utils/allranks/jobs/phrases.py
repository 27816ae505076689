"""Numbers in words, for the report."""

from __future__ import annotations

from allranks.base.errors import counted

__all__ = ["gigabytes", "many", "ms", "percent", "size"]


def ms(time_us: float) -> str:
    """A time with three figures and the unit that suits it.

    >>> ms(240_123.4), ms(61.2), ms(2_500_000), ms(0)
    ('240 ms', '61.2 µs', '2.5 s', '0 µs')
    """
    if abs(time_us) >= 1e6:
        return f"{_three(time_us / 1e6)} s"
    return f"{_three(time_us / 1e3)} ms" if abs(time_us) >= 1e3 else f"{_three(time_us)} µs"


def _three(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share as a percentage.

    >>> percent(0.1431), percent(0.004), percent(0)
    ('14 %', '0.4 %', '0 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.0095 or not share else f"{100 * share:.2g} %"


def size(nbytes: float | None) -> str:
    """Bytes with the decimal unit that suits them, as bandwidths have.

    >>> size(8000), size(26_550_272), size(12), size(None)
    ('8 KB', '26.6 MB', '12 B', '?')
    """
    if nbytes is None:
        return "?"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.3g} B"


def gigabytes(gb_per_s: float) -> str:
    """A bandwidth.

    >>> gigabytes(11.783), gigabytes(0.02), gigabytes(240)
    ('11.8 GB/s', '0.02 GB/s', '240 GB/s')
    """
    return f"{gb_per_s:.3g} GB/s"


def many(op: str, count: int | None = None) -> str:
    """An operation's plural, or so many of it.

    >>> many("all_reduce"), many("broadcast", 1), many("unknown", 2000)
    ('all_reduces', '1 broadcast', '2,000 unknown calls')
    """
    one = "unknown call" if op == "unknown" else op
    return f"{one}s" if count is None else counted(count, one)
