"""A learner's side of the workshop board: after `join_board`, each `check` and each prediction tells the board, and
waits for nothing.

`allranks.course.board.server` is the board. What travels from a check: the exercise, whether it passed, the cause in a
few words, a random number that stands for the learner, and a name if the learner gave one. From a prediction: the
question, the choice, and a number made of the random one and the question, so that nobody is counted twice and no check
is joined with it. No code, no inputs, no times.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import re
import secrets
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from allranks.base.errors import CourseError
from allranks.base.rundir import RunDirError, run_dir
from allranks.base.whole import make_whole

if TYPE_CHECKING:
    import urllib.request

WAIT_S = 3.0  # for one message, in a thread of its own
WAITING = 20  # messages; more are dropped
MAX_NAME = 40
# seconds between two looks at what the class said: others answer for some minutes
LOOKS_S = (0.3, 2, 4, 8, 16, 32, 64, 64)
MAX_REPLY = 65536


class BoardError(CourseError, ValueError):
    """This is no address of a board.

    Example:
        >>> join_board("me")
        Traceback (most recent call last):
        ...
        allranks.base.board.BoardError: "me" is no address of a board: copy the one that `allranks board` printed.
    """


@dataclass
class Board:
    """The board that this process tells. Messages are sent one after the other by a thread that nobody waits for."""

    address: str
    name: str = ""
    who: str = ""
    waiting: queue.Queue[dict[str, object]] = field(default_factory=lambda: queue.Queue(WAITING))
    thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)  # a thread may not end while a message is put

    def tell(self, exercise: str, passed: bool, cause: str) -> None:
        """Puts a check's message into the queue."""
        self._put({"name": self.name, "exercise": exercise, "passed": passed, "cause": cause})

    def tell_choice(self, question: str, title: str, choice: str | float) -> None:
        """Puts a prediction's message into the queue: without a name, and with a number that is in no other message."""
        who = hashlib.sha256(f"{self.who or _own_number()} {question}".encode()).hexdigest()[:16]
        self._put({"who": who, "question": question, "title": title, "choice": choice})

    def said(self, question: str) -> dict[str, Any] | None:
        """What the class said so far; None if the board does not answer or lacks the question. Waits for the board."""
        address = f"{self.address}/said/{urllib.parse.quote(question, safe='')}"
        try:
            with _opener().open(address, timeout=WAIT_S) as reply:
                found = json.loads(reply.read(MAX_REPLY))
        except (OSError, ValueError):
            return None
        return found if _is_said(found) else None

    def _put(self, message: dict[str, object]) -> None:
        """Drops the message if the board has not taken the last ones."""
        message = {"who": self.who or _own_number()} | message
        with self._lock:
            with contextlib.suppress(queue.Full):
                self.waiting.put_nowait(message)
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self._send_all, name="allranks-board", daemon=True)
                self.thread.start()

    def _send_all(self) -> None:
        import urllib.request

        opener = _opener()
        while True:
            try:
                message = self.waiting.get(timeout=1)
            except queue.Empty:
                with self._lock:
                    if self.waiting.empty():
                        self.thread = None
                        return
                continue
            request = urllib.request.Request(
                f"{self.address}/tell", json.dumps(message).encode(), {"Content-Type": "application/json"}
            )
            # a board that is down must not disturb anybody's work
            with contextlib.suppress(OSError, ValueError), opener.open(request, timeout=WAIT_S):
                pass


_joined: dict[str, Board | None] = {}


def join_board(address: str = "", name: str = "") -> str:
    """Tells the workshop board of every `check` and prediction in this notebook from now on; returns a sentence that
    says what travels.

    `address` is what `allranks board` printed; without it, that of the environment variable `ALLRANKS_BOARD`. `name` is
    shown if the board shows names; without it you are a number. A prediction never has your name; after its reveal the
    card shows what the class said. Raises BoardError if this is no address.

    Example:
        >>> told = join_board("http://127.0.0.1:8765/k3y", name="Ada")
        >>> print(told.replace(". ", ".\\n"))
        Each check now tells http://127.0.0.1:8765/k3y the exercise, whether it passed, and the cause, as Ada.
        Each prediction tells it the question and your choice, without a name.
        leave_board() ends it.
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
        f"{f'as {name}' if name else 'without a name'}. Each prediction tells it the question and your choice, "
        "without a name. leave_board() ends it."
    )


def leave_board() -> None:
    """Tells the board nothing more.

    Example:
        >>> leave_board()
    """
    _joined["board"] = None


def tell(exercise: str, passed: bool, cause: str) -> None:
    """Tells the board, if there is one; never waits and never raises. A learner's own `ALLRANKS_BOARD` joins too."""
    board = _own_board()
    if board is not None:
        board.tell(exercise, passed, cause)


def tell_choice(question: str, title: str, choice: str | float) -> None:
    """Tells the board a prediction, if there is a board; never waits and never raises."""
    board = _own_board()
    if board is not None:
        board.tell_choice(question, title, choice)


def ask_class(question: str, hear: Callable[[dict[str, Any]], bool]) -> None:
    """Gives `hear` what the class said, now and some times later, from a thread; returns at once. Nothing happens
    without a board.

    `hear` gets {"answers": count, "bars": [[words, count], ...]} and returns whether it wants more. A board that does
    not answer ends it.
    """
    board = _own_board()
    if board is None:
        return

    def look() -> None:
        for wait_s in LOOKS_S:
            time.sleep(wait_s)
            if _joined.get("board") is not board:
                return
            found = board.said(question)
            if found is None or not hear(found):
                return

    threading.Thread(target=look, name="allranks-class", daemon=True).start()


def _opener() -> urllib.request.OpenerDirector:
    """What asks the board: it is on this network, so no proxy is between."""
    import urllib.request  # takes time to import, and most learners have no board

    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _own_board() -> Board | None:
    if "board" not in _joined:
        _joined["board"] = None
        if os.environ.get("ALLRANKS_BOARD"):
            with contextlib.suppress(BoardError):
                join_board(name=os.environ.get("ALLRANKS_BOARD_NAME", ""))
    return _joined["board"]


def _is_said(found: Any) -> bool:
    """Whether this is a board's answer: nothing else may reach a reader's page."""
    match found:
        case {"answers": int(), "bars": [*bars]}:
            return all(isinstance(bar, list) and [type(part) for part in bar] == [str, int] for bar in bars)
    return False


def _own_number() -> str:
    """A random number for this account on this machine, the same in all its notebooks."""
    try:
        path = run_dir() / "board-number"
        if not path.exists():
            make_whole(path, secrets.token_hex(8), 0o600)
        found = path.read_text(encoding="ascii").strip()
    except (RunDirError, OSError, ValueError):
        found = ""
    return found if re.fullmatch(r"[0-9a-f]{16}", found) else _THIS_PROCESS


_THIS_PROCESS = secrets.token_hex(8)
