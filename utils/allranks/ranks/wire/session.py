"""One run: the sockets and processes on one side, the router on the other."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field

from allranks.ranks.wire import launch, values
from allranks.ranks.wire.body import CodecError
from allranks.ranks.wire.codec import Channel
from allranks.ranks.wire.failures import FailureKind
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.state import Phase, WireFault

MAX_TEXT_NBYTES = 128 << 20  # of what the ranks tell the router in one run, beside the messages themselves
GRACE_S = 0.3  # how long others may go on after a fault, so that the verdict does not depend on who was first
# how long a rank may take to say where it is, or that it has stopped: a busy machine does not wake it at once
ANSWER_S = 2.0
ENDED_S = 5.0  # and between the end of its socket and its own
_MAKES_UNUSABLE = {
    FailureKind.CPU_LIMIT,
    FailureKind.WALL_LIMIT,
    FailureKind.MEMORY,
    FailureKind.OUTPUT,
    FailureKind.FORKED,
    FailureKind.THREAD,
    FailureKind.KILLED,
    FailureKind.EXITED,
}


@dataclass(eq=False)
class Member:
    """One rank's process and what is known of it."""

    process: launch.Process
    channel: Channel
    output: int = -1
    ready: bool = False
    text: bytearray = field(default_factory=bytearray)
    printed_nbytes: int = 0
    gone: bool = False
    output_closed: bool = False  # it has closed its output
    alone: bool = False  # it has run an answer without the course's modules

    def alive(self) -> bool:
        """Whether the process serves: between two runs its end of the socket is open and silent."""
        try:
            self.channel.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self.process.poll() is None
        except OSError:
            pass
        return False

    def close(self) -> None:
        self.channel.close()
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


