"""`allranks extend LAB STUDENT HOURS`: more time for one student."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from autograder.commands._course import course_option, known_lab, opened


@click.command(name="extend")
@click.argument("lab")
@click.argument("student")
@click.argument("hours", type=click.FloatRange(0, 24 * 366))
@course_option
def command(lab: str, student: str, hours: float, course: Path | None) -> None:
    """Gives STUDENT so many HOURS more than the due date of LAB, in all; 0 takes the extension back.

    Work that is graded already keeps its penalty until `allranks course run LAB` settles it; nothing is graded again.
    """
    root = opened(course, "allranks extend")
    from autograder import extensions

    due = extensions.extend(root, known_lab(root, lab), student, timedelta(hours=hours))
    click.echo(f"{student} has until {due}.")
    click.echo(f"Work that is graded already keeps its penalty until `allranks course run {lab}`.", err=True)
