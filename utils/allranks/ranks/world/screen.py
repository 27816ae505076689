"""What a world shows: a line of progress while it starts, and the outputs of the ranks while they run."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Callable

from allranks.base.notebook import in_notebook
from allranks.ranks.world.outputs import STYLE, WIDGET, Grid

SHOW_AFTER_S = 3.0
OUTPUT_S = 10.0  # how long what ranks printed may come after their answers, on a busy machine
SILENT_S, LOOK_EVERY_S = 1.0, 0.2  # without a word from a rank for so long, the ranks are asked what they do, so often


class Line:
    """One line of progress, which is updated in place. It shows nothing outside of notebooks."""

    def __init__(self, title: str) -> None:
        self.title, self.handle = title, None
        self.last: str | None = None
        if in_notebook():
            import IPython.display  # noqa: F401  # import it now: later another thread imports ipyparallel (see allranks.base.notebook)

    def say(self, text: str) -> None:
        if not in_notebook() or text == self.last:
            return
        from IPython.display import display

        self.last = text
        bundle = {
            "text/html": f'{STYLE}<div class="ar-ranks-note">{html.escape(self.title)}: {html.escape(text)}</div>',
            "text/plain": f"{self.title}: {text}",
        }
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def clear(self) -> None:
        if self.handle is not None:
            self.handle.update({"text/plain": ""}, raw=True)


class Screen:
    """Shows what the ranks print while they run and, after some seconds, how long they have run."""

    def __init__(self, ranks: int, look: Callable[[float], str] | None = None) -> None:
        """`look(elapsed_s)` asks the ranks what they do and draws it."""
        self.grid, self.handle, self.shown, self.next = Grid(ranks), None, "", 0.0
        self.look, self.heard_s, self.look_next, self.said = look, 0.0, 0.0, ""

    def update(self, pending: list, elapsed_s: float, deadline_s: float) -> None:
        """Updates the display, at most ten times in a second."""
        if elapsed_s < self.next or not in_notebook():
            return
        self.next = elapsed_s + 0.1
        self._collect(pending)
        said = str(self.grid.ranks)
        if said != self.said:
            self.said, self.heard_s, self.grid.below = said, elapsed_s, ""
        if self.look is None:
            self.grid.note = f"{elapsed_s:.0f} s of {deadline_s:g} s" if elapsed_s > SHOW_AFTER_S else ""
        elif elapsed_s - self.heard_s > SILENT_S and elapsed_s > self.look_next:
            self.look_next = elapsed_s + LOOK_EVERY_S
            self.grid.below = self.look(elapsed_s)
        self._show()

    def finish(self, pending: list, failed: dict, report: str = "") -> None:
        """Shows the last state: everything that was printed, and the report in place of what the ranks were doing."""
        end = time.monotonic() + OUTPUT_S
        for reply in pending:
            if reply.ready():
                with contextlib.suppress(Exception):
                    reply.wait_for_output(max(0, end - time.monotonic()))
        self.grid.note, self.grid.below = "", report if in_notebook() else ""
        self._collect(pending)
        if self.handle is not None and self.grid.empty:  # the running time was shown: leave the last one
            self.grid.note = f"the ranks took {self.next:.0f} s"
        for rank, output in enumerate(self.grid.ranks):
            output.failed = rank in failed
        if in_notebook():
            self._show()
            self._show_widgets(pending)
        elif not self.grid.empty:
            print(self.grid, flush=True)

    def _collect(self, pending: list) -> None:
        for output, reply in zip(
            self.grid.ranks, pending, strict=False
        ):  # `pending` is shorter if the call was interrupted while it was sent
            found = reply.metadata
            output.stdout, output.stderr = found.get("stdout") or "", found.get("stderr") or ""
            shown = [o["data"] for o in found.get("outputs") or [] if WIDGET not in o["data"]]
            result = found.get("execute_result")
            output.shown = shown + ([result["data"]] if result else [])

    def _show(self) -> None:
        from IPython.display import display

        text = self.grid.as_html()
        if text == self.shown or (self.handle is None and self.grid.empty):
            return
        self.shown = text
        bundle = self.grid._repr_mimebundle_()
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def _show_widgets(self, pending: list) -> None:
        from IPython.display import display

        for reply in pending:
            for output in reply.metadata.get("outputs") or []:
                if WIDGET in output["data"]:
                    display(output["data"], raw=True)
