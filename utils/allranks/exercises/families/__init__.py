"""What several exercises share: the table of typical mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from allranks.judge.cases import Oracle
from allranks.judge.evidence import Holds
from allranks.judge.exercise import Mistake

Told = Oracle | tuple[Oracle, Holds]  # what a mistake leaves on every rank, and when the run's log allows it


def known(*given: Mistake | Mapping[str, Told | list[Told]]) -> tuple[Mistake, ...]:
    """The mistakes of tables {cause: what it leaves}, in their order. A list has several results of one cause.

    Example:
        >>> [m.cause for m in known({"nothing came": lambda setup, args: []})]
        ['nothing came']
    """
    return tuple(mistake for one in given for mistake in _each(one))


def _each(one: Mistake | Mapping[str, Told | list[Told]]) -> Iterator[Mistake]:
    if isinstance(one, Mistake):
        yield one
        return
    for cause, told in one.items():
        for oracle in told if isinstance(told, list) else [told]:
            yield Mistake(cause, *(oracle if isinstance(oracle, tuple) else (oracle,)))
