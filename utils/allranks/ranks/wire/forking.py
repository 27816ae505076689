"""Forks on a stack that holds nothing: a process takes with it all that the functions below the fork have in their variables.

A rank that runs an answer would find there, frame by frame, the judge with its exercise and every rank's inputs.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import warnings
from collections.abc import Callable
from queue import SimpleQueue

Child = Callable[[list[int]], None]  # what the new process does; it never returns
_STACK_BYTES = 8 << 20  # as a main thread has
_guard = threading.Lock()
_lasting: list[_Forker] = []


def fork(child: Child, fds: list[int]) -> int:
    """Forks; the new process calls `child(fds)` in its main thread, below which is nothing of the caller. Returns its id."""
    with _guard:
        if not _lasting or _lasting[0].owner != os.getpid():
            _lasting[:] = [_Forker()]
        return _lasting[0].fork(child, fds)


class _Forker:
    """One thread that forks. It lasts as long as the process: the kernel kills a child when the *thread* that forked it ends."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.wanted: SimpleQueue[tuple[Child, list[int]]] = SimpleQueue()
        self.forked: SimpleQueue[int | BaseException] = SimpleQueue()
        before = threading.stack_size(_STACK_BYTES)
        try:
            # not a threading.Thread: that would count as one of the program's, and be what a rank sees as its main thread
            _thread.start_new_thread(_serve, (self.wanted, self.forked))
        finally:
            threading.stack_size(before)

    def fork(self, child: Child, fds: list[int]) -> int:
        """Has the thread fork and waits for it; while one waits and the other forks, no third holds a lock."""
        self.wanted.put((child, fds))
        try:
            pid = self.forked.get()
        except BaseException:  # such as Ctrl-C: nobody would know of the process
            pid = self.forked.get()
            if isinstance(pid, int):
                os.kill(pid, signal.SIGKILL)
            raise
        if isinstance(pid, int):
            return pid
        raise pid


def _serve(wanted: SimpleQueue[tuple[Child, list[int]]], forked: SimpleQueue[int | BaseException]) -> None:
    while True:
        forked.put(_fork(*wanted.get()))


def _fork(child: Child, fds: list[int]) -> int | BaseException:
    pid = 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # Python 3.12 warns of threads; the only other one waits
            pid = os.fork()
        if not pid:
            child(fds)
        return pid
    except BaseException as error:
        return error
    finally:
        if not pid:
            os._exit(1)


def _forget() -> None:
    """In a process that somebody else forked: the lock may be held by a thread that is not there."""
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):  # not in a browser
    os.register_at_fork(after_in_child=_forget)
