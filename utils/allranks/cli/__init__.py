"""The command line. Each command is a module of this package that holds a click command named `command`."""

from __future__ import annotations

import importlib
import pkgutil

import click


class _Commands(click.Group):
    """Loads a command's module when it is called for, so that `allranks --help` costs nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        return importlib.import_module(f"{__name__}.{name.replace('-', '_')}").command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="allranks")
def main() -> None:
    """All Ranks: an interactive course on collective communication, live on real ranks."""
