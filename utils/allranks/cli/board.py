"""`allranks board`: who has passed what, live, for a workshop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import click

from allranks.cli._shared import CommandError

SHOWN_ENTRIES = 5  # of each task


@click.command(name="board")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 for the whole network.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="The port; 0 for a free one."
)
@click.option("--names", is_flag=True, help="Show the names that learners gave; without it they are numbers.")
@click.option(
    "--race",
    type=click.Path(path_type=Path),
    metavar="LEADERBOARD",
    help="Also show the standings of a class's race, as `allranks race TASK FILE --board LEADERBOARD` writes them.",
)
def command(host: str, port: int, names: bool, race: Path | None) -> None:
    """Shows a page with each learner's exercises: passed, or the cause in a few words, while a workshop runs.

    Learners opt in with join_board(ADDRESS) in a notebook. The board keeps all in memory, and ends with Ctrl-C.
    """
    from allranks.course.board.server import Standing, serve
    from allranks.exercises import names as exercises

    standings = None if race is None else _standings(race, names)

    def tell(bound: int, key: str) -> None:
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
        address = f"http://{shown}:{bound}/{key}"
        click.echo(
            f'{address}\nLearners type: from allranks import join_board; join_board("{address}")\nEnd with Ctrl-C.'
        )

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(Standing(exercises(), names, standings), host, port, tell))


def _standings(path: Path, names: bool) -> Callable[[], list[tuple[str, list[tuple[str, str]]]]]:
    """Gives the fastest entries of each task, read again when the file has changed; a file that is damaged meanwhile
    changes nothing.

    Raises CommandError if there is no leaderboard to begin with.
    """
    from allranks.theory.race import RaceError
    from allranks.theory.race.leaderboard import load

    known: list[tuple[str, list[tuple[str, str]]]] = []
    seen: tuple[int, int] | None = None

    def stamp() -> tuple[int, int]:
        about = os.stat(path)
        return about.st_mtime_ns, about.st_size

    def read() -> None:
        nonlocal seen
        now = stamp()
        if now == seen:
            return
        tasks: dict[str, list[tuple[str, str]]] = {}
        for entry in load(path):
            mine = tasks.setdefault(entry.task, [])
            place = len(mine) + 1
            mine.append((f"{place}. {entry.name} ({entry.by})" if names else f"{place}.", entry.score))
        known[:], seen = [(task, mine[:SHOWN_ENTRIES]) for task, mine in tasks.items()], now

    def give() -> list[tuple[str, list[tuple[str, str]]]]:
        with contextlib.suppress(RaceError, OSError):
            read()
        return known

    try:
        read()
    except RaceError as error:
        raise CommandError(f"{error}.") from None
    except OSError as error:
        raise CommandError(f"{path} can't be read ({error.strerror}).") from None
    return give
