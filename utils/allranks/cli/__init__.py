"""The command line. Each command is a module of this package that holds a click command named `command`.

A module whose name would be a word of Python ends with an underscore: `class_`."""

from __future__ import annotations

import importlib
import keyword
import pkgutil

import click

from allranks.cli._shared import CommandError, as_sentence
from allranks.errors import CourseError


class _Commands(click.Group):
    """Loads a command's module when it is called for, so that `allranks --help` costs nothing.

    Where a command raises a CourseError, its message is printed as one sentence, and the exit status is 2.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(
            m.name.rstrip("_").replace("_", "-") for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")
        )

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CourseError as error:
            raise CommandError(as_sentence(error)) from None

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        module = name.replace("-", "_") + "_" * keyword.iskeyword(name)
        return importlib.import_module(f"{__name__}.{module}").command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="allranks")
def main() -> None:
    """All Ranks: an interactive course on collective communication, live on real ranks."""
