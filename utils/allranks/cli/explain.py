"""`allranks explain`: what the profiles and dumps of a real job show."""

from __future__ import annotations

import json
from pathlib import Path

import click

from allranks.cli._shared import write_text


@click.command(name="explain")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the report here, as one HTML page to send.",
)
@click.option("--with-paths", is_flag=True, help="Folders, hosts and addresses too in the HTML page.")
def command(paths: tuple[str, ...], as_json: bool, html: Path | None, with_paths: bool) -> None:
    """Explains a job from the files of its ranks: where the time goes, why, and what it would gain.

    PATH is a file or a folder: torch's profiles (.json, .json.gz), flight-recorder dumps, logs with the watchdog's
    texts or of NCCL_DEBUG=INFO, nvidia-smi topo -m, Nsight Systems' exports, JAX's traces, NCCL's own files, traces
    of this course. The format is found by looking into the file. Exit status: 0 explained, 2 no file says anything of
    a job.
    """
    from allranks.jobs import explain

    found = explain(paths)
    if html is not None:
        write_text(html, found.html(with_paths))
    click.echo(json.dumps(found.to_dict()) if as_json else found.text())
