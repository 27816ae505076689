"""`allranks update`: the notebooks of the installed version, merged into the learner's."""

from __future__ import annotations

import json
from pathlib import Path

import click

from allranks.course import folder


@click.command(name="update")
@click.argument("named", metavar="[FOLDER]", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as one JSON object.")
def command(named: Path | None, as_json: bool) -> None:
    """Merges the installed version's notebooks into yours, cell by cell, and keeps what you wrote.

    FOLDER is the folder of your notebooks. Default: this one, or one above it, else ~/all-ranks. Every notebook that is
    merged is first copied, as it was, to .allranks/before in that folder.
    """
    report = folder.update((named or folder.find(Path.cwd()) or folder.home_folder()).resolve())
    click.echo(json.dumps(report.to_dict()) if as_json else report.text())
