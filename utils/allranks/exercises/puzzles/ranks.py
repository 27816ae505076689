"""Ranks without processes and without threads: the reader's blocking code, run against the wire's own router.

A rank runs until it must wait. Then it is left, and run again from its beginning when what it waits for is there, with what it has
received so far: so its code must do the same each time. The router never notices: it is told every operation once.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from allranks.exercises.puzzles import vector
from allranks.exercises.puzzles.program import FILE, Missing, draw_the_same, names
from allranks.exercises.puzzles.vector import PENDING, Store, Vector
from allranks.ranks.wire.body import Body
from allranks.ranks.wire.ending import verdict
from allranks.ranks.wire.failures import Failure, FailureKind, Misuse, MisuseError
from allranks.ranks.wire.frames import FrameKind
from allranks.ranks.wire.messages import OpKind, Rules
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.state import Op
from allranks.ranks.wire.student_code import Lines

MOST_LINES = 50_000  # that a rank may begin before it waits or returns
MOST_OPERATIONS = 500  # of one rank
MOST_REPEATED = (
    40_000  # operations of all ranks, those that are run again too: each wait runs the rank from its beginning
)
MOST_PRINTED = 100_000  # characters of one rank
_POISON = array("f", [float("nan")]).tobytes()
_RULES = Rules(allow=frozenset({"send", "recv", "isend", "irecv"}))


class _Left(BaseException):
    """The rank is left here: it waits, or it is over."""


@dataclass
class Request:
    """What isend and irecv give: `wait()` for it, or pass it to wait."""

    number: int
    finish: Callable[[int], None]

    def wait(self) -> bool:
        """Blocks until it is complete."""
        self.finish(self.number)
        return True


@dataclass
class P2POp:
    """One operation of a batch: isend or irecv, the vector, and the other rank."""

    op: Callable
    tensor: Vector
    peer: int


@dataclass
class _Pending:
    """An operation under way: its memory, and what that held."""

    kind: OpKind
    vector: Vector
    held: bytes

    def overlaps(self, other: Vector) -> bool:
        return self.vector.store is other.store and not set(self.vector.at).isdisjoint(other.at)


@dataclass
class Picture:
    """What all memories of a rank hold: before its operation number `op`, or after the wait for it."""

    op: int
    after: bool
    marks: dict[int, list[int]]  # by the number of the store


@dataclass
class Run:
    """What a run gave: the router, the failure if there is one, and of each rank what it returned, printed and reached."""

    router: Router
    failure: Failure | None
    args: list[Vector]
    results: list[Any]
    printed: list[list[str]]
    reached: list[set[int]]
    marks: dict[tuple[int, int], list[int]]  # of each message, by its sender and the number of the send
    pictures: list[list[Picture]]
    stores: list[list[Store]]

    def messages(self) -> list[Op]:
        """The sends that met their receive, in the order in which they did."""
        return sorted(
            (op for op in self.router.log if op.kind is OpKind.SEND and op.partner), key=lambda op: op.match or 0
        )


@dataclass
class Cast:
    """The code, and how it is run: `x` gives each rank's vector anew, `first` is a rank that receives before it sends."""

    code: CodeType
    source: list[str]
    function: str
    ranks: int
    x: Callable[[int], Vector]
    delivery: str = "rendezvous"
    seed: int = 0
    node_size: int | None = None
    pictured: bool = False
    first: int | None = None


