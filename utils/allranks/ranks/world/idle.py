"""Stops a world that is not used, after a warning."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WARN_S = 300.0
LOOK_S = 1.0


class Idle:
    """Calls `stop` after `limit_s` seconds without a call of `touch`; if `stop` returns False, waits as long again.

    Before that, it calls `warn` with the number of seconds left, and with None if the world was used after the warning.
    Every second it calls `wanted`: if that returns True, another user needs the GPUs, and `stop` is called at once.
    """

    def __init__(
        self,
        limit_s: float,
        stop: Callable[[], bool],
        warn: Callable[[float | None], None],
        wanted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.limit_s, self._stop, self._warn, self._wanted = limit_s, stop, warn, wanted
        self._used = time.monotonic()
        self._changed = threading.Condition()
        self._over = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts to count the time."""
        with self._changed:
            self.touch()
            self._over = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="allranks-idle", daemon=True)
                self._thread.start()

    def touch(self) -> None:
        """The world was used: starts to count from zero again."""
        with self._changed:
            self._used = time.monotonic()
            self._changed.notify_all()

    def end(self) -> None:
        """Stops counting."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def forget(self) -> None:
        """Makes a forked process count nothing: it has no thread that counts, and the lock may be held for ever."""
        self._changed, self._over, self._thread = threading.Condition(), True, None

    def _watch(self) -> None:
        warned, warn_at = False, min(WARN_S, self.limit_s / 2)
        while True:
            with self._changed:
                left = self._used + self.limit_s - time.monotonic()
                due = 0 if warned else warn_at
                if not self._over and left > due and not (warned and left > warn_at):
                    self._changed.wait(min(left - due, LOOK_S))
                    if self._over or not self._wanted():  # a world that is ending must not be asked
                        continue
                    left = 0.0
                if self._over:
                    self._thread = None
                    return
            if left > warn_at:
                warned = False
                self._warn(None)
            elif left > 0:
                warned = True
                self._warn(left)
            else:
                asked = time.monotonic()
                if not self._stop():
                    self.touch()
                    continue
                with self._changed:
                    if self._used < asked:  # else the world was started again while it was stopped
                        self._thread = None
                        return
