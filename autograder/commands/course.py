"""`allranks course init FOLDER`: a course folder for a teacher, which `allranks grade` takes."""

from __future__ import annotations

import json
from pathlib import Path

import click
from allranks.course import teaching

from autograder.commands import _marking, _passback, _privacy, _term
from autograder.commands._course import course_option, known_lab, opened


@click.group(name="course")
def command() -> None:
    """A teacher's course: its folder, a lab from collecting to the points, sections, rubric items, due dates, variants, one
    student's data."""


for one in (
    *(_term.run, _term.due, _term.late, _privacy.forget, _privacy.export),
    *(_marking.sections, _marking.rubric),
    *(_passback.connect, _passback.roster, _passback.passback),
):
    command.add_command(one)


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
    """Makes FOLDER a course in nbgrader's layout: labs/, solutions/, and autograder/ with the configuration and a
    secret.

    `allranks grade LAB --course FOLDER` grades what lies in autograder/submitted/STUDENT/LAB/.
    """
    made = teaching.init(folder.absolute(), tuple(lab.rstrip("/") for lab in labs), name, answers)
    told = {"folder": str(made.folder), "labs": made.labs, "answers": made.answers}
    click.echo(json.dumps(told) if as_json else made.text())


@command.command(name="variants")
@click.argument("lab")
@click.option("--off", is_flag=True, help="Everybody has the same exercises again.")
@click.option("--student", "students", multiple=True, metavar="NAME", help="Only show this student's; may be repeated.")
@course_option
def variants(lab: str, off: bool, students: tuple[str, ...], course: Path | None) -> None:
    """Gives each student of LAB a variant: a rank that is slow, a size or a root, drawn from the secret and the
    student's name.

    It writes variants.json beside the lab's notebooks, in solutions/ and labs/: hand the lab out after that. `check`
    shows each student the variant, and `allranks grade` marks it.
    """
    from allranks.base import variants as files

    root = opened(course, "allranks course variants")
    lab = known_lab(root, lab)
    if off:
        there = files.remove(root, lab)
        click.echo(
            f"{lab} is the same for everybody{'' if there else ', as before'}. Grade what is graded already "
            "with --force."
        )
        return
    from autograder import variants as about

    if students:
        for student, drawn in about.of_students(root, lab, [files.name_of(name) for name in students]).items():
            click.echo("\n".join(f"{student}: {name}: {brief}" for name, brief in drawn.items()))
        return
    names = about.switch_on(root, lab)
    click.echo(
        f"Each student of {lab} has a variant of {', '.join(names)}. Hand out labs/{lab} with its variants.json."
    )
