"""The command line. Each command is a module of this package that holds a click command named `command`.

Those for a class are the grader's, and come by entry points (`_grader`)."""

from __future__ import annotations

import importlib
import pkgutil

import click

from allranks.base.errors import CourseError
from allranks.cli._examples import EXAMPLES, epilog
from allranks.cli._shared import CommandError, as_sentence


class _Commands(click.Group):
    """Loads a command's module when it is called for, so that `allranks --help` costs nothing.

    Where a command raises a CourseError, its message is printed as one sentence, and the exit status is 2.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        from allranks.cli._grader import commands

        return sorted({*_in_this_package(), *commands()})

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CourseError as error:
            raise CommandError(as_sentence(error)) from None

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command: click.Command
        if name in _in_this_package():
            command = importlib.import_module(f"{__name__}.{name}").command
        else:
            from allranks.cli._grader import clashing, commands

            if (point := commands().get(name)) is None:
                if name not in EXAMPLES:
                    return None
                raise CommandError(
                    f"`allranks {name}` is a teacher's command, and this installation has no grader: "
                    "type `make setup` in a checkout, or install allranks from its wheel."
                )
            for other in clashing(name):
                click.echo(f"The package {other} has a command {name} too: that of allranks is used.", err=True)
            try:
                command = point.load()
            except (ImportError, AttributeError) as error:
                if isinstance(error, CourseError):
                    raise
                command = _broken(name, point.dist.name if point.dist else point.module, error)
        command.epilog = command.epilog or epilog(name)
        for below, one in command.commands.items() if isinstance(command, click.Group) else ():
            one.epilog = one.epilog or epilog(f"{name} {below}")
        return command


def _broken(name: str, package: str, error: Exception) -> click.Command:
    """Stands for a command that can't be loaded, so that the list of commands lacks no other."""

    @click.command(name, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def command() -> None:
        """Can't be loaded."""
        raise CommandError(
            f"`allranks {name}` can't be loaded from {package} ({error}): install or remove that package."
        )

    return command


def _in_this_package() -> set[str]:
    """The names of the commands in this package."""
    return {module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")}


def _print_about(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from allranks.cli._about import about

        click.echo(about())
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_about,
    help="Show the versions of the course, torch and NCCL, and the backend here; then exit.",
)
def main() -> None:
    """All Ranks: an interactive course on collective communication, live on real ranks."""
