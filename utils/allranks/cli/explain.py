"""`allranks explain`: what the profiles and dumps of a real job show."""

from __future__ import annotations

import json

import click


@click.command(name="explain")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(paths: tuple[str, ...], as_json: bool) -> None:
    """Explains a job from the files of its ranks: where the time goes, why, and what it would gain.

    PATH is a file or a folder: torch's profiles (.json, .json.gz), flight-recorder dumps, traces of this course. The format is
    found by looking into the file. Exit status: 0 explained, 2 no file says anything of a job.
    """
    from allranks.jobs import explain

    found = explain(paths)
    click.echo(json.dumps(found.to_dict()) if as_json else found.text())
