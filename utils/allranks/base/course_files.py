"""Where the course's files are: in a checkout, or beside this package where it was installed from a wheel."""

from __future__ import annotations

from pathlib import Path

FIRST_CHAPTER = Path("chapters/1_first_hours/00_start_here.ipynb")
PATTERNS = ("TUTOR.md", "chapters/*/*.ipynb", "labs/*/*.ipynb")
_PACKAGE = Path(__file__).resolve().parents[1]


def checkout() -> Path | None:
    """The checkout that this package is run from; None if it was installed from a wheel."""
    root = _PACKAGE.parents[1]
    return root if (root / FIRST_CHAPTER).is_file() and (root / "pyproject.toml").is_file() else None


def given() -> Path | None:
    """The folder with chapters/ and labs/ as they are given to learners; None if there are none."""
    for folder in (checkout(), _PACKAGE / "course" / "given"):
        if folder is not None and (folder / FIRST_CHAPTER).is_file():
            return folder
    return None


def teacher() -> Path | None:
    """The folder that holds the package autograder/; None if there is none."""
    for folder in (checkout(), _PACKAGE / "course" / "teacher"):
        if folder is not None and (folder / "autograder" / "nbgrader_config.py").is_file():
            return folder
    return None


def notebooks(folder: Path) -> list[Path]:
    """The course's notebooks in `folder` and its page for assistants, as paths relative to it, in order."""
    return sorted(path.relative_to(folder) for pattern in PATTERNS for path in folder.glob(pattern))
