"""`allranks class`: a lab, or the whole class on the map. Its file has another name: `class` is a word of Python."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from allranks.cli._shared import CommandError

from autograder.commands._course import course_option, json_option, known_lab, opened, section_option, students_of


@click.command(name="class")
@click.argument("lab", required=False)
@course_option
@section_option
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write the page to FILE.")
@json_option
def command(lab: str | None, course: Path | None, sections: tuple[str, ...], page: Path | None, as_json: bool) -> None:
    """Shows who is stuck where: points by exercise, mistakes by cause, the hardest cases, and what waits to be read.

    Without LAB it shows the class over all labs on the map of the story: which idea who has not proved, why, and
    since when. It reads what `allranks grade` recorded, and changes nothing. The exit status is 2 if there is nothing
    to show.
    """
    root = opened(course, "allranks class")
    students = students_of(root, sections)
    shown: ModuleType
    found: Any
    if lab is None:
        from autograder import mastery

        shown, found = mastery, mastery.mastery(root, students)
    else:
        from autograder import class_page
        from autograder.sections import overview

        shown, found = class_page, overview(root, known_lab(root, lab), students)
    if page is not None:
        try:
            page.write_text(shown.as_html(found), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{page} can't be written ({error.strerror}).") from None
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    elif page is None:
        click.echo(shown.as_text(found))
    else:
        click.echo(f"Written to {page}.")
