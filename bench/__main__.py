"""`python -m bench [NAME ...] [--rounds N] [--write FILE]`: runs the benches and prints their tables."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import bench
from bench.common import Result, where

NAMES = sorted(
    m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in ("common", "__main__", "hub_house")
)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--rounds", default=5, show_default=True, help="How often each variant is measured, in alternation.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the tables to this file as Markdown.")
def main(names: tuple[str, ...], rounds: int, write: Path | None) -> None:
    """Measure what the documents quote."""
    console = Console(stderr=True)
    results = []
    for name in names or NAMES:
        with console.status(name) as status:
            results.append(importlib.import_module(f"bench.{name}").run(rounds, lambda text, s=status: s.update(text)))
        show(results[-1], Console())
    click.echo(where())
    if write:
        write.write_text(markdown(results))


def show(result: Result, console: Console) -> None:
    """Prints one table."""
    table = Table(title=result.title, title_justify="left")
    for column in result.columns:
        table.add_column(column)
    for row in result.rows:
        table.add_row(*row)
    console.print(table)
    for note in result.notes:
        console.print(note)


def markdown(results: list[Result]) -> str:
    """The tables as a page."""
    lines = ["# Benchmarks", "", f"`make bench` wrote this page. Measured on: {where()}.", ""]
    for result in results:
        lines += [f"## {result.title}", "", f"| {' | '.join(result.columns)} |", "|---" * len(result.columns) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in result.rows]
        lines += ["", *result.notes, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
