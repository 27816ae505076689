"""A fork server that no process owns: it ends after a time without requests. `idle.ask` starts it and asks it."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allranks.ranks.engines.forkserver.loop import Client
from allranks.ranks.engines.forkserver.server import Server


class IdleServer(Server):
    """Ends `idle_s` seconds after its last request, once no child is left."""

    def __init__(
        self, path: Path, listening: socket.socket, idle_s: float, modules: Sequence[str], later: Sequence[str]
    ) -> None:
        super().__init__(path, None, listening, True, modules, later)
        self.idle_s = idle_s
        self.last_s = time.monotonic()

    def prepare(self) -> None:
        """Also starts the clock; SIGALRM wakes the loop, as every signal with a handler does."""
        super().prepare()
        signal.signal(signal.SIGALRM, lambda *_: None)

    def listen(self) -> None:
        """Accepts clients from now on; the imports don't count as idle."""
        super().listen()
        self._used()

    def answer(self, client: Client, request: dict[str, Any], fds: list[int]) -> None:
        """Forks as the request says, and begins to count anew."""
        self._used()
        super().answer(client, request, fds)

    def quiet(self) -> None:
        """Nothing while a child lives: somebody waits for what it does, and an import would take its processor."""
        if not self.owners:
            super().quiet()

    def reap(self) -> None:
        """Also ends the server when its time is over. It is called after every signal."""
        super().reap()
        left_s = self.last_s + self.idle_s - time.monotonic()
        if self.owners:
            self._used()
        elif left_s <= 0:
            self.stop()

    def _used(self) -> None:
        self.last_s = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self.idle_s + 0.01)


def main(path: str, listening: str, idle_s: str, modules: str, later: str) -> None:
    """Runs the server. `listening` is an inherited descriptor; both lists are names with commas between them."""
    names, rest = (tuple(filter(None, text.split(","))) for text in (modules, later))
    IdleServer(Path(path), socket.socket(fileno=int(listening)), float(idle_s), names, rest).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
