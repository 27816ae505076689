"""`allranks race`: schedules for a task, scored by the lower bound over their time; and the leaderboard."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from allranks.cli._shared import CommandError, write_text


@click.command(name="race")
@click.argument("name", metavar="[TASK]", required=False)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--board",
    type=click.Path(path_type=Path),
    help="A leaderboard of your own. With TASK and FILE the entry is written into it. Default: the course's, which "
    "stays as it is.",
)
@click.option("--by", help="Who enters; with --board.")
@click.option("--as", "title", help="The entry's name; with --board. Default: the file's.")
@click.option(
    "--verify", is_flag=True, help="Run every entry of a leaderboard again: allranks race --verify [LEADERBOARD]."
)
@click.option("--page", type=click.Path(path_type=Path), help="Write the tasks and the leaderboard as a page of HTML.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    name: str | None,
    file: Path | None,
    board: Path | None,
    by: str | None,
    title: str | None,
    verify: bool,
    page: Path | None,
    as_json: bool,
) -> None:
    """Scores the schedule that FILE makes for TASK: the lower bound over its time in the clock.

    FILE (.py) defines schedule(task), which returns a Schedule. Without FILE it shows the task, and without TASK all of
    them. docs/race.md has the rules. The exit status is 1 if --verify finds an entry that does not hold, and 2 if there
    is nothing to score.
    """
    from allranks.theory.race import leaderboard

    if verify:
        if file is not None or by or title or page or (name and board):
            raise CommandError("--verify takes one leaderboard, and no task.")
        _verify(Path(name) if name else board or leaderboard.COURSE, as_json)
        return
    if page is not None:
        if name is not None or by or title:
            raise CommandError("--page takes --board, and no task.")
        _write_page(page, leaderboard.load(board or leaderboard.COURSE))
        return
    if (by or title) and (file is None or board is None):
        raise CommandError("--by and --as go with TASK, FILE and --board.")
    if name is None:
        entries = leaderboard.load(board) if board and board.exists() else leaderboard.load()
        _list(entries, as_json)
    elif file is None:
        entries = leaderboard.load(board) if board and board.exists() else leaderboard.load()
        _show(name, entries, as_json)
    else:
        _race(name, file, board, by, title, as_json)


def _list(entries: list[Any], as_json: bool) -> None:
    """All tasks, each with its fastest schedule."""
    from allranks.theory.race.tasks import TASKS

    best = {e.task: e for e in reversed(entries) if e.file is not None}
    if as_json:
        tasks = [
            {"task": t.name, "title": t.title, "collective": t.collective, "ranks": t.ranks, "bytes": t.nbytes,
             "root": t.root, "machine": t.machine, "best": best[t.name].to_dict() if t.name in best else None}
            for t in TASKS.values()
        ]  # fmt: skip
        click.echo(json.dumps({"tasks": tasks}))
        return
    for t in TASKS.values():
        first = f"{best[t.name].score}  {best[t.name].name}" if t.name in best else "nobody yet"
        click.echo(f"{t.name:<18}{t.collective:<15}{t.ranks:>5} ranks  {first}")
    click.echo("`allranks race TASK` shows a task; `allranks race TASK FILE` scores your schedule.")


def _show(name: str, entries: list[Any], as_json: bool) -> None:
    """One task with its bound and its entries."""
    from allranks.theory.race import task
    from allranks.theory.race.scoring import in_us

    where = task(name)
    mine = [e for e in entries if e.task == where.name]
    if as_json:
        click.echo(
            json.dumps(
                {
                    "task": where.name,
                    "title": where.title,
                    "collective": where.collective,
                    "ranks": where.ranks,
                    "bytes": where.nbytes,
                    "root": where.root,
                    "machine": where.machine,
                    "bound_picoseconds": where.bound.picoseconds,
                    "why": where.bound.why,
                    "entries": [e.to_dict() for e in mine],
                }
            )
        )
        return
    root = f", root {where.root}" if where.root is not None else ""
    click.echo(f"{where.name}: {where.title}\n  {where.collective}, {where.ranks} ranks, {where.nbytes} bytes{root}")
    click.echo(f"  machine      {where.machine}\n  lower bound  {in_us(where.bound.picoseconds)}: {where.bound.why}")
    for place, entry in enumerate(mine, 1):
        click.echo(f"  {place:>2}. {entry.score}  {in_us(entry.picoseconds):>20}  {entry.name}, {entry.by}")


def _race(name: str, file: Path, board: Path | None, by: str | None, title: str | None, as_json: bool) -> None:
    """Scores a file, and writes it into a leaderboard if there is one."""
    from allranks.theory.race import judge, leaderboard, task
    from allranks.theory.race.maker import make

    where = task(name)
    if board is not None and not file.resolve().is_relative_to(board.resolve().parent):
        raise CommandError(f"{file} must be in the folder of {board}, so that others can run it again.")
    known = leaderboard.load(board) if board and board.exists() else [] if board else leaderboard.load()
    result = judge(make(file, where), where)
    others = [e for e in known if e.task == where.name]
    if board is not None:
        inside = file.resolve().relative_to(board.resolve().parent).as_posix()
        entry = leaderboard.Entry(
            where.name, title or file.stem, by or "unnamed", result.picoseconds, result.score, file=inside
        )
        others = [e for e in leaderboard.add(board, entry) if e.task == where.name and e != entry]
    place = 1 + sum(e.picoseconds < result.picoseconds for e in others)
    if as_json:
        click.echo(json.dumps(result.to_dict() | {"place": place, "entries": len(others)}))
        return
    beside = f"  place        {place} beside {len(others)} entries of {board or 'the course'}" if others else ""
    click.echo("\n".join(filter(None, (result.text(), beside))))


def _verify(board: Path, as_json: bool) -> None:
    """Runs a leaderboard's entries again; exit status 1 if one does not hold."""
    from allranks.theory.race.leaderboard import verify

    done = []
    for found in verify(board):
        done.append(found)
        if not as_json:
            words = f"does not hold: {found.fault}" if found.fault else "holds"
            click.echo(f"{found.entry.task:<18}{found.entry.score}  {found.entry.name}: {words}")
    bad = [found for found in done if found.fault]
    if as_json:
        faults = [{"task": f.entry.task, "name": f.entry.name, "fault": f.fault} for f in bad]
        click.echo(json.dumps({"entries": len(done), "faults": faults}))
    else:
        click.echo(f"{len(done) - len(bad)} of {len(done)} entries hold, to the last digit.")
    sys.exit(1 if bad else 0)


def _write_page(path: Path, entries: list[Any]) -> None:
    from allranks.theory.race.page import page

    write_text(path, page(entries))
    click.echo(f"{path}: {len(entries)} entries.")
