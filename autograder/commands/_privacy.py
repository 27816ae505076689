"""`allranks course forget` and `export`: what a course holds about one student, removed or given to the student."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from allranks.cli._shared import CommandError

from autograder.commands._course import course_option, json_option, opened
from autograder.rows import printable


def _named(student: str) -> str:
    name = sys.stdin.readline().rstrip("\n") if student == "-" else student
    if not name:
        raise CommandError("Standard input has no student's name.")
    return name


@click.command(name="forget")
@click.argument("student")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@course_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; needs --yes or --dry-run.")
def forget(student: str, dry_run: bool, yes: bool, course: Path | None, as_json: bool) -> None:
    """Removes what the course holds about STUDENT: work, marks, comments, pages and lines, here and in the exchange.

    STUDENT is the name in the course; - reads it from standard input, so that `ps` shows it to nobody. A partner's
    copy of a work of both stays. docs/privacy.md says what else there is, such as files that you exported.
    """
    root = opened(course, "allranks course forget")
    name = _named(student)
    from autograder import privacy as about

    found = about.held(root, name)
    if as_json and not (yes or dry_run):
        raise CommandError("--json asks nothing: give --yes or --dry-run too.")
    if not as_json:
        click.echo("\n".join(map(printable, found.told())))
    if not (yes or dry_run):
        click.confirm(printable(f"Remove all of it? {name} can't be brought back but from a backup."), abort=True)
    if not dry_run:
        about.forget(root, found)
    if as_json:
        click.echo(json.dumps({"student": name, "dry_run": dry_run, "held": found.told()}))
    else:
        click.echo("Nothing was removed." if dry_run else "All of it was removed.")


@click.command(name="export")
@click.argument("student")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="ZIP", help="Default: STUDENT.zip here.")
@course_option
@json_option
def export(student: str, output: Path | None, course: Path | None, as_json: bool) -> None:
    """Writes what the course holds about STUDENT into a zip file, for the student: work, marks, comments, pages.

    STUDENT is the name in the course; - reads it from standard input, so that `ps` shows it to nobody.
    """
    root = opened(course, "allranks course export")
    name = _named(student)
    path = output or Path(f"{name}.zip")
    from autograder import privacy

    found = privacy.export(root, name, path)
    if as_json:
        click.echo(json.dumps({"student": name, "file": str(path), "held": found.told()}))
    else:
        click.echo(printable(f"Written to {path}: {len(found.told())} places."))
