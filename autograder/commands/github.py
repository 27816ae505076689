"""`allranks github LAB`: the template repository of an assignment in GitHub Classroom."""

from __future__ import annotations

from pathlib import Path

import click

from autograder.commands._course import course_option, known_lab, opened


@click.command(name="github")
@click.argument("lab")
@click.argument("folder", type=click.Path(path_type=Path))
@course_option
def command(lab: str, folder: Path, course: Path | None) -> None:
    """Writes into FOLDER what GitHub Classroom needs to mark LAB: a workflow, the package and the students' notebooks.

    Make FOLDER a template repository. Each push runs `allranks check` on each exercise, and GitHub's reporter adds the points up.
    """
    root = opened(course, "allranks github")
    from autograder import github

    written = github.write(root, known_lab(root, lab), folder)
    click.echo("\n".join(f"{folder / name}" for name in written))
