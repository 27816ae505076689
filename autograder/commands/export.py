"""`allranks export LAB SYSTEM`: points by exercise, in the file that Canvas or Moodle imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autograder.commands._course import course_option, known_lab, opened, section_option, students_of
from autograder.rows import printable


@click.command(name="export")
@click.argument("lab")
@click.argument("system", type=click.Choice(["canvas", "moodle"]))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The file. Default: LAB-SYSTEM.csv here."
)
@click.option(
    "--roster",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What Canvas exported: its students, numbers and columns are used.",
)
@click.option("--sum", "as_sum", is_flag=True, help="One column with the sum, less the penalty for being late.")
@click.option("--column", metavar="NAME", help="With --sum: the column's name, such as one that Canvas has already.")
@click.option("--zero-missing", is_flag=True, help="Who handed in nothing gets 0. Default: no mark.")
@section_option
@course_option
def command(
    lab: str,
    system: str,
    output: Path | None,
    roster: Path | None,
    as_sum: bool,
    column: str | None,
    zero_missing: bool,
    sections: tuple[str, ...],
    course: Path | None,
) -> None:
    """Writes the points of LAB for another system. An empty cell means that there is no mark, not 0 points.

    `nbgrader export` writes all labs with nbgrader's own columns, and the exercises behind them.
    """
    root = opened(course, "allranks export")
    lab = known_lab(root, lab)
    from autograder.sections import overview

    found = overview(root, lab, students_of(root, sections))
    path, count, told = write_points(found, system, output, roster, as_sum, column, zero_missing)
    for remark in told:
        click.echo(printable(remark), err=True)
    click.echo(f"Written to {path}: {count} student{'s' * (count != 1)}.")


def write_points(
    found: Any,
    system: str,
    output: Path | None,
    roster: Path | None,
    as_sum: bool,
    column: str | None,
    zero_missing: bool,
) -> tuple[Path, int, list[str]]:
    """Writes the points of a class for a system; the file, how many students it has, and what it does not say."""
    from autograder import exports

    path = output or Path(f"{found.lab}-{system}.csv")
    count, told = exports.write(found, system, path, roster, exports.Wanted(as_sum, column, zero_missing))
    return path, count, told
