"""A learner's side of the workshop board: after `join_board`, each `check` tells the board what it found, and waits for nothing.

`allranks.board.server` is the board. What travels: the exercise, whether it passed, the cause in a few words, a random number that stands
for the learner, and a name if the learner gave one. No code, no inputs, no times.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import secrets
import threading
import urllib.parse
from dataclasses import dataclass, field

from allranks.engines.rundir import RunDirError, run_dir
from allranks.errors import CourseError

__all__ = ["BoardError", "join_board", "leave_board"]

WAIT_S = 3.0  # for one message, in a thread of its own
WAITING = 20  # messages; more are dropped
MAX_NAME = 40


class BoardError(CourseError, ValueError):
    """This is no address of a board.

    Example:
        >>> join_board("teacher's laptop")
        Traceback (most recent call last):
        ...
        allranks.board.BoardError: "teacher's laptop" is no address of a board: copy the one that `allranks board` printed.
    """


@dataclass
class Board:
    """The board that this process tells. Messages are sent one after the other by a thread that nobody waits for."""

    address: str
    name: str = ""
    who: str = ""
    waiting: queue.Queue[dict[str, object]] = field(default_factory=lambda: queue.Queue(WAITING))
    thread: threading.Thread | None = None

    def tell(self, exercise: str, passed: bool, cause: str) -> None:
        """Puts the message into the queue; drops it if the board has not taken the last ones."""
        who = self.who or _own_number()
        message = {"who": who, "name": self.name, "exercise": exercise, "passed": passed, "cause": cause}
        with contextlib.suppress(queue.Full):
            self.waiting.put_nowait(message)
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(target=self._send_all, name="allranks-board", daemon=True)
            self.thread.start()

    def _send_all(self) -> None:
        import urllib.request  # takes time to import, and most learners have no board

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the board is on this network
        while True:
            try:
                message = self.waiting.get(timeout=1)
            except queue.Empty:
                return
            request = urllib.request.Request(
                f"{self.address}/tell", json.dumps(message).encode(), {"Content-Type": "application/json"}
            )
            # a board that is down must not disturb anybody's work
            with contextlib.suppress(OSError, ValueError), opener.open(request, timeout=WAIT_S):
                pass


_joined: dict[str, Board | None] = {}


def join_board(address: str = "", name: str = "") -> str:
    """Tells the workshop board of every `check` in this notebook from now on; returns a sentence that says what travels.

    `address` is what `allranks board` printed; without it, that of the environment variable `ALLRANKS_BOARD`. `name` is shown if the board
    shows names; without it you are a number. Raises BoardError if this is no address.

    Example:
        >>> join_board("http://127.0.0.1:8765/k3y", name="Ada")
        'Each check now tells http://127.0.0.1:8765/k3y the exercise, whether it passed, and the cause, as Ada. leave_board() ends it.'
        >>> leave_board()
    """
    address = (address or os.environ.get("ALLRANKS_BOARD", "")).rstrip("/")
    found = urllib.parse.urlsplit(address)
    if found.scheme not in ("http", "https") or not found.hostname or not re.fullmatch(r"/[\w-]+", found.path):
        raise BoardError(f'"{address}" is no address of a board: copy the one that `allranks board` printed.')
    name = " ".join(name.split())[:MAX_NAME]
    _joined["board"] = Board(address, name)
    return (
        f"Each check now tells {address} the exercise, whether it passed, and the cause, "
        f"{f'as {name}' if name else 'without a name'}. leave_board() ends it."
    )


def leave_board() -> None:
    """Tells the board nothing more.

    Example:
        >>> leave_board()
    """
    _joined["board"] = None


def tell(exercise: str, passed: bool, cause: str) -> None:
    """Tells the board, if there is one; never waits and never raises. A learner's own `ALLRANKS_BOARD` joins too."""
    if "board" not in _joined:
        _joined["board"] = None
        if os.environ.get("ALLRANKS_BOARD"):
            with contextlib.suppress(BoardError):
                join_board(name=os.environ.get("ALLRANKS_BOARD_NAME", ""))
    board = _joined["board"]
    if board is not None:
        board.tell(exercise, passed, cause)


def _own_number() -> str:
    """A random number for this account on this machine, the same in all its notebooks."""
    try:
        path = run_dir() / "board-number"
        with contextlib.suppress(FileExistsError), open(path, "x", encoding="ascii") as file:
            file.write(secrets.token_hex(8))
        found = path.read_text(encoding="ascii").strip()
    except (RunDirError, OSError, ValueError):
        found = ""
    return found if re.fullmatch(r"[0-9a-f]{16}", found) else _THIS_PROCESS


_THIS_PROCESS = secrets.token_hex(8)
