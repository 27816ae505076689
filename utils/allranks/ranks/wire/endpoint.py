"""A rank's end of the wire: posts operations, waits for their completion, tells the router what happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Unpack

from allranks.base.errors import CourseError
from allranks.ranks.wire.body import INLINE_NBYTES, Body
from allranks.ranks.wire.buffers import Held, Posted
from allranks.ranks.wire.call_site import CallSites
from allranks.ranks.wire.codec import Channel
from allranks.ranks.wire.failures import FailureKind
from allranks.ranks.wire.frames import FaultDetails, FrameKind, Operation, Request
from allranks.ranks.wire.messages import OpKind

_MOST_AHEAD = 16  # waits for sends in a row that are not waited for
MAX_POSTED = 512  # operations kept back before they are sent without a wait
_THREADS_S = (
    1.0  # for threads of the program in one run, in all, before the rank blocks: one may be about to call an operation
)


_endpoint: ContextVar[Endpoint] = ContextVar("endpoint")  # of this process, if it is a rank of the wire


def compute(seconds: float) -> None:
    """This rank works for so many seconds of virtual time; in real time it takes none.

    Raises CourseError outside of a function that `wire.run` runs: only the wire has virtual time.

    Example (needs ranks):
        >>> wire.run(lambda: wire.compute(2.5), ranks=2).seconds
        2.5
    """
    endpoint = _endpoint.get(None)
    if endpoint is None:
        raise CourseError("compute() takes virtual time, so it works only in a function that wire.run runs.")
    endpoint.compute(seconds)


def take_piece(count: int = 1, used: bytes | None = None) -> Body:
    """Works on the next piece that the router hands out, or on so many of them, in virtual time; the bytes of the last one.

    `used` are the bytes that the work is done with: the router keeps them, and whoever judges the run compares them.
    """
    return _endpoint.get().take_piece(count, used)


def do_piece(count: int = 1) -> None:
    """The same for pieces that make nothing: the router takes note of their time, and this process need not wait for it."""
    _endpoint.get().do_piece(count)


def at_each_send(call: Callable[[], object]) -> None:
    """From now on the rank calls this before each send that it posts: whoever judges it looks at what it holds then."""
    _endpoint.get().at_send = call


def memory_of_run() -> tuple[int, str]:
    """Elements a rank, and dtype, of the memory of this run. Raises CourseError if it has none."""
    endpoint = _endpoint.get(None)
    if endpoint is None or endpoint.memory is None:
        raise CourseError("memory() is the memory of a run: call it in a function that wire.run(..., memory=...) runs.")
    return endpoint.memory


def access(op: Operation, payload: bytes | None = None, *, answered: bool = False) -> Body | None:
    """Uses the memory of the run: with `answered` waits for the router's answer, else goes on at once."""
    endpoint = _endpoint.get()
    _, *where = endpoint.call_sites.here()
    op["where"] = where
    return endpoint.access(op, payload, answered)


class Stopped(BaseException):
    """The router ended the run; unwinds the student's code."""


