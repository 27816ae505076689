"""`%%ranks`: every rank of the running world runs the cell."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING

from IPython.core.magic import Magics, cell_magic, magics_class

from allranks.ranks.world import WorldError, current

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise WorldError(f"%%ranks: {message}. Usage: %%ranks [--deadline SECONDS]")


@magics_class
class RanksMagics(Magics):
    """The cell magic of the course; registered by `import allranks`."""

    @cell_magic
    def ranks(self, line: str, cell: str) -> None:
        """Runs the cell on every rank: `%%ranks [--deadline SECONDS]`. What each prints is shown side by side."""
        parser = _Parser(prog="%%ranks", add_help=False)
        parser.add_argument("--deadline", type=float, default=None)
        options = parser.parse_args(line.split())
        world = current()
        # the line of the magic is line 1, as in the notebook's line numbers
        source = "#\n" + cell
        self._expect_syntax(source)
        world.cell(source, options.deadline)

    def _expect_syntax(self, source: str) -> None:
        """Raises WorldError for a syntax error, once and before any rank gets the cell. `await` counts: ranks run no event loop."""
        source = self.shell.transform_cell(source)
        try:
            with warnings.catch_warnings():  # the ranks will print them
                warnings.simplefilter("ignore")
                compile(source, "%%ranks cell", "exec", dont_inherit=True)
        except SyntaxError as error:
            lines = source.splitlines()
            known = error.lineno is not None and 0 < error.lineno <= len(lines)
            where = f"\n    line {error.lineno}: {lines[error.lineno - 1].strip()}" if known else ""
            raise WorldError(f"This cell is not valid Python, so no rank ran it: {error.msg}.{where}") from None


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magics; called by `import allranks` inside IPython and by `%load_ext allranks.ranks.magics`."""
    shell.register_magics(RanksMagics)
