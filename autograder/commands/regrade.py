"""`allranks regrade LAB`: requests to mark again, and marking again with points given by hand kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from autograder.commands._course import (
    GradeError,
    course_option,
    json_option,
    known_lab,
    opened,
    section_option,
    students_of,
)
from autograder.commands.grade import grade, in_threads, rehearsed
from autograder.rows import printable

SHOWN_CHARACTERS = 300


@click.command(name="regrade")
@click.argument("lab")
@course_option
@click.option(
    "--student", "students", multiple=True, metavar="NAME", help="Mark this student's work again; may be repeated."
)
@section_option
@click.option("--answer", default="", metavar="TEXT", help="A sentence for the student's feedback page.")
@click.option("--dry-run", is_flag=True, help="Only show what would change, and which marks would go down.")
@json_option
def command(
    lab: str,
    course: Path | None,
    students: tuple[str, ...],
    sections: tuple[str, ...],
    answer: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Lists who asks for a regrade of LAB, or marks the work of --student again and shows the points before and after.

    A student asks by a file regrade.md beside the notebook, handed in again. Points and comments given by hand stay; who had it marked
    again, and when, is recorded. --dry-run alone is about all who wait. The exit status is 1 if some work could not be marked again; it
    then keeps the marks that it has.
    """
    root = opened(course, "allranks regrade")
    lab = known_lab(root, lab)
    from autograder import regrades as about

    if students:
        sys.exit(_mark_again(root, lab, students, answer, dry_run, as_json))
    section = students_of(root, sections)
    found = [one for one in about.requests(root, lab) if section is None or one.student in section]
    if dry_run and (waiting := tuple(one.student for one in found if one.state == about.WAITS)):
        sys.exit(_mark_again(root, lab, waiting, answer, dry_run, as_json))
    if as_json:
        click.echo(json.dumps({"lab": lab, "requests": [vars(one) for one in found]}))
        return
    wait = sum(one.state == about.WAITS for one in found)
    click.echo(f"{wait} request{'s' * (wait != 1)} wait{'s' * (wait == 1)}." if found else "Nobody asks.")
    for one in found:
        score = "" if one.score is None else f", {one.score:g} points"
        asked = f", {one.asked}" if one.asked else ""
        click.echo(printable(f"{one.student}: {one.state}{asked}{score}{f'. {one.told}' if one.told else ''}"))
        if one.words:
            short = " ".join(one.words.split())
            click.echo(printable(f"  {short[:SHOWN_CHARACTERS]}{' ...' if len(short) > SHOWN_CHARACTERS else ''}"))


def _mark_again(root: Path, lab: str, students: tuple[str, ...], answer: str, dry_run: bool, as_json: bool) -> int:
    from autograder import regrades as about

    done: list[dict[str, Any]] = []
    failed = []
    with rehearsed(root, lab, dry_run) as folder:
        for student in dict.fromkeys(students):
            try:
                done.append(_one(about, folder, lab, student, answer))
            except (about.RegradeError, GradeError) as error:
                failed.append(str(error))
    down = [entry["student"] for entry in done if entry["after"] < entry["before"]]
    if as_json:
        click.echo(json.dumps({"lab": lab, "dry_run": dry_run, "students": done, "down": down, "failed": failed}))
        return 1 if failed else 0
    for entry in done:
        same = "" if entry["changes"] else ": nothing changes"
        click.echo(printable(f"{entry['student']}: {entry['before']:g} -> {entry['after']:g} points{same}"))
        for line in entry["changes"]:
            click.echo(printable(f"  {line}"))
    for sentence in failed:
        click.echo(printable(sentence), err=True)
    if down:
        click.echo(printable(f"{len(down)} {'would go' if dry_run else 'went'} down: {', '.join(down)}."))
    if dry_run:
        click.echo("Nothing was written.")
    elif done:
        click.echo(f"Then nbgrader generate_feedback {lab} --force --student NAME, and release_feedback.")
    return 1 if failed else 0


def _one(about: Any, root: Path, lab: str, student: str, answer: str) -> dict[str, Any]:
    before = about.marks_of(root, lab, student)
    with about.keeping(root, lab, student), in_threads(1) as judges:
        (row,) = grade(root, lab, [student], judges, force=True)
        if row["score"] is None:
            raise about.RegradeError(f"{student} keeps the marks: {row['reason']}")
    return about.settle(root, lab, student, before, answer)
