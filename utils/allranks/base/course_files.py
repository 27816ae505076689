"""Where the course's files are: in a checkout, or beside this package where it was installed from a wheel."""

from __future__ import annotations

from pathlib import Path

FIRST_CHAPTER = Path("chapters/1_first_hours/00_start_here.ipynb")
# What a learner gets. Relative links of these files lead to these files only, and so do the names of files that
# notebooks open: tests/house/test_given_links.py. setup.py puts the same files into the wheel.
PATTERNS = (
    "TUTOR.md",
    "chapters/*/*.ipynb",
    "chapters/scripts/*.py",
    "chapters/scripts/*.txt",
    "labs/*/*.ipynb",
    *(f"docs/{name}.md" for name in ("benchmarks", "cost_model", "cost_model_details", "labs", "race", "validation")),
    "docs/measured/README.md",
    *(f"docs/measured/{name}" for name in ("serving.csv", "step_times.csv", "validation.svg", "validation_steps.svg")),
    "docs/pictures/cost_*.svg",
)
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


def for_learners(folder: Path) -> list[Path]:
    """What learners get of the files in `folder`: notebooks and what they lead to, as paths in it, in order."""
    found = (path for pattern in PATTERNS for path in folder.glob(pattern))
    return sorted(path.relative_to(folder) for path in found if path.is_file())
