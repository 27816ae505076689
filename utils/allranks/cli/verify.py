"""`allranks verify`: proves a machine in ten minutes, and writes a record of it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from allranks.cli._shared import Size
from allranks.cli.doctor import MARKS
from allranks.cli.lab import course_directory

if TYPE_CHECKING:
    from allranks.machine.verify import Outcome

_MARKS = {**MARKS, "skip": click.style("skip", fg="yellow")}
STOPPED = 130  # as a shell says it of a program that Ctrl-C ended


@click.command()
@click.option("--gpus", type=int, help="How many GPUs to use; more ranks than GPUs share them (NCCL 2.30).")
@click.option("--ranks", type=int, help="The world size. Default: one a GPU, 2 on a single GPU, 4 on the CPU.")
@click.option("--only", help="Only these phases, by comma: machine, calls, faults, sweeps, chapters.")
@click.option("--legacy", is_flag=True, help="A second pass with torch's older NCCL backend (torch 2.15 and later).")
@click.option("--minutes", type=float, default=10, show_default=True, help="How long a pass may take.")
@click.option("--max-bytes", type=Size(), help="The largest size of a sweep. Default: 4GiB on GPUs, 16MiB on the CPU.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the record. Default: docs/verified/.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(gpus, ranks, only, legacy, minutes, max_bytes, out, as_json) -> None:
    """Prove this machine in ten minutes, with GPUs or without, and write a record (JSON and Markdown).

    The exit status is 1 if a step failed, 2 if nothing could begin, and 130 if it was stopped.
    """
    from dataclasses import replace

    from allranks.machine.verify import choose, verify
    from allranks.machine.verify.run import record_folder, with_course

    try:
        course = course_directory()
    except click.ClickException:
        course = None
    plan = with_course(replace(choose(ranks, gpus, minutes), max_bytes=max_bytes), course)
    folder = record_folder(course, out)
    signal.signal(signal.SIGTERM, _stop)
    phases = [phase.strip() for phase in only.split(",")] if only else []
    found = verify(plan, folder, only=phases, legacy=legacy, say=(lambda outcome: None) if as_json else _say)
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    else:
        counts = found.counts
        words = f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped in {found.seconds:.0f} s"
        click.echo(f"{words}{', then stopped' if found.ended == 'stopped' else ''}: {folder / found.name}.md")
    sys.exit(STOPPED if found.ended == "stopped" else int(found.counts["fail"] > 0))


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _say(outcome: Outcome) -> None:
    """One line for a step, printed at once."""
    name = f"{outcome.phase}{' (legacy)' if outcome.legacy else ''}: {outcome.name}"
    click.echo(
        f"{_MARKS[outcome.result]}  {outcome.seconds:6.1f} s  {name:38} "
        f"{outcome.reason.splitlines()[0] if outcome.reason else ''}".rstrip()
    )
    sys.stdout.flush()