class _Rank:
    """One rank: what it has said to the router, and what it was given."""

    def __init__(self, rank: int, play: _Play) -> None:
        self.rank, self.play = rank, play
        self.said: list[tuple] = []  # its operations, each once
        self.got: dict[int, bytes | None] = {}  # what came, by the number of the operation
        self.over = False
        self.result: Any = None
        self.arg = play.cast.x(rank)
        self.reached: set[int] = set()
        self.pictures: list[Picture] = []
        self.waiting = 0  # the number of the operation that it waits for
        self._begin()

    def _begin(self) -> None:
        self.count = self.lines = self.printed_nchars = 0
        self.left = False
        self.pending: dict[int, _Pending] = {}
        self.waited: set[int] = set()
        self.printed: list[str] = []
        self.moments = 0
        self.deferred: tuple[Vector, int, int] | None = None
        self.may_defer = self.play.cast.first == self.rank
        self.stores: list[Store] = []

    # ------------------------------------------------------------------------------------- running it, and again

    def go(self) -> None:
        """Runs the rank from its beginning until it waits, returns or fails."""
        self._begin()
        cast = self.play.cast
        Store.made = self.stores
        draw_the_same()
        self.arg = cast.x(self.rank)
        try:
            space = names(self._given(), self.line, self.printing)
            exec(cast.code, space)  # the reader's own code: that is what this is for
            function = space.get(cast.function)
            if not callable(function):
                raise TypeError(f"{cast.function} is not a function")
            self.result = function(self.arg)
            if not self.left:
                self._send_deferred()
            for one in (self.arg, *(self.result if isinstance(self.result, list | tuple) else [self.result])):
                if isinstance(one, Vector):
                    if type(one) is not Vector:  # whose values may be anything
                        raise TypeError(f"{type(one).__name__} is a class of your own, not a vector")
                    _ = one.values  # fails here if its inside was meddled with
        except _Left:
            pass
        except RecursionError:
            self._fail(FailureKind.EXCEPTION, error="RecursionError", message="a function calls itself without an end")
        except Missing as error:
            self._raised(error, FailureKind.IMPORT, missing_name=error.name)
        except SystemExit:
            self._fail(FailureKind.EXITED, message="exit")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and "KeyboardInterrupt" not in "".join(cast.source):
                raise  # it is the one who waits for the verdict
            if not self.left:
                self._raised(error)
        finally:
            Store.made = None
        if not self.left:
            self._picture(self.count, False)
            self.over = True
            self.play.tell(self.rank, {"do": FrameKind.DONE})

    def _given(self) -> dict[str, Any]:
        cast = self.play.cast
        given = {
            **vector.NAMES,
            "rank": self.rank,
            "world_size": cast.ranks,
            "send": self.send,
            "recv": self.recv,
            "isend": self.isend,
            "irecv": self.irecv,
            "batch": self.batch,
            "batch_isend_irecv": self.batch,
            "P2POp": P2POp,
            "wait": self.wait_all,
            "Vector": Vector,
            "Tensor": Vector,
        }
        return given | ({} if cast.node_size is None else {"node_size": cast.node_size})

    def line(self, number: int) -> bool:
        """Called before every statement of the code."""
        if self.left:
            raise _Left
        self.reached.add(number)
        self.at = number
        self.lines += 1
        if self.lines > MOST_LINES:
            why = f"began {MOST_LINES:,} lines and had not ended: an endless loop?"
            self._fail(FailureKind.CPU_LIMIT, where=[FILE, number], message=why)
            raise _Left
        return True

    def printing(
        self, *things: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
    ) -> None:
        """The print of the code."""
        if self.left:
            raise _Left
        text = (" " if sep is None else sep).join(map(str, things)) + ("\n" if end is None else end)
        self.printed_nchars += len(text)
        if self.printed_nchars > MOST_PRINTED:
            self.left = self.over = True
            self.play.router.fault(FailureKind.OUTPUT, self.rank, FILE, self.at)
            raise _Left
        self.printed.append(text)

    # ---------------------------------------------------------------------------------------------- its operations

    def send(self, tensor: Vector, dst: int, tag: int = 0) -> None:
        """Sends the vector, and waits until it is received."""
        if self.may_defer and self.deferred is None:
            self.may_defer, self.deferred = False, (tensor.clone(), dst, tag)
            return
        self.wait(self._post(OpKind.SEND, "send", tensor, dst, tag))

    def _send_deferred(self) -> None:
        said, self.deferred = self.deferred, None
        if said is not None:
            self.wait(self._post(OpKind.SEND, "send", *said))

    def recv(self, tensor: Vector, src: int, tag: int = 0) -> int:
        """Receives into the vector; the rank from which it came."""
        self.wait(self._post(OpKind.RECV, "recv", tensor, src, tag))
        self._send_deferred()
        return src

    def isend(self, tensor: Vector, dst: int, tag: int = 0) -> Request:
        """Begins to send the vector."""
        return Request(self._post(OpKind.SEND, "isend", tensor, dst, tag), self.wait)

    def irecv(self, tensor: Vector, src: int, tag: int = 0) -> Request:
        """Begins to receive into the vector."""
        return Request(self._post(OpKind.RECV, "irecv", tensor, src, tag), self.wait)

    def batch(self, *operations: Any) -> list[Request]:
        """Begins all of them."""
        begun = []
        for one in operations[0] if len(operations) == 1 and isinstance(operations[0], list | tuple) else operations:
            match one:
                case Request():
                    begun.append(one)
                case P2POp():
                    begun.append(one.op(one.tensor, one.peer))
                case (operation, tensor, peer) if callable(operation):
                    begun.append(operation(tensor, peer))
                case _:
                    raise TypeError("batch takes a list such as [(isend, x, right), (irecv, y, left)]")
        if not all(isinstance(one, Request) for one in begun):
            raise TypeError("batch takes isend and irecv, not send and recv")
        return begun

    def wait_all(self, *requests: Any) -> None:
        """Waits for what isend, irecv or batch gave."""
        for one in requests:
            if isinstance(one, Request):
                one.wait()
            elif isinstance(one, list | tuple):
                self.wait_all(*one)
            else:
                raise TypeError(
                    f"wait takes what isend, irecv or batch gave, not {'nothing' if one is None else type(one).__name__}"
                )

    def _post(self, kind: OpKind, name: str, tensor: Any, peer: Any, tag: Any) -> int:
        if self.left:
            raise _Left
        whom = self._checked(name, kind, tensor, peer, tag)
        self.count += 1
        number, data = self.count, b""
        if kind is OpKind.SEND:
            data = array("f", tensor.values).tobytes()
        said = (kind, name, whom, tag, len(tensor.at), data)
        self._picture(number, False)
        self.play.repeated += 1
        if number > len(self.said):
            if number > MOST_OPERATIONS or self.play.repeated > MOST_REPEATED:
                where = self._where()
                why = f"has begun {number - 1} sends and receives: an endless loop?"
                self._fail(FailureKind.CPU_LIMIT, where=where, message=why)
                raise _Left
            self.said.append(said)
            self._tell_new(kind, name, tensor, (whom, tag), number, data)
        elif said != self.said[number - 1]:
            why = "it did something else when it was run again, as a rank is here whenever it has waited; it must not depend on chance"
            self._fail(FailureKind.EXCEPTION, where=self._where(), error="RuntimeError", message=why)
            raise _Left
        held = data if kind is OpKind.SEND else _POISON * len(tensor.at)
        if kind is OpKind.RECV:
            tensor._write([float("nan")] * len(tensor.at), [PENDING] * len(tensor.at))
        self.pending[number] = _Pending(kind, tensor, held)
        return number

    def _tell_new(
        self, kind: OpKind, name: str, tensor: Vector, whom: tuple[int, int], number: int, data: bytes
    ) -> None:
        where = self._where()
        op = {
            "do": kind,
            "number": number,
            "group": "0",
            "name": name,
            "dtype": "float32",
            "peer": whom[0],
            "tag": whom[1],
        }
        op |= {"numel": len(tensor.at), "where": where}
        if kind is OpKind.SEND:
            op["nbytes"] = len(data)
            if self.play.cast.pictured:
                self.play.marks[self.rank, number] = tensor.marks
        used = next((n for n, p in self.pending.items() if p.overlaps(tensor) and OpKind.RECV in (p.kind, kind)), None)
        self.play.tell(self.rank, op, data)
        if used is not None:
            fills = self.pending[used].kind is OpKind.RECV
            more = {"number": used, "used_by": number, "filled": fills}
            self._fail(FailureKind.CHANGED_BEFORE_WAIT, where=where, **more)
            raise _Left
        if self.play.faulty(self.rank):
            self.left = True
            raise _Left

    def _checked(self, name: str, kind: OpKind, tensor: Any, peer: Any, tag: Any) -> int:
        """The other rank, as a number. Raises what torch would: an error of the wrong kind or value."""
        if not isinstance(tensor, Vector):
            found = "nothing" if tensor is None else f"the {type(tensor).__name__} {tensor!r:.40}"
            raise TypeError(f"{name} takes a vector first, not {found}: tensor([1.0]) makes one of a number")
        if isinstance(peer, Vector) or (isinstance(peer, float) and peer == int(peer)):
            raise TypeError(f"{name} takes the other rank as a whole number: use // for it, or int(...)")
        if isinstance(peer, bool) or not isinstance(peer, int):
            raise TypeError(f"{name} takes the other rank second, a whole number")
        if isinstance(tag, bool) or not isinstance(tag, int):
            raise TypeError(f"{name} takes a whole number as its tag")
        p = self.play.cast.ranks
        if not 0 <= peer < p:
            raise MisuseError(Misuse.NO_SUCH_PEER, f"there is no rank {peer}: the ranks are 0 to {p - 1}")
        if peer == self.rank:
            raise MisuseError(Misuse.OWN_RANK, f"{name} names its own rank, {peer}")
        if not tensor.is_contiguous():
            raise MisuseError(Misuse.GAPS, f"{name} takes numbers that lie side by side: use clone()")
        return peer

    def wait(self, number: int) -> None:
        """Blocks until the operation is complete; what it received is in its vector then."""
        if self.left:
            raise _Left
        if number in self.waited:
            return
        if number not in self.got:
            op = {"do": FrameKind.WAIT, "number": number, "where": self._where(), "told": True}
            self.waiting = number
            if not self.play.tell(self.rank, op):
                self.left = True
                raise _Left
        self.waited.add(number)
        pending = self.pending.pop(number)
        now = array("f", pending.vector.values).tobytes()
        if now != pending.held:
            filled = pending.kind is OpKind.RECV
            self._fail(FailureKind.CHANGED_BEFORE_WAIT, number=number, filled=filled, where=self._where())
            raise _Left
        data = self.got[number]
        if pending.kind is OpKind.RECV and data is not None:
            values = array("f")
            values.frombytes(data)
            pending.vector._write(values, self.play.marks_of(self.rank, number, len(values)))
        self._picture(number, True)

    # -------------------------------------------------------------------------------------------------- how it ends

    def _where(self) -> list[Any]:
        """The line of the code that is at work, and the one that led to it."""
        frame, lines = sys._getframe(1), []
        while frame is not None:
            if frame.f_code.co_filename == FILE:
                lines.append(frame.f_lineno)
            frame = frame.f_back
        if not lines:
            return [FILE, None]
        return [FILE, lines[0] if len(lines) == 1 else [lines[0], lines[-1]]]

    def _fail(self, kind: FailureKind, **more: Any) -> None:
        self.left = self.over = True
        self.play.ended = self.play.ended or kind is FailureKind.CPU_LIMIT  # the others would do the same, for as long
        self.play.tell(self.rank, {"do": FrameKind.FAULT, "kind": kind, **more})

    def _raised(self, error: BaseException, kind: FailureKind = FailureKind.EXCEPTION, **more: Any) -> None:
        lines, trace = [], error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILE:
                lines.append(trace.tb_lineno)
            trace = trace.tb_next
        message = _text_of(error).replace("_Rank.", "")
        if isinstance(error, NameError) and error.name in ("torch", "dist"):
            message += f"; there is no {error.name} here: its names stand alone, such as send and empty_like"
        more |= {"error": type(error).__name__, "message": message}
        if isinstance(error, NameError) and error.name:
            more["missing_name"] = error.name
        if isinstance(error, MisuseError):
            more |= {"error": "ValueError", "misuse": error.misuse}
        self._fail(kind, where=[FILE, lines[-1] if lines else None], **more)

    def _picture(self, op: int, after: bool) -> None:
        self.moments += 1
        if self.play.cast.pictured and self.moments > len(self.pictures):  # else it is there, from the time before
            size = len(self.arg.at)
            kept = {n: list(store.marks) for n, store in enumerate(self.stores) if len(store.marks) == size}
            self.pictures.append(Picture(op, after, kept))


