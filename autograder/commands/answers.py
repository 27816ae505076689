"""`allranks answers LAB`: mark the answers in words, in the browser."""

from __future__ import annotations

import asyncio
import contextlib
import webbrowser
from pathlib import Path

import click

from autograder.commands._course import course_option, known_lab, opened, section_option, students_of


@click.command(name="answers")
@click.argument("lab")
@click.option("--names", is_flag=True, help="Show whose answer it is; without it, only a number.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port on 127.0.0.1. Default: a free one.")
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@section_option
@click.option("--as", "who", default="", metavar="NAME", help="Who marks, for the record. Default: your account.")
@course_option
def command(
    lab: str,
    names: bool,
    port: int,
    no_browser: bool,
    sections: tuple[str, ...],
    who: str,
    course: Path | None,
) -> None:
    """Shows all answers to each question of LAB on one page, beside the rubric; points by keyboard, and items that all share.

    Each mark is written to nbgrader's gradebook at once, and who gave it. Several people may mark at the same time.
    Ends with Ctrl-C.
    """
    root = opened(course, "allranks answers")
    from autograder import reading, reading_server

    answers = reading.Reading(root, known_lab(root, lab), students_of(root, sections), who)

    def tell(address: str) -> None:
        click.echo(f"{address}\nEnd with Ctrl-C.")
        if not no_browser:
            webbrowser.open(address)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(reading_server.serve(answers, port, names, tell))
