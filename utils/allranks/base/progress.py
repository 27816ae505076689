"""How far a long cell has come: a bar below the cell after half a second, or a line on a terminal."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from allranks.base.notebook import in_notebook
from allranks.base.theme import style

AFTER_S, EVERY_S = 0.5, 0.2
Item = TypeVar("Item")


class Progress:
    """So many of `total` are done. `step()` counts one more, `close()` ends the bar; `what` names them: "cases"."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self._began = self._shown_at = time.monotonic()
        self._handle: Any = None
        self._line = self._closed = False
        self._lock, self._timer = threading.Lock(), None
        if in_notebook():  # the first step may take long, too
            self._timer = threading.Timer(max(0.0, AFTER_S), self._show)
            self._timer.daemon = True
            self._timer.start()

    def step(self) -> None:
        """One more is done."""
        self.done += 1
        if time.monotonic() - self._began >= AFTER_S:
            self._show()

    def _show(self) -> None:
        with self._lock:
            now = time.monotonic()
            if not self._closed and not (now - self._shown_at < EVERY_S and self._shown):
                self._shown_at = now
                self._draw()

    def _draw(self) -> None:
        if in_notebook():
            from IPython.display import display

            bundle = {"text/html": self.html(), "text/plain": self.text()}
            if self._handle is None:
                self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self._handle.update(bundle, raw=True)
        elif sys.stderr.isatty():
            self._line = True
            print(f"\r{self.text()} ", end="", file=sys.stderr, flush=True)

    @property
    def _shown(self) -> bool:
        return self._handle is not None or self._line

    def close(self) -> None:
        """Takes away what was shown."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
        if self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)
        if self._line:
            print("\r" + " " * (len(self.text()) + 1) + "\r", end="", file=sys.stderr, flush=True)

    def text(self) -> str:
        """In words.

        >>> Progress(36, "cases").text()
        '0 of 36 cases'
        """
        return f"{self.done} of {self.total} {self.what}"

    def html(self) -> str:
        """The bar, an element of HTML that follows the theme."""
        share = 100 * self.done / self.total if self.total else 100
        words = html.escape(self.text())
        return (
            f'{style()}<div class="ar-theme" style="max-width:560px;font-size:13px;padding:4px 0" '
            f'role="progressbar" aria-valuemin="0" aria-valuemax="{self.total}" aria-valuenow="{self.done}" '
            f'aria-label="{words}">{words}; to stop, interrupt the kernel (■)<div '
            'style="height:8px;margin-top:4px;border-radius:4px;background:var(--ar-hair);overflow:hidden"><div '
            f'style="height:100%;width:{share:.0f}%;background:var(--ar-ink)"></div></div></div>'
        )


def with_progress(items: Sequence[Item] | Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items; when the one after it is asked for, an item is done. The bar goes when they are over, or are left
    early.

    >>> list(with_progress("abc", 3, "letters"))
    ['a', 'b', 'c']
    """
    progress = Progress(total, what)
    try:
        for item in items:
            yield item
            progress.step()
    finally:
        progress.close()
