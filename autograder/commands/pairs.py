"""`allranks pairs LAB`: two students, one work, points for both."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autograder.commands._course import course_option, json_option, known_lab, opened
from autograder.rows import printable


@click.command(name="pairs")
@click.argument("lab")
@course_option
@json_option
def command(lab: str, course: Path | None, as_json: bool) -> None:
    """Gives the work of one student of a pair to the other too, so that both are graded, and says which pairs can't be.

    Pairs are in autograder/pairs.csv (lab, student, partner), or in both notebooks, partner = "NAME", where the configuration allows it.
    `allranks grade` does the same before it grades.
    """
    root = opened(course, "allranks pairs")
    lab = known_lab(root, lab)
    from autograder import pairs

    found = pairs.settle(root, lab)
    if as_json:
        click.echo(json.dumps({"lab": lab, "shared": found.shared, "told": found.told}))
        return
    for sentence in found.told or ("There are no pairs.",):
        click.echo(printable(sentence))
