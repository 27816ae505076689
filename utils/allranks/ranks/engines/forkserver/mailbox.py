"""The messages that a client got from a fork server: the replies to its requests, and the ends of its children."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from allranks.ranks.engines.forkserver.process import describe_exit

MAX_MESSAGE = 160_000  # a SOCK_SEQPACKET message must fit the kernel's default send buffer
MAX_FDS = 64


class Child:
    """A process that the fork server forked for us."""

    def __init__(self, pid: int, log: str | None) -> None:
        self.pid = pid
        self.log = log
        self._code: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._code if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits up to `timeout` seconds for the end; returns the exit code, or None if the process still runs."""
        self._ended.wait(timeout)
        return self.poll()

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends a signal, unless the process has ended."""
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def _end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    def __repr__(self) -> str:
        return f"<Child {self.pid} {describe_exit(self.poll())}>"


class Mailbox:
    """Keeps the replies, by their number, and the ends of children. Thread-safe."""

    def __init__(self) -> None:
        self.arrived = threading.Condition()
        self._children: dict[int, Child] = {}
        self._early: dict[int, int] = {}  # children that ended before we knew their pid
        self._replies: dict[int, dict[str, Any]] = {}
        self._next, self._closed = 0, False

    def number(self) -> int:
        """A number for the next request."""
        with self.arrived:
            self._next += 1
            return self._next

    def take(self, message: dict[str, Any]) -> None:
        """Keeps one message: {"exit": pid, "code": code}, or {"id": number, ...}, which is the reply to a request."""
        with self.arrived:
            if "exit" not in message:
                self._replies[message["id"]] = message
            elif (child := self._children.pop(message["exit"], None)) is not None:
                child._end(message["code"])
            else:
                self._early[message["exit"]] = message["code"]
            self.arrived.notify_all()

    def wait(self, ready: Callable[[], bool], timeout: float, check: Callable[[], None]) -> bool:
        """Waits until `ready()` is true or the time is over; returns `ready()`.

        `check` must raise an error if nothing more can arrive.
        """
        deadline = time.monotonic() + timeout
        with self.arrived:
            while not ready():
                check()
                if not self.arrived.wait(max(0.0, deadline - time.monotonic())):
                    return ready()
            return True

    def reply(self, number: int, timeout: float, check: Callable[[], None]) -> dict[str, Any] | None:
        """The reply to request `number`, or None if it did not come in time."""
        return self._replies.pop(number) if self.wait(lambda: number in self._replies, timeout, check) else None

    def adopt(self, child: Child) -> Child:
        """Marks `child` as ended when its exit code arrives, or now if it came before this call. Returns `child`."""
        with self.arrived:
            if child.pid in self._early:
                child._end(self._early.pop(child.pid))
            elif self._closed:
                child._end(-signal.SIGKILL)
            else:
                self._children[child.pid] = child
        return child

    def close(self) -> None:
        """Nothing more can arrive: wakes the threads that wait, and marks all children as killed."""
        with self.arrived:
            self._closed = True
            children, self._children = list(self._children.values()), {}
            self.arrived.notify_all()
        for child in children:
            child._end(-signal.SIGKILL)
