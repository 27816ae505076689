"""The errors of a call on the ranks: a rank raised, hangs, or died. Each different error is described once."""

from __future__ import annotations

import re

from allranks.base.errors import WIDTH, capital, name_ranks, wrapped
from allranks.ranks.world.cluster import WorldError
from allranks.ranks.world.rank_status import RankStatus, line_text

LONG, CUT, FRAMES = 160, 1500, 12
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
# what torch's C++ puts before a message: [rank1]:[F1121 09:26:34.474286547 file.cpp:207]
_PREFIX = re.compile(r"\[(?:rank\d+\]:\[)?[A-Z]\d{4} [\d:.]+ [\w./]+:\d+\] ?")
# what a newcomer must know about an error, in addition to Python's words
_HINTS = {
    "NameError": "A function that is sent to the ranks sees the notebook's imports and variables, and a `%%ranks` cell "
    "sees what earlier `%%ranks` cells made; neither sees the other's.",
}


class _Report(WorldError):
    """An error whose message names the ranks and their errors: a notebook shows it without the class's name."""

    def _render_traceback_(self) -> list[str]:
        return ["\n".join(part for line in str(self).split("\n") for part in _between_words(line))]


def _between_words(line: str) -> list[str]:
    """The line, in pieces if it is too long for a notebook, which would break it inside a word."""
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return wrapped(line.strip(), indent, f"{indent}    ")


class RanksError(_Report):
    """One or more ranks raised an error.

    `errors` holds, by rank, its type, its message and the frames of the user's code.
    """

    def __init__(self, message: str, errors: dict[int, dict]) -> None:
        super().__init__(message)
        self.errors = errors


class RanksStuck(_Report):
    """Ranks did not return in time, or never can. `statuses` holds what each of them was doing."""

    def __init__(self, message: str, statuses: list[RankStatus], errors: dict[int, dict] | None = None) -> None:
        super().__init__(message)
        self.statuses = statuses
        self.errors = errors or {}


class RankDied(WorldError):
    """The process of a rank, or of the controller, ended during a call."""


def describe(errors: dict[int, dict], world_size: int, source: str | None = None) -> str:
    """Every different error once, with the ranks that raised it and the lines of the user's code that it came from."""
    groups: dict[str, list[int]] = {}
    said: dict[str, str] = {}
    for rank, error in sorted(errors.items()):
        words = _say(error, source)
        # torch puts ranks, times and ports into messages: errors that differ only in numbers count as the same error
        same = _NUMBER.sub("#", words) if len(words) > LONG else words
        said.setdefault(same, words)
        groups.setdefault(same, []).append(rank)
    blocks = []
    for same, ranks in groups.items():
        blocks.append(f"{capital(name_ranks(ranks, world_size))}: {said[same]}")
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
    if len(error["frames"]) > FRAMES:  # for example, an endless recursion
        said += f"\n    [... {len(error['frames']) - FRAMES} calls more]"
    return said
