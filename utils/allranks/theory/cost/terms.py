"""A price as three counts, of alpha, beta and gamma; and checks that the functions of `cost` share."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from allranks.base.errors import CourseError
from allranks.theory.schedules import COLLECTIVES, Number


class CostError(CourseError, ValueError):
    """No price can be given: an unknown collective or algorithm, negative bytes, too few measurements."""


@dataclass(frozen=True)
class Terms:
    """A price as a sum: `messages` times alpha, `nbytes` times beta, `reduced_nbytes` times gamma.

    >>> from fractions import Fraction
    >>> cost.Terms(Fraction(2), Fraction(100)).seconds(alpha=5, beta=1)
    Fraction(110, 1)
    """

    messages: Fraction = Fraction(0)
    nbytes: Fraction = Fraction(0)
    reduced_nbytes: Fraction = Fraction(0)

    def __add__(self, other: Terms) -> Terms:
        return Terms(
            self.messages + other.messages, self.nbytes + other.nbytes, self.reduced_nbytes + other.reduced_nbytes
        )

    def seconds(self, alpha: Number, beta: Number, gamma: Number = 0) -> Number:
        """messages*alpha + nbytes*beta + reduced_nbytes*gamma; exact if all three are Fractions or integers."""
        if any(isinstance(x, float) for x in (alpha, beta, gamma)):
            return float(self.messages) * alpha + float(self.nbytes) * beta + float(self.reduced_nbytes) * gamma
        return self.messages * alpha + self.nbytes * beta + self.reduced_nbytes * gamma


def check_collective(collective: str) -> str:
    """The collective. Raises CostError if there is none of this name."""
    if collective not in COLLECTIVES:
        raise CostError(f"there is no collective {collective!r}; there are {', '.join(COLLECTIVES)}")
    return collective


def check_size(ranks: int, nbytes: Number) -> None:
    """Raises CostError if `ranks` is no world size or `nbytes` is negative."""
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise CostError(f"ranks is {ranks!r}; it must be a whole number above 0")
    if not nbytes >= 0:
        raise CostError(f"nbytes is {nbytes}; it can't be negative")
