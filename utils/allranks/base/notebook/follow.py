"""What a cell has just shown stays in the reader's window, and a cell that shows nothing yet says how long it has run.

The kernel says when a cell begins and when it has ended; the page does the rest (js/src/follow/). The two talk through
a widget that is never shown, so nothing is added to the notebook.
"""

from __future__ import annotations

from importlib import resources
from typing import Any


def follow_cells(shell: Any) -> None:
    """Begins with the cell that runs now. Does nothing in a kernel without a notebook, or without the extra `lab`."""
    # a rank of a world is a kernel as well, of ipyparallel
    if type(getattr(shell, "kernel", None)).__module__.partition(".")[0] != "ipykernel":
        return
    try:
        follower = _follower()
    except ImportError:
        return

    def end(_: Any) -> None:
        follower.running = False
        follower.send({"running": False})

    shell.events.register("pre_run_cell", lambda _: follower.send({"running": True}))
    shell.events.register("post_run_cell", end)


def _follower() -> Any:
    import anywidget
    import traitlets

    class Follower(anywidget.AnyWidget):
        """Has no view: its script runs in the page as soon as it is made, perhaps after the first cell has ended."""

        _esm = (resources.files(__package__) / "static" / "follow.js").read_text(encoding="utf-8")
        running = traitlets.Bool(True).tag(sync=True)

    return Follower()
