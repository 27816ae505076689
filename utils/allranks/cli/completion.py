"""`allranks completion SHELL`: what a shell needs to complete commands, options, exercises and labs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Prints the completion script for a shell; put its `eval` into ~/.bashrc or ~/.zshrc."""
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "allranks", "_ALLRANKS_COMPLETE").source())
