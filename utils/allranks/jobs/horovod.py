"""Horovod's warnings of stalled tensors: which ranks did not submit what the others wait for.

Seen: Horovod 0.11 to 0.28 (common/operations.cc and common/stall_inspector.cc: "[missing ranks: 1]", "[ready ranks: 0,
2]", and a list behind "Missing ranks:" or "Stalled ranks:"), as in issues of horovod/horovod.
"""

from __future__ import annotations

import re

from allranks.base.errors import capital, counted, name_ranks
from allranks.jobs.job import MAX_RANKS, Cause

__all__ = ["STALLED", "HorovodStalls"]

STALLED = "One or more tensors were submitted to be reduced"
MOST = 10_000  # tensors
_OF_TENSOR = re.compile(r"([^\s:,\[\]]+) \[(missing|ready) ranks: ([\d, ]{1,4000})\]")
_OF_RANK = re.compile(r"^(?:\W*\[[\w, ]+\](?:<\w+>:?)?)?\s*(\d{1,7}): \[([^\]]{1,4000})")
_LISTED = ("Missing ranks:", "Stalled ranks:")


class HorovodStalls:
    """Collects the lines of one file."""

    def __init__(self) -> None:
        self.missing: dict[int, dict[str, None]] = {}  # of each rank: the tensors that it did not submit
        self.ready: dict[str, set[int]] = {}
        self.listing = 0  # lines of a list of ranks that may follow

    def take(self, line: str) -> bool:
        """Files a line that names ranks, or a line of the list below such a head; whether it is Horovod's."""
        listed = bool(self.listing)
        for tensor, kind, ranks in _OF_TENSOR.findall(line)[:MOST]:
            numbers = [int(n) for n in re.findall(r"\d{1,7}", ranks) if int(n) < MAX_RANKS]
            if kind == "ready" and len(self.ready) < MOST:
                self.ready.setdefault(tensor, set()).update(numbers)
            for number in numbers if kind == "missing" else ():
                self._misses(number, tensor)
        if line.rstrip().endswith(_LISTED):
            self.listing = 1000
        elif self.listing:
            found = _OF_RANK.match(line)
            self.listing = self.listing - 1 if found or line.rstrip().endswith((",", "...]", "]")) else 0
            if found and int(found[1]) < MAX_RANKS:
                for tensor in re.findall(r"[^\s,]+", found[2])[:100]:
                    if tensor != "...":
                        self._misses(int(found[1]), tensor)
        return listed or STALLED in line or _OF_TENSOR.search(line) is not None

    def _misses(self, rank: int, tensor: str) -> None:
        mine = self.missing.setdefault(rank, {}) if rank in self.missing or len(self.missing) < MOST else {}
        if len(mine) < 100:
            mine[tensor] = None

    def causes(self) -> tuple[Cause, ...]:
        """The ranks that did not submit a tensor; of texts that name who did, only who waits."""
        advice = (
            "Horovod warns after 60 s: another number of batches, a branch that only some ranks take, other names of "
            "tensors, or a rank that is busy (validation, checkpoint) or gone"
        )
        if self.missing:
            ranks = sorted(self.missing)
            tensors = list(self.missing[ranks[0]])
            first = f"{counted(len(tensors), 'tensor')}, {tensors[0]} the first"
            words = f"{capital(name_ranks(ranks))} did not submit what the other ranks wait for ({first})."
            return (Cause(words, advice, None, 0.85, "missing_rank", ranks[0] if len(ranks) == 1 else None),)
        if self.ready:
            tensor, came = max(self.ready.items(), key=lambda item: len(item[1]))
            gaps = sorted(set(range(max(came, default=0))) - came)  # ranks above the highest may be missing, too
            others = name_ranks(gaps) if gaps else "the other ranks"
            words = f"{capital(name_ranks(sorted(came)))} wait for {others} to submit {tensor}."
            kind, rank = ("missing_rank" if gaps else "hang"), (gaps[0] if len(gaps) == 1 else None)
            return (Cause(words, advice, None, 0.7, kind, rank),)
        return ()
