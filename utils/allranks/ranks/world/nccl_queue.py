"""The one queue of a rank under NCCL's rules: operations run in order in a thread, and calls return at once.

It plays what a GPU's stream does: `Ticket.wait` is where a program would wait for its GPU.
"""

from __future__ import annotations

import contextlib
import copy
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from allranks.ranks.engines import watch

Job = Callable[[], None]


class Ticket:
    """One place in the queue. `about` says what it is, for a report: op, peer, shape, dtype, group, seq, begun."""

    def __init__(self, queue: Queue, job: Job | None, about: dict[str, Any]) -> None:
        self.queue, self.job, self.about = queue, job, about
        self.error: BaseException | None = None
        self.ended_s: float | None = None  # seconds of the monotonic clock
        self._done = threading.Event()
        self._then: list[Job] = []

    @property
    def done(self) -> bool:
        """Whether the queue has come past it."""
        return self._done.is_set()

    def then(self, callback: Job) -> None:
        """Calls `callback` in a thread of its own when it is done."""
        self._then.append(callback)
        if self.done:
            self._call_back()

    def run(self) -> None:
        """Runs the job, in the queue's thread."""
        try:
            if self.job is not None:
                self.job()
        except BaseException as error:
            self.error = self.queue.failed = error  # before anyone is told
        self.finish()

    def finish(self) -> None:
        """Says that it is done, or never will be."""
        self.job = None  # the tensors that it holds may go
        self.ended_s = time.monotonic()
        self._done.set()
        self._call_back()

    def wait(self) -> None:
        """Blocks until it is done. Raises what the operation raised."""
        self.queue.blocked += 1
        try:
            while not self._done.wait(0.2):  # short, so that an interrupt gets through
                pass
        finally:
            self.queue.blocked -= 1
        if self.error is not None:
            raise copy.copy(self.error)  # else each raise would add its lines to the same traceback

    def _call_back(self) -> None:
        with contextlib.suppress(IndexError):  # who asks for one more may take it, while the queue's thread does
            while True:
                callback = self._then.pop()
                # in a thread of its own: it may wait for a later operation of the queue
                threading.Thread(target=callback, name="allranks-callback", daemon=True).start()


class Queue:
    """The queue of this rank."""

    def __init__(self) -> None:
        self._tickets: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        self._last: Ticket | None = None
        self.failed: BaseException | None = None
        self.current: Ticket | None = None
        self.blocked = 0  # how many waits of the program are under way
        threading.Thread(target=self._work, name="allranks-queue", daemon=True).start()

    def put(self, job: Job | None, **about: Any) -> Ticket:
        """Adds an operation, and returns at once. Without a job: a mark, whose `ended_s` is when the queue reached it."""
        ticket = self._last = Ticket(self, job, about)
        self._tickets.put(ticket)
        return ticket

    def drain(self) -> None:
        """Blocks until the queue is empty. Raises the first error of an operation."""
        last = self._last
        if last is not None:
            last.wait()
        if self.failed is not None:
            raise copy.copy(self.failed)

    def waiting_for(self) -> dict[str, Any] | None:
        """What the operation at the head of the queue is, if the program waits for the queue; else None."""
        ticket = self.current
        if ticket is None or ticket.done:
            return None
        # DDP waits in C++ code, which does not say so
        waits = self.blocked or watch.stands(lambda: self.current is ticket and not ticket.done)
        return ticket.about if waits else None

    @torch.no_grad()  # what moves between ranks is no part of a program's gradient
    def _work(self) -> None:
        while True:
            ticket = self._tickets.get()
            if self.failed is not None and ticket.job is not None:
                ticket.error = self.failed  # as after an error of a communicator, which can't be used any more
                ticket.finish()
                continue
            self.current = ticket
            ticket.run()
            self.current = None


class Event:
    """Plays torch.cuda.Event: a mark in the queue of this rank, with the time at which the queue reached it."""

    queue: Queue  # set by the class that a rank makes of it

    def __init__(self, enable_timing: bool = False, **options: Any) -> None:
        self._ticket: Ticket | None = None

    def record(self, stream: object = None) -> None:
        """Puts the mark behind all that is queued."""
        self._ticket = self.queue.put(None, op="event", waits_for="queue")

    def query(self) -> bool:
        """Whether the queue has come past the mark."""
        return self._ticket is None or self._ticket.done

    def synchronize(self) -> None:
        """Waits until the queue has come past the mark."""
        if self._ticket is not None:
            self._ticket.wait()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this mark to another, once both are reached."""
        if self._ticket is None or end._ticket is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")  # torch's words
        self.synchronize()
        end.synchronize()
        return ((end._ticket.ended_s or 0) - (self._ticket.ended_s or 0)) * 1e3
