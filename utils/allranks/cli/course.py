"""`allranks course init FOLDER`: a course folder for a teacher, which `allranks grade` takes."""

from __future__ import annotations

import json
from pathlib import Path

import click

from allranks.course import teaching


@click.group(name="course")
def command() -> None:
    """A teacher's own course folder, outside of this repository."""


@command.command(name="init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--lab", "labs", multiple=True, metavar="LAB", help="Take this lab; may be repeated. Default: all.")
@click.option("--name", default="allranks", show_default=True, help="The course's name in nbgrader.")
@click.option(
    "--answers",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The folder solutions/ of a checkout, for the answers. Default: that of the checkout that allranks runs from.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was made as one JSON object.")
def init(folder: Path, labs: tuple[str, ...], name: str, answers: Path | None, as_json: bool) -> None:
    """Makes FOLDER a course in nbgrader's layout: labs/, solutions/, and autograder/ with the configuration and a secret.

    `allranks grade LAB --course FOLDER` grades what lies in autograder/submitted/STUDENT/LAB/.
    """
    made = teaching.init(folder.absolute(), tuple(lab.rstrip("/") for lab in labs), name, answers)
    told = {"folder": str(made.folder), "labs": made.labs, "answers": made.answers}
    click.echo(json.dumps(told) if as_json else made.text())
