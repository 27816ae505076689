"""What the commands of a class share: the course's folder, its labs, and what nothing can be done without."""

from __future__ import annotations

from pathlib import Path

import click
from allranks.base.extras import require
from allranks.cli._shared import GradeError, course_above

import autograder


def complete(context: click.Context, argument: click.Parameter, typed: str) -> list[str]:
    try:
        course = find_course(context.params.get("course") or Path.cwd())
    except GradeError:
        return []
    return sorted(path.name for path in course.glob("solutions/*") if path.is_dir() and path.name.startswith(typed))


# of every command on a course; `find_course` makes the folder of it
course_option = click.option(
    "--course", type=click.Path(path_type=Path), help="The course's folder. Default: this one, or one above it."
)

# of every command that a section's grader may want for that section alone; `students_of` reads it
section_option = click.option(
    "--section",
    "sections",
    multiple=True,
    metavar="NAME",
    help="Only the students of this section; may be repeated. mine: those whose grader you are.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def find_course(start: Path) -> Path:
    """As `course_above`; a plug-in beside the course's configuration is then autograder.NAME."""
    folder = course_above(start)
    if (own := str(folder / "autograder")) not in autograder.__path__:
        autograder.__path__.append(own)
    return folder


def opened(course: Path | None, command: str) -> Path:
    """The course's folder, for a command that needs nbgrader. Raises MissingExtraError or GradeError."""
    require("nbgrader", command)
    return find_course(course or Path.cwd())


def students_of(course: Path, sections: tuple[str, ...]) -> frozenset[str] | None:
    """The students of these sections; None, for everybody, if none is given. Raises SectionsError."""
    if not sections:
        return None
    from autograder import sections as about

    return about.chosen(course, sections)


def known_lab(course: Path, lab: str) -> str:
    """The lab's name without the slash that a shell's completion adds. Raises GradeError if the course has no such lab."""
    lab = lab.rstrip("/")
    labs = sorted(path.name for path in course.glob("solutions/*") if path.is_dir())
    if lab not in labs:  # only its plain name: nbgrader would record another path as a lab without a name
        raise GradeError(f"There is no lab {lab!r}. There are: {', '.join(labs) or 'none'}.")
    return lab
