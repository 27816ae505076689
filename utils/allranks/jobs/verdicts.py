"""What other tools found out about ranks, where a log has their words: who is missing, hung or slow.

The ranks that torchfrtrace calls culprits are not taken over: it compares with any rank. Seen: torch's torchfrtrace and
debug server (2.5 to 2.13), NVIDIA's resiliency extension, Megatron's --log-straggler.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from allranks.base.errors import counted, name_ranks
from allranks.jobs.complaints import shortened
from allranks.jobs.job import MAX_RANKS, Cause

__all__ = ["Verdicts"]

MOST = 100  # different verdicts of a file
SLOWER = 1.05  # a rank that takes so many times as long as the fastest is worth a word
# one number after "ranks:" without brackets may be how many there are
_NAMED = re.compile(
    r"(?i)\b(missing|absent|affected|stalled|hung|stuck|lagging|straggl\w+|slow(?:er|est)?|unresponsive|"
    r"unhealthy)(?:[ _]ranks?\W{1,4}[\[{(]\W?(\d{1,7}(?:, ?\d{1,7})*)|[ _]rank\W{1,3}(\d{1,7})\b|"
    r"[ _]ranks\W{1,3}(\d{1,7}(?:, ?\d{1,7})+))"
)
_COLUMN = re.compile(r"\bmissing_ranks\s*$")  # of a table, whose rows end with a set
_SET = re.compile(r"\{(\d{1,7}(?:, ?\d{1,7})*)\}[^\w{}]*\w*$")
_SEQUENCE = re.compile(r"ranks joining collective\D{1,25}(\d{1,18})")
_FIELD = re.compile(r"^\W*(collective|group info): (\S.{0,80}?)\s*$")
_ROUND_TRIP = re.compile(r"MnRtt/Rnk: ([\d.]{1,12})ms/(\d{1,7})\b.*MxRtt/Rnk: ([\d.]{1,12})ms/(\d{1,7})\b")
_SLOW = re.compile(r"(?i)straggl|slow|performance")


@dataclass
class Verdicts:
    """Collects the verdicts of one file."""

    of: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)  # the word and the ranks: the evidence
    context: dict[str, str] = field(default_factory=dict)  # of the call that is reported
    column: bool = False
    slowest: Counter[int] = field(default_factory=Counter)  # by Megatron's reports
    longest: tuple[float, float, int] = (0.0, 0.0, 0)  # the ratio, milliseconds and the fastest rank, of the worst one

    def take(self, line: str, number: int) -> bool:
        """Files a line that names ranks, or the call that the next ones tell of; whether it was of use."""
        if sequence := _SEQUENCE.search(line):
            self.context = {"call": sequence[1]}
            return True
        if found := _FIELD.match(line):
            self.context[found[1]] = found[2]
            return True
        if times := _ROUND_TRIP.search(line):
            return self._round_trip(float(times[1] or 0), int(times[2]), float(times[3]), int(times[4]))
        if _COLUMN.search(line):
            self.column = True
            return True
        word, ranks = "", ""
        if named := _NAMED.search(line):
            word, ranks = named[1].lower(), next(part for part in named.groups()[1:] if part)
        elif self.column and (row := _SET.search(line)):
            word, ranks = "missing", row[1]
        numbers = tuple(sorted({int(n) for n in re.findall(r"\d+", ranks) if int(n) < MAX_RANKS}))
        if not numbers:
            return False
        word = "slower than the others" if _SLOW.search(line) else word
        where = "".join(f", {name} {value}" for name, value in self.context.items()) if word == "missing" else ""
        if len(self.of) < MOST:
            self.of.setdefault((word, numbers), f"line {number} says: {shortened(line)}{where}")
        return True

    def _round_trip(self, least: float, fast: int, most: float, slow: int) -> bool:
        if max(fast, slow) < MAX_RANKS and least > 0:
            self.slowest[slow] += 1
            self.longest = max(self.longest, (most / least, most, fast))
        return True

    def causes(self) -> tuple[Cause, ...]:
        """A cause for each verdict, as its tool's word: the tool may err."""
        found = []
        for (word, ranks), evidence in list(self.of.items())[:3]:
            words = f"A report in this text names {name_ranks(ranks)} as {word}."
            kind, sure = ("straggler", 0.6) if word.startswith("slower") else ("missing_rank", 0.7)
            where = "it stands" if len(ranks) == 1 else "they stand"
            why = f"{evidence}; look where {where}, and at the first error there. The files that the tool read say more"
            found.append(Cause(words, why, None, sure, kind, ranks[0] if len(ranks) == 1 else None))
        if self.slowest:
            ratio, most, fast = self.longest
            rank, times = self.slowest.most_common(1)[0]
            total = self.slowest.total()
            if ratio >= SLOWER and times > total / 2:
                words = f"Rank {rank} is the slowest in {times} of {counted(total, 'report')} of Megatron's."
                why = (
                    f"in the worst, an iteration takes {most:,.0f} ms there and {most / ratio:,.0f} ms on rank {fast}; "
                )
                why += "waits inside what is timed count too: compare the ranks' clocks, power and temperature"
                found.append(Cause(words, why, None, 0.5, "straggler", rank))
        return tuple(found)
