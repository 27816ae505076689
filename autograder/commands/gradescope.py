"""`allranks gradescope LAB`: the autograder that Gradescope runs, as a zip file."""

from __future__ import annotations

from pathlib import Path

import click

from autograder.commands._course import course_option, known_lab, opened


@click.command(name="gradescope")
@click.argument("lab")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="ZIP", help="The file. Default: LAB-gradescope.zip here."
)
@click.option(
    "--trust-submissions",
    is_flag=True,
    help="Mark without a sandbox. A submission can then read and write all that is in the container, its results too.",
)
@click.option(
    "--visibility",
    type=click.Choice(["visible", "after_due_date", "after_published", "hidden"]),
    default="visible",
    show_default=True,
    help="When students see the tests.",
)
@course_option
def command(lab: str, output: Path | None, trust_submissions: bool, visibility: str, course: Path | None) -> None:
    """Packs the autograder of LAB for Gradescope: upload the zip file in "Configure autograder".

    It marks with the judge and the sandbox of `allranks grade`, and gives the same points. Where the container allows no user
    namespaces it marks nothing and says so, unless it was packed with --trust-submissions.
    """
    root = opened(course, "allranks gradescope")
    lab = known_lab(root, lab)
    path = output or Path(f"{lab}-gradescope.zip")
    from autograder import gradescope

    gradescope.pack(root, lab, path, "none" if trust_submissions else "bubblewrap", visibility)
    click.echo(f"Written to {path}: {path.stat().st_size >> 10} KiB.")