class Endpoint:
    """Posts are kept back until the rank has to wait, so that one message to the router carries several."""

    def __init__(self, channel: Channel, call_sites: CallSites) -> None:
        self.channel, self.call_sites = channel, call_sites
        self.thread = threading.get_ident()
        self.lock = threading.Lock()  # of `blocked`, and of who may send
        self.blocked = False  # the main thread waits for the router
        _endpoint.set(self)
        self.start(contiguous=False)

    def start(self, *, contiguous: bool, ahead: bool = False, memory: tuple[int, str] | None = None) -> None:
        """Forgets everything of the run before. `memory` are the elements and the dtype of the run's memory, if it has one.

        With `ahead` a wait for a send does not block this process: the router lets what comes behind it wait in its place. Only
        what the program prints, or does otherwise without the wire, is then done earlier.
        """
        self.contiguous, self.ahead, self.memory = contiguous, ahead, memory
        self.went_ahead = 0
        self.sends: set[int] = set()
        self.posted: list[Request] = []
        self.buffers: list = []
        self.held_nbytes = 0
        self.number = 0
        self.sent_complete: set[int] = set()
        self.pending: dict[int, Posted] = {}  # operations that the rank has yet to wait for
        self.at_send: Callable[[], object] = lambda: None
        self.stopped = False
        self.strayed: list | None = None  # file and line of an operation in another thread
        self.threads = set(threading.enumerate())  # of the runs before
        self.threads_s = _THREADS_S

    def check_thread(self) -> None:
        """Raises RuntimeError in a thread of the program, and tells the router: at once, or when the main thread does."""
        if threading.get_ident() == self.thread:
            return
        _, *where = self.call_sites.here()
        with self.lock:
            if self.strayed is None:
                self.strayed = where
                if self.blocked:
                    self.channel.send(
                        [{"do": FrameKind.FAULT, "kind": FailureKind.THREAD, "message": "", "where": where}]
                    )
        raise RuntimeError("The wire takes operations from the rank's main thread only.")

    def mind_threads(self) -> None:
        """Gives threads of the program a moment, since what they do is seen here only."""
        if threading.active_count() == 1:
            return
        for thread in set(threading.enumerate()) - self.threads - {threading.current_thread()}:
            began = time.monotonic()
            while self.threads_s > 0 and self.strayed is None and thread.is_alive():
                thread.join(0.01)
                self.threads_s -= max(0.001, time.monotonic() - began)
                began = time.monotonic()

    def post(self, op: Operation, payload=None) -> int:
        """Hands over an operation; its number. `payload` are the bytes that it sends (copied now, unless large)."""
        self.check_thread()
        if self.stopped:
            raise Stopped
        self.number += 1
        op["number"] = self.number
        if self.ahead and op["do"] is OpKind.SEND:
            self.sends.add(self.number)
        if payload is not None:
            nbytes = len(payload)
            op["nbytes"] = nbytes
            if nbytes > INLINE_NBYTES:
                self.flush()
                self.channel.send([op], Body.of([payload]))
                return self.number
            if self.held_nbytes + nbytes > INLINE_NBYTES:
                self.flush()
            self.held_nbytes += nbytes
            self.buffers.append(bytes(payload))
        self.posted.append(op)
        if len(self.posted) >= MAX_POSTED:
            self.flush()
        return self.number

    def owner_of(self, held: Held) -> Posted | None:
        """The first operation under way whose memory another one, with this memory, would use too early."""
        for posted in self.pending.values():
            if posted.held.forbids(held):
                return posted
        return None

    def compute(self, seconds: float) -> None:
        """Tells the router that this rank works, in virtual time."""
        _, *where = self.call_sites.here(2)
        self._tell({"do": FrameKind.COMPUTE, "seconds": float(seconds), "where": where})

    def _tell(self, op: Request) -> None:
        self.check_thread()
        if self.stopped:
            raise Stopped
        self.posted.append(op)
        if len(self.posted) >= MAX_POSTED:
            self.flush()

    def take_piece(self, count: int = 1, used: bytes | None = None) -> Body:
        """Asks the router for the next pieces of work, which it hands out when the rank has computed so long."""
        op: Operation = {"do": FrameKind.PIECE, "count": count}  # type: ignore[typeddict-item]  # it has no name
        _, *op["where"] = self.call_sites.here(3)
        if used is not None:
            op["nbytes"] = len(used)
            if self.held_nbytes + len(used) > INLINE_NBYTES:
                self.flush()
            self.held_nbytes += len(used)
            self.buffers.append(used)
        return self.ask(op)[1]

    def do_piece(self, count: int) -> None:
        """Works on the next pieces of work, which make nothing."""
        _, *where = self.call_sites.here(2)
        self._tell({"do": FrameKind.PIECE, "count": count, "quiet": True, "where": where})

    def access(self, op: Operation, payload: bytes | None, answered: bool) -> Body | None:
        """Hands over an access of the memory, with the bytes that it puts; the answer, if there is one."""
        if answered:
            return self.ask(op)[1]
        self.check_thread()
        if self.stopped:
            raise Stopped
        if payload:
            op["nbytes"] = len(payload)
            if self.held_nbytes + len(payload) > INLINE_NBYTES:
                self.flush()
            if len(payload) > INLINE_NBYTES:
                self.channel.send([op], Body.of([payload]))
                return None
            self.held_nbytes += len(payload)
            self.buffers.append(payload)
        self.posted.append(op)
        if len(self.posted) >= MAX_POSTED:
            self.flush()
        return None

    def flush(self) -> None:
        """Sends what was kept back."""
        if self.posted:
            posted, buffers = self.posted, self.buffers
            self.posted, self.buffers, self.held_nbytes = [], [], 0
            self.channel.send(posted, Body.of(buffers))

    def ask(self, op: Request) -> tuple[dict, Body]:
        """Sends `op` behind what was kept back and blocks for the router's answer."""
        self.check_thread()
        if self.stopped:
            raise Stopped
        self.mind_threads()
        if self.strayed is not None:
            self.halt(FailureKind.THREAD, "", self.strayed)
        self.posted.append(op)
        self.flush()
        message, body = self._answer()
        self._heed(message)
        self.went_ahead = 0
        self.sent_complete.update(message.get("complete_sends", ()))
        return message, body

    def wait(self, number: int, where: Sequence, *, quick: bool) -> tuple[dict, Body] | None:
        """Waits for operation `number`. None if it needs no answer: a send that is known to be complete."""
        op: Request = {"do": FrameKind.WAIT, "number": number, "where": where}
        if quick and number in self.sent_complete:
            self.sent_complete.discard(number)
            self.posted.append(op)
            return None
        if number in self.sends:
            if self.stopped:
                raise Stopped
            self.went_ahead += 1
            if self.went_ahead < _MOST_AHEAD:
                op["ahead"] = True
                self.posted.append(op)
                return None
            op["told"] = True
        return self.ask(op)

    def poll(self, number: int, where: Sequence) -> bool:
        """Whether operation `number` is complete once every other rank has gone as far as it can."""
        return bool(self.ask({"do": FrameKind.POLL, "number": number, "where": where})[0].get("complete"))

    def report(self, kind: FailureKind, message: str, where: Sequence, **more: Unpack[FaultDetails]) -> None:
        """Tells the router of a fault in this rank, which then goes no further."""
        self.posted.append({"do": FrameKind.FAULT, "kind": kind, "message": message, "where": where, **more})
        self.flush()

    def halt(self, kind: FailureKind, message: str, where: Sequence, **more: Unpack[FaultDetails]) -> None:
        """Reports a fault and blocks until the router ends the run."""
        self.report(kind, message, where, **more)
        while True:
            self._heed(self._answer()[0])

    def _answer(self) -> tuple[dict, Body]:
        """Blocks for the router's next answer."""
        with self.lock:
            self.blocked = self.strayed is None
        message, body = self.channel.receive()
        with self.lock:
            self.blocked = False
        return message, body

    def _heed(self, message: dict) -> None:
        """Unwinds the student's code when the router has ended the run."""
        if message.get("stop"):
            self.stopped = True
            raise Stopped
