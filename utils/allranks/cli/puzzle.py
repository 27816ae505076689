"""`allranks puzzle`: the ten puzzles of the site's pages, judged here, with the same verdicts."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import click

from allranks.cli._shared import CommandError


@click.command(name="puzzle")
@click.argument("what", metavar="[NUMBER]", required=False)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from", "link", metavar="LINK", help="Write the code of a share link to FILE. Default: its puzzle's name, .py."
)
@click.option("--real", is_flag=True, help="If it is right, run it on real processes too, with torch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str | None, file: Path | None, link: str | None, real: bool, as_json: bool) -> None:
    """Judges FILE, a reader's own sends and receives, for a puzzle.

    NUMBER is 1 to 10, or the puzzle's name. Without FILE it prints the code to begin with; without NUMBER, all puzzles.
    The code runs in this process and is no sandbox: read it first if it is somebody else's. The exit status is 0 if it
    is right, 1 if it is wrong, and 2 if there is nothing to judge.
    """
    from allranks.exercises import puzzles

    if link is not None:
        if file is not None or real:
            raise CommandError("--from takes a link, and at most a FILE to write.")
        _write(link, None if what is None else Path(what), as_json)
        return
    if what is None:
        _list(puzzles.catalogue(), as_json)
        return
    puzzle = puzzles.find(what)
    if file is None:
        row = next(row for row in puzzles.catalogue() if row["id"] == puzzle.id)
        click.echo(json.dumps(row) if as_json else _begin(row))
        return
    code = _read(file)
    found = puzzles.judge(puzzle.id, code)
    if real and found["right"]:
        from allranks.exercises.puzzles.real import run_real

        right, found["real"] = run_real(puzzle, code)
        found["right"] = right
    click.echo(json.dumps(found) if as_json else _text(found, file, code))
    sys.exit(0 if found["right"] else 1)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(f"There is no file {file}.") from None
    except (OSError, UnicodeDecodeError) as error:
        why = "is no text in UTF-8" if isinstance(error, UnicodeDecodeError) else f"can't be read: {error.strerror}"
        raise CommandError(f"{file} {why}.") from None


def _write(link: str, file: Path | None, as_json: bool) -> None:
    from allranks.exercises import puzzles

    puzzle, code = puzzles.unpack(link)
    file = file or Path(f"{puzzle}.py")
    try:
        with file.open("x", encoding="utf-8", newline="") as out:
            out.write(code)
    except FileExistsError:
        raise CommandError(f"{file} is there already; name another file: allranks puzzle --from LINK FILE.") from None
    except OSError as error:
        raise CommandError(f"{file} can't be written: {error.strerror}.") from None
    number = next(row["number"] for row in puzzles.catalogue() if row["id"] == puzzle)
    told = f"Wrote {file}. Read it, then judge it with: allranks puzzle {number} {file}"
    click.echo(json.dumps({"puzzle": puzzle, "file": str(file)}) if as_json else told)


def _list(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"puzzles": rows}))
        return
    for row in rows:
        task = textwrap.fill(row["task"], 100, initial_indent="      ", subsequent_indent="      ")
        click.echo(f"{row['number']:>3}   {row['title']}\n{task}")


def _begin(row: dict[str, Any]) -> str:
    """The code to begin with, below its task: a file, as it stands."""
    head = [f"{row['number']}  {row['title']}", *textwrap.wrap(row["task"], 96)]
    head.append(f"Rules: {', '.join(rule['text'] for rule in row['rules'])}.")
    return "\n".join([*(f"# {line}" for line in head), "", row["starter"].rstrip()])


def _text(found: dict[str, Any], file: Path, code: str) -> str:
    """The verdict for a terminal."""
    line = found["line"]
    lines = [found["headline"] if found["right"] or not line else f"{file}:{line}: {found['headline']}"]
    if line and line <= len(code.splitlines()):
        lines.append(f"    {code.splitlines()[line - 1].strip()}")
    if found["where"]:
        lines.append(f"That is {found['where']}.")
    lines += [found["note"]] if found["note"] else []
    for wait in found["waits"]:
        whom = f" waits for rank {', '.join(map(str, wait['for']))}" if wait["for"] else f" has {wait['doing']}"
        lines.append(f"  rank {wait['rank']}{whom}" + (f" in {wait['call']}" if wait["call"] else ""))
    kept = {True: "kept", False: "not kept", None: "judged later"}
    lines.append("Rules: " + "; ".join(f"{rule['text']}: {kept[rule['kept']]}" for rule in found["rules"]) + ".")
    lines += [f"  rank {row['rank']}: {row['text']}" for row in found["prints"]]
    return "\n".join([*lines, *([found["real"]] if "real" in found else [])])
