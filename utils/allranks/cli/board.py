"""`allranks board`: who has passed what, live, for a workshop."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import click


@click.command(name="board")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 for the whole network.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="The port; 0 for a free one."
)
@click.option("--names", is_flag=True, help="Show the names that learners gave; without it they are numbers.")
def command(host: str, port: int, names: bool) -> None:
    """Shows a page with each learner's exercises: passed, or the cause in a few words, while a workshop runs.

    Learners opt in with join_board(ADDRESS) in a notebook. The board keeps all in memory, and ends with Ctrl-C.
    """
    from allranks.board.server import Standing, serve
    from allranks.exercises import names as exercises

    def tell(bound: int, key: str) -> None:
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
        address = f"http://{shown}:{bound}/{key}"
        click.echo(
            f'{address}\nLearners type: from allranks import join_board; join_board("{address}")\nEnd with Ctrl-C.'
        )

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(Standing(exercises(), names), host, port, tell))
