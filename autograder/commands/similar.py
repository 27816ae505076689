"""`allranks similar LAB`: which submissions look alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from allranks.base.variants import FILE

from autograder.commands._course import course_option, json_option, known_lab, opened, section_option, students_of
from autograder.rows import printable


@click.command(name="similar")
@click.argument("lab")
@click.option(
    "--least",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="The part of the shorter answer that a pair must share.",
)
@click.option(
    "--earlier",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Also compare with the course folder of an earlier term; may be repeated.",
)
@section_option
@course_option
@json_option
def command(
    lab: str,
    least: float,
    earlier: tuple[Path, ...],
    sections: tuple[str, ...],
    course: Path | None,
    as_json: bool,
) -> None:
    """Names the pairs of students whose code is alike, without the released text and without what many wrote.

    Names, numbers and comments don't count. A pair is a reason to look, not a proof. With --section: the pairs of which
    one is in it, out of the whole class.
    """
    root = opened(course, "allranks similar")
    lab = known_lab(root, lab)
    from autograder import similarity

    section = students_of(root, sections)
    found, told = similarity.compare(root, lab, least, earlier)
    found = [pair for pair in found if section is None or not section.isdisjoint(pair.students)]
    submitted = root / "autograder" / "submitted"
    named = sorted({one for pair in found for one in pair.students if (submitted / one / lab).is_dir()})
    drawn: dict[str, str] = {}
    if (root / "solutions" / lab / FILE).exists():
        from autograder import variants

        drawn = variants.beside(root, lab, named)
    if as_json:
        alike: list[dict[str, Any]] = [
            {"students": pair.students, "shared": pair.shared, "of": pair.of} for pair in found
        ]
        alike = [one | ({"variants": [drawn.get(s, "") for s in one["students"]]} if drawn else {}) for one in alike]
        click.echo(json.dumps({"lab": lab, "pairs": alike, "unread": told}))
        return
    for sentence in told:
        click.echo(printable(sentence), err=True)
    for pair in found:
        click.echo(
            printable(f"{pair.share:4.0%}  {pair.students[0]} and {pair.students[1]}: {pair.shared} of {pair.of}")
        )
        for student in (one for one in pair.students if one in drawn):
            click.echo(printable(f"      {student}: {drawn[student]}"))
    if not found:
        click.echo("No pair is alike.")
