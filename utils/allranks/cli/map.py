"""`allranks map`: where you are in the course, what you proved, what comes next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from allranks.base import course_files as files
from allranks.base import record
from allranks.base.chapters import chapters
from allranks.base.errors import counted
from allranks.cli._shared import CommandError
from allranks.course import folder
from allranks.course.map import words
from allranks.course.state import Progress, State, state


@click.command(name="map")
@click.argument("named", metavar="[FOLDER]", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the state as one JSON object.")
@click.option(
    "--clear", is_flag=True, help="Forget what you did: checks, predictions, ended chapters. Your cells stay."
)
@click.option("--yes", is_flag=True, help="With --clear: don't ask.")
def command(named: Path | None, as_json: bool, clear: bool, yes: bool) -> None:
    """Shows the map of the course: where you are, what you proved, what comes next and how long it takes.

    FOLDER is the folder of your notebooks. Default: this one, or one above it, else ~/all-ranks. What it knows is kept
    in that folder.
    """
    where = _folder(named)
    if clear:
        _clear(where, yes, as_json)
        return
    found = state(where)
    click.echo(json.dumps(_as_data(found, where)) if as_json else words.text(found))


def _folder(named: Path | None) -> Path:
    """The folder of the reader's notebooks."""
    if named is None:
        return record.folder_of(Path.cwd()) or files.checkout() or folder.home_folder()
    found = record.folder_of(named) if named.is_dir() else None
    if found is None:
        raise CommandError(f"{named} is not the folder of a course: it has no {files.FIRST_CHAPTER}.")
    return found


def _clear(where: Path, yes: bool, as_json: bool) -> None:
    if not yes:
        click.confirm(
            f"Forget every check, prediction and ended chapter of {where}? Your cells stay as they are.",
            abort=True,
            err=True,
        )
    try:
        changed = record.clear(where, [where / chapter.path for chapter in chapters()])
    except OSError as error:
        raise CommandError(f"{error.filename} can't be changed ({error.strerror}).") from None
    if as_json:
        click.echo(json.dumps({"folder": str(where), "changed": [str(path) for path in changed]}))
    else:
        click.echo(f"Cleared. {counted(len(changed), 'file')} changed. Reload notebooks that are open.")


def _as_data(found: State, where: Path) -> dict[str, Any]:
    """The state as plain data; minutes are whole numbers."""

    def of(progress: Progress) -> dict[str, Any]:
        chapter = progress.chapter
        checks = {
            item.name: {"passed": progress.passed(item), "missing": list(progress.missing(item))}
            for item in progress.contents.checks
        }
        asked = {item.name: item.name in progress.answered for item in progress.contents.questions}
        about = {
            "number": chapter.number,
            "title": chapter.title,
            "path": chapter.path.as_posix(),
            "core": chapter.core,
        }
        return about | {
            "checks": checks,
            "predictions": asked,
            "ended": progress.ended,
            "minutes": progress.contents.minutes,
            "minutes_left": progress.minutes_left,
        }

    numbers = {
        "here": found.here and found.here.number,
        "go_on": found.go_on and found.go_on.number,
        "next": found.next and found.next.number,
    }
    return {
        "folder": str(where),
        **numbers,
        "minutes_left": found.minutes_left,
        "chapters": [of(p) for p in found.chapters],
    }
