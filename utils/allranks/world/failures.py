"""What went wrong on the ranks, in one place and once: errors, stuck ranks, dead ranks."""

from __future__ import annotations

import re

from allranks.world.cluster import WorldError
from allranks.world.rank_status import RankStatus, line_text, name_ranks

LONG, CUT, FRAMES = 160, 1500, 12
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
# what torch's C++ puts before a message: [rank1]:[F1121 09:26:34.474286547 file.cpp:207]
_PREFIX = re.compile(r"\[(?:rank\d+\]:\[)?[A-Z]\d{4} [\d:.]+ [\w./]+:\d+\] ?")
# what a newcomer needs to hear with an error that Python words for somebody else
_HINTS = {
    "NameError": "A function that is sent to the ranks sees the notebook's imports and variables, and a `%%ranks` cell "
    "sees what earlier `%%ranks` cells made; neither sees the other's.",
}


class _Report(WorldError):
    """A message that says of itself whose error it is: a notebook shows it without a name in front."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class RanksError(_Report):
    """One or more ranks raised. `errors` holds, by rank, the exception's type, message and the user's frames."""

    def __init__(self, message: str, errors: dict[int, dict]) -> None:
        super().__init__(message)
        self.errors = errors


class RanksStuck(_Report):
    """The ranks did not come back in time, or never can. `statuses` says what each of them was doing."""

    def __init__(self, message: str, statuses: list[RankStatus], errors: dict[int, dict] | None = None) -> None:
        super().__init__(message)
        self.statuses = statuses
        self.errors = errors or {}


class RankDied(WorldError):
    """A rank's process ended while it was in use."""


def describe(errors: dict[int, dict], world_size: int, source: str | None = None) -> str:
    """Every different error once, with the ranks that raised it, the line it is from, and that line's text."""
    groups: dict[str, list[int]] = {}
    said: dict[str, str] = {}
    for rank, error in sorted(errors.items()):
        words = _say(error, source)
        # torch names the rank, the time and ports in its messages: the same error with other numbers is one error
        same = _NUMBER.sub("#", words) if len(words) > LONG else words
        said.setdefault(same, words)
        groups.setdefault(same, []).append(rank)
    blocks = []
    for same, ranks in groups.items():
        who = name_ranks(ranks, world_size)
        blocks.append(f"{who[0].upper()}{who[1:]}: {said[same]}")
    hints = {_HINTS[e["type"]] for e in errors.values() if e["type"] in _HINTS}
    return "\n".join([*blocks, *sorted(hints)])


def _say(error: dict, source: str | None) -> str:
    message = _PREFIX.sub("", error["message"]).strip()
    if len(message) > CUT:
        message = f"{message[:CUT]} [... {len(message) - CUT} characters more]"
    said = f"{error['type']}: {message}" if message else error["type"]
    if error.get("hint"):
        said += f" ({error['hint']})"
    for file, line, name, text in error["frames"][:FRAMES]:
        text = text or line_text(file, line, source)
        inside = f" in {name}" if name and not name.startswith("<") else ""
        said += f"\n    line {line}{inside}: {text}" if text else f"\n    line {line}{inside}"
    if len(error["frames"]) > FRAMES:  # a recursion without an end
        said += f"\n    [... {len(error['frames']) - FRAMES} calls more]"
    return said
