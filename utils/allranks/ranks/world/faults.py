"""Faults that are made on purpose: what to break, on which rank, in the next call."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.ranks.world.cluster import WorldError

KINDS = ("kill", "pause", "slow", "drop_message")


@dataclass(frozen=True)
class InjectedFault:
    """One fault. "kill" and "pause" are signals from the notebook; the others happen inside the rank."""

    rank: int
    kind: str
    after_s: float
    delay_s: float

    @property
    def is_signal(self) -> bool:
        """Whether the fault is a signal that the notebook sends; other faults happen in the rank."""
        return self.kind in ("kill", "pause")

    @classmethod
    def checked(cls, rank: int, kind: str, after_s: float, delay_s: float, ranks: int) -> InjectedFault:
        """The fault. Raises WorldError if an argument is wrong."""
        if kind not in KINDS:
            raise WorldError(f"kind={kind!r} is unknown; a fault is one of {', '.join(KINDS)}.")
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < ranks:
            raise WorldError(f"rank={rank!r}: this world has the ranks 0 to {ranks - 1}.")
        for name, seconds in (("after_s", after_s), ("delay_s", delay_s)):
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e6:
                raise WorldError(f"{name}={seconds!r}: it is a number of seconds, 0 or more.")
        return cls(rank, kind, float(after_s), float(delay_s))
