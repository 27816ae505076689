"""The known answers of the puzzles: answers/ID/NAME.py, and near copies of these in answers/ID/changed.toml.

The first line says what the verdict must be: `# right`, or `# wrong: CODE`, perhaps with `at LINE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from changed import changed

FOLDER = Path(__file__).parent / "exercises" / "puzzles" / "answers"


@dataclass(frozen=True)
class PuzzleAnswer:
    """One answer: the puzzle, its name, its text, and the file that holds it."""

    puzzle: str
    name: str
    text: str
    path: Path

    def __str__(self) -> str:
        return f"{self.puzzle}/{self.name}"


def puzzle_answers() -> list[PuzzleAnswer]:
    """All of them, by puzzle and name."""
    files = [
        PuzzleAnswer(path.parent.name, path.stem, path.read_text(encoding="utf-8"), path)
        for path in FOLDER.glob("*/*.py")
    ]
    near = [answer for path in FOLDER.glob("*/changed.toml") for answer in _of_changes(path)]
    return sorted([*files, *near], key=str)


def _of_changes(path: Path) -> list[PuzzleAnswer]:
    def base(name: str) -> str:
        return (path.parent / f"{name}.py").read_text(encoding="utf-8").partition("\n")[2]

    return [
        PuzzleAnswer(path.parent.name, name, f"{entry['first_line']}\n{text}", path)
        for name, entry, text in changed(path, base)
    ]