class Session:
    """The input and output of one run: feeds the router from the sockets until it is over."""

    def __init__(self, members: list[Member], router: Router, limits: dict) -> None:
        self.members, self.router, self.limits = members, router, limits
        self.selector = selectors.DefaultSelector()
        self.text_nbytes = 0  # of the JSON of all ranks

    def begin(self, job: dict, fn, jobs: list, guard: bool) -> None:
        """Sends every rank its job."""
        fn = values.Pickled(fn)
        for rank, member in enumerate(self.members):
            member.text, member.printed_nbytes = bytearray(), 0
            self.drain(rank, member, forget=True)
            message, body = values.pack({**job, "rank": rank}, (fn, jobs[rank]), trusting=True, guard=guard)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended; its socket will say so
                member.channel.send(message, body)
            self.selector.register(member.channel, self._events(member), (rank, member, "frames"))
            self.selector.register(member.output, selectors.EVENT_READ, (rank, member, "output"))

    @staticmethod
    def _events(member: Member) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if member.channel.outgoing else 0)

    def loop(self, deadline: float) -> None:
        """Runs until the router is finished or the time is over."""
        router = self.router
        try:
            while True:
                while router.broken:
                    rank, why = router.broken.pop()
                    self.lose_for(rank, why)
                self.answer()
                if router.running == 0:
                    if not router.settle():
                        break
                    continue
                now = time.monotonic()
                if router.faults:
                    deadline = min(deadline, now + GRACE_S)
                if now >= deadline:
                    self.too_late()
                    break
                for key, events in self.selector.select(deadline - now):
                    self.serve(events, *key.data)
        finally:
            for rank, member in enumerate(self.members):
                self.drain(rank, member)
            self.selector.close()

    def serve(self, events: int, rank: int, member: Member, what: str) -> None:
        """One ready descriptor."""
        if what == "output":
            self.drain(rank, member)
            return
        if events & selectors.EVENT_WRITE:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended; its socket will say so
                if member.channel.push():
                    self.selector.modify(member.channel, selectors.EVENT_READ, (rank, member, "frames"))
        if not events & selectors.EVENT_READ or member.gone:
            return
        try:
            alive = member.channel.pull()
            while (frame := member.channel.frame()) is not None:
                self.router.take(rank, *frame)
                self.text_nbytes += member.channel.taken_nbytes
                if self.text_nbytes > MAX_TEXT_NBYTES:
                    self.too_much_metadata(rank)
                    return
        except CodecError as error:
            self.lose_for(rank, str(error))
            return
        except OSError:
            alive = False
        if not alive:
            self.lose(rank, member, None)

    def too_much_metadata(self, rank: int) -> None:
        """Too much metadata: blames the rank that crossed the limit."""
        state = self.router.ranks[rank]
        if state.state is not Phase.FAULT:
            why = "the ranks have told the router megabytes about their operations: an endless loop?"
            self.router.fault(FailureKind.MEMORY, rank, message=why, ops=tuple(state.ops.values())[-1:])

    def lose_for(self, rank: int, why: str) -> None:
        """The rank has said what our own code would not."""
        if not self.members[rank].gone:
            self.lose(rank, self.members[rank], f"sent something that is not the wire's own ({why})")

    def lose(self, rank: int, member: Member, reason: str | None) -> None:
        """The rank's process has ended, or is not to be trusted any longer."""
        member.gone = True
        self.selector.unregister(member.channel)
        member.channel.close()  # with all the descriptors that the rank may have put there
        if self.router.ranks[rank].state is Phase.FAULT:
            return
        if reason is not None:
            self.router.fault(FailureKind.KILLED, rank, message=reason)
            return
        launch.ended([member.process], ENDED_S)
        code = member.process.poll()
        if code is not None and code >= 0:
            self.router.fault(FailureKind.EXITED, rank, message=f"exit code {code}")
        elif code == -signal.SIGXCPU:
            self.router.fault(FailureKind.CPU_LIMIT, rank)
        else:
            name = "its socket was closed" if code is None else f"was killed by {signal.Signals(-code).name}"
            self.router.fault(FailureKind.KILLED, rank, message=name)

    def drain(self, rank: int, member: Member, forget: bool = False) -> None:
        """Takes what the rank has printed; ends the run if it is far too much."""
        keep = self.limits["output_bytes"]
        while member.output >= 0:
            try:
                data = os.read(member.output, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                member.output_closed = True
                with contextlib.suppress(KeyError, ValueError):
                    self.selector.unregister(member.output)
                return
            if forget:
                continue
            member.text += data[: max(0, keep - len(member.text))]
            member.printed_nbytes += len(data)
            if member.printed_nbytes > self.limits["output_limit"]:
                if self.router.ranks[rank].state is not Phase.FAULT:
                    self.router.fault(FailureKind.OUTPUT, rank)
                with contextlib.suppress(KeyError, ValueError):
                    self.selector.unregister(member.output)
                return

    def answer(self) -> None:
        """Sends the router's answers."""
        outbox, self.router.outbox = self.router.outbox, []
        for rank, message, body in outbox:
            member = self.members[rank]
            if member.gone:
                continue
            try:
                member.channel.send(message, body)
            except OSError:
                continue  # it has ended; its socket will say so
            if member.channel.outgoing:
                self.selector.modify(member.channel, self._events(member), (rank, member, "frames"))

    def too_late(self) -> None:
        """Time is over: asks the ranks that still run where they are, then gives them up."""
        router = self.router
        running = [r for r, state in enumerate(router.ranks) if state.state is Phase.RUNNING]
        if router.faults:
            return  # the grace after a fault is over; the others are no fault of their own
        for rank in running:
            self.members[rank].process.kill(signal.SIGUSR1)
        deadline = time.monotonic() + ANSWER_S
        while any(router.ranks[r].state is Phase.RUNNING for r in running) and time.monotonic() < deadline:
            for key, events in self.selector.select(deadline - time.monotonic()):
                self.serve(events, *key.data)
        for rank in running:
            if router.ranks[rank].state is Phase.RUNNING:
                router.fault(FailureKind.WALL_LIMIT, rank)

    def results(self, many: bool, jobs: list, final_args: bool) -> tuple[list, list]:
        """(what each rank returned, its arguments after each call; none of these without `final_args`)."""
        results, finals = [], []
        for rank, state in enumerate(self.router.ranks):
            made, after = None, None
            if state.state is Phase.DONE:
                op, body = state.result
                try:
                    returned, after = values.unpack(op, body)
                    made = returned if many else returned[0]
                    wanted = jobs[rank] if final_args else []
                    after = [_filled(new, old) for new, old in zip(after, wanted, strict=True)]
                except (CodecError, KeyError, TypeError, ValueError, IndexError) as error:
                    made = after = None
                    self.router.faults.append(
                        WireFault(FailureKind.KILLED, rank, len(state.ops), message=f"returned nonsense ({error})")
                    )
            results.append(made)
            finals.append(after)
        return results, finals

    def output(self) -> list[str]:
        """What each rank printed, as far as it was kept."""
        texts = []
        for member in self.members:
            text = member.text.decode(errors="replace")
            dropped = member.printed_nbytes - len(member.text)
            texts.append(text + (f"\n... ({dropped} more bytes were dropped)\n" if dropped else ""))
        return texts

    def kill_children(self) -> None:
        """Kills processes that ranks have started in spite of the guard, and names those ranks."""
        for rank, member in enumerate(self.members):
            children: list[int] = getattr(member.process, "children", list)()
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if children:
                self.router.faults.append(WireFault(FailureKind.FORKED, rank, 0))

    def stop_ranks(self) -> list[int]:
        """Stops the ranks that have not returned; those whose processes can't be used again."""
        spoiled, waiting = set(), {}
        for rank, (member, state) in enumerate(zip(self.members, self.router.ranks, strict=True)):
            unread = bool(member.channel.outgoing)  # answers, with the memory that they carry
            running = state.state is Phase.RUNNING
            if member.gone or member.output_closed or unread or running or state.changed or rank in self.unusable():
                spoiled.add(rank)
            elif state.state is not Phase.DONE:
                waiting[rank] = member
        selector = selectors.DefaultSelector()
        for rank, member in list(waiting.items()):
            try:
                member.channel.send({"stop": True})
                selector.register(member.channel, selectors.EVENT_READ, rank)
            except OSError:
                del waiting[rank]
                spoiled.add(rank)
        deadline = time.monotonic() + ANSWER_S
        while waiting and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                member = self.members[key.data]
                try:
                    alive, stopped = member.channel.pull(), False
                    while (frame := member.channel.frame()) is not None:
                        message, _ = frame
                        if isinstance(message, dict) and "stopped" in message:
                            stopped = True
                            if message.get("changed") is not False:
                                spoiled.add(key.data)
                except (CodecError, OSError):
                    alive, stopped = False, False
                if stopped or not alive:
                    selector.unregister(member.channel)
                    del waiting[key.data]
                    if not stopped:
                        spoiled.add(key.data)
        selector.close()
        return sorted(spoiled | set(waiting))

    def unusable(self) -> set[int]:
        """The ranks whose fault may have left something behind in their process."""
        return {f.rank for f in self.router.faults if f.kind in _MAKES_UNUSABLE}


def _filled(new, old):
    """The argument that came back, with the caller's own object if it could not."""
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(new) == len(old):
        return type(old)(_filled(n, o) for n, o in zip(new, old, strict=True))
    if isinstance(old, dict) and isinstance(new, dict):
        return {k: _filled(v, old.get(k)) for k, v in new.items()}
    return old if new is None else new