def _text_of(error: BaseException) -> str:
    """What an error says; its own code may be the reader's, and may fail."""
    try:
        return f"there is no key {error}" if isinstance(error, KeyError) and error.args else str(error)
    except (Exception, _Left):
        return ""


class _Play:
    """All ranks of one run, and the router between them."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.router = Router(cast.ranks, _RULES, cast.delivery, cast.seed)
        self.marks: dict[tuple[int, int], list[int]] = {}
        self.ready = deque(range(cast.ranks))
        self.ended = False
        self.repeated = 0
        self.ranks = [_Rank(rank, self) for rank in range(cast.ranks)]

    def tell(self, rank: int, op: dict[str, Any], data: bytes = b"") -> bool:
        """Tells the router; True if the rank itself was answered at once."""
        self.router.take(rank, [op], Body(data))
        return self.deliver(rank)

    def deliver(self, speaker: int | None) -> bool:
        """Gives the ranks what the router answers; True if `speaker` was answered."""
        answered = False
        for rank, _, body in self.router.outbox:
            waiting = self.ranks[rank]
            waiting.got[waiting.waiting] = b"" if body is None else bytes(body.read())
            if rank == speaker:
                answered = True
            else:
                self.ready.append(rank)
        self.router.outbox.clear()
        return answered

    def faulty(self, rank: int) -> bool:
        """Whether the router has stopped the rank."""
        return self.router.ranks[rank].state.value == "fault"

    def marks_of(self, rank: int, number: int, size: int) -> list[int]:
        """The marks of what a receive brought."""
        partner = self.router.ranks[rank].ops[number].partner
        return self.marks.get((partner.rank, partner.number), [0] * size) if partner is not None else [0] * size


def play(cast: Cast) -> Run:
    """Runs the code on all ranks, until each has returned or nobody can go on."""
    made = _Play(cast)
    while not made.ended:
        while made.ready and not made.ended:
            made.ranks[made.ready.popleft()].go()
        if made.ended or not made.router.settle():
            break
        made.deliver(None)
    ranks = made.ranks

    def text(file: str | None, line: int | None) -> str | None:
        return cast.source[line - 1].strip() if line and 0 < line <= len(cast.source) else None

    return Run(
        made.router,
        verdict(made.router, Lines(text), {"cpu_s": 0, "wall_s": 0, "output_limit": MOST_PRINTED, "memory_bytes": 0}),
        [rank.arg for rank in ranks],
        [rank.result for rank in ranks],
        [rank.printed for rank in ranks],
        [rank.reached for rank in ranks],
        made.marks,
        [rank.pictures for rank in ranks],
        [rank.stores for rank in ranks],
    )
