"""The router: takes every rank's operations, matches them, and knows when nobody can go on.

It is a state machine without sockets: `take(rank, operations, body)` changes the state, answers gather in `outbox`.
`requests.py` checks what a rank says; the router never executes or unpickles anything of it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence

from allranks.base.errors import name_ranks
from allranks.ranks.wire import collectives, requests
from allranks.ranks.wire.body import Body, CodecError
from allranks.ranks.wire.failures import FailureKind
from allranks.ranks.wire.frames import Answer, FrameKind
from allranks.ranks.wire.memory_model import Access, Memory, MemoryModel, MemoryOp
from allranks.ranks.wire.messages import PAYLOAD_LOGGED_NBYTES, POINT_TO_POINT, OpKind, Rules, canonical
from allranks.ranks.wire.state import BLOCKED, Frame, Op, Phase, RankState, Used, WireFault

DELIVERIES = ("rendezvous", "buffered", "shuffled")
MAX_OPERATIONS = 200_000
MAX_UNDELIVERED_NBYTES = 2 << 30
_USED_NBYTES = 24 << 20  # kept of what ranks computed with, in all: the largest case has 17 MB
_LOGGED_NBYTES = 8 << 20  # payloads kept for the log, in all: a check keeps the logs of some 40 runs
MAX_FILES = 1000  # how many the report lists for one rank
_POLLS = 1000
_POLLS_AT_WORK = 20  # of a rank that has work left: in a loop they are a wait


Pieces = list[list[list[tuple[float, bytes]]]]  # [rank][call]: (virtual seconds, the bytes that the work makes)


class Router:
    """Matches the operations of one run."""

    def __init__(
        self,
        ranks: int,
        rules: Rules,
        delivery: str = "rendezvous",
        seed: int = 0,
        calls: int = 1,
        pieces: Pieces | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.size, self.rules, self.delivery, self.calls = ranks, rules, delivery, calls
        self.chance = random.Random(seed)
        self.slow = self.chance.randrange(ranks)  # with "shuffled" delivery this rank goes on when no other one can
        self.pieces = (
            pieces  # of work that the ranks may ask for: their own word on how long they compute is refused then
        )
        self.memory = None if memory is None else MemoryModel(memory, ranks, seed)
        self.ranks = [RankState() for _ in range(ranks)]
        self.world = ("0", tuple(range(ranks)))
        for state in self.ranks:
            state.groups["0"] = self.world
        self.made: list[tuple] = []  # groups: (rank, name, members, step, file, line)
        self.log: list[Op] = []
        self.faults: list[WireFault] = []
        self.written: list[tuple[int, str, str | None, int | None]] = []
        self.sends: dict[tuple, deque[Op]] = {}
        self.receives: dict[tuple, deque[Op]] = {}
        self.anysource: list[Op] = []
        self.slots: dict[tuple, dict[int, Op]] = {}
        self.matches = 0
        self.undelivered_nbytes = 0
        self.logged_nbytes = self.used_nbytes = 0
        self.outbox: list[tuple[int, Answer, Body | None]] = []
        self.advancing: deque[int] = deque()  # ranks whose queue may go on
        self.going_on: deque[int] = deque()  # ranks of which what was held is taken now
        # ranks that turned out to have said what our own code would not, and what
        self.broken: list[tuple[int, str]] = []
        self.running = ranks
        self.finished = False

    # ------------------------------------------------------------------------------------------ what a rank says

    def take(self, rank: int, operations: object, body: Body) -> None:
        """Takes a frame of a rank. Raises CodecError if our own code would not write such a frame."""
        state = self.ranks[rank]
        if not isinstance(operations, list):
            raise CodecError("a frame holds no operations")
        frame = Frame(operations, body)
        try:
            if state.ahead:
                self._hold(rank, state, frame)
            else:
                self._take_frame(rank, state, frame)
        finally:
            self._go_on()

    def _take_frame(self, rank: int, state: RankState, frame: Frame) -> None:
        operations, single = frame.operations, len(frame.operations) == 1
        while frame.index < len(operations):
            op = operations[frame.index]
            if state.state is not Phase.RUNNING and not (state.state in BLOCKED and _of_a_thread(op)):
                if state.ahead:
                    self._hold(rank, state, frame)
                return  # a rank that made a fault stops here: the rest of the frame is ignored
            frame.index += 1
            try:
                frame.at = self._take_one(rank, state, op, frame.body, frame.at, single)
            except requests.MALFORMED as error:
                raise CodecError(f"an operation is malformed: {error}") from None

    def _hold(self, rank: int, state: RankState, frame: Frame) -> None:
        """Keeps what the rank says while it waits for a send. What a thread reports of itself is taken at once."""
        if state.state is Phase.FAULT:
            return
        for op in frame.operations[frame.index :]:
            if state.state in BLOCKED and _of_a_thread(op):
                self._take_frame(rank, state, Frame([op], Body()))
                return
        state.held.append(frame)
        state.held_operations += 1 + len(frame.operations)  # an empty frame takes memory too
        state.held_nbytes += frame.body.nbytes
        if state.held_operations > MAX_OPERATIONS:
            why = f"the ranks have made {MAX_OPERATIONS} operations: an endless loop?"
            self.fault(FailureKind.CPU_LIMIT, rank, state.file, state.line, why)
        elif state.held_nbytes > MAX_UNDELIVERED_NBYTES:
            why = "the ranks have sent gigabytes that nobody received: an endless loop?"
            self.fault(FailureKind.MEMORY, rank, state.file, state.line, why)

    def _go_on(self) -> None:
        """Takes what was held of the ranks whose sends are complete now."""
        while self.going_on:
            rank = self.going_on.popleft()
            state = self.ranks[rank]
            while state.held and state.state is Phase.RUNNING:
                frame = state.held.popleft()
                state.held_operations -= 1 + len(frame.operations)
                state.held_nbytes -= frame.body.nbytes
                later, state.held = state.held, deque()
                try:
                    self._take_frame(rank, state, frame)
                except CodecError as error:
                    self.broken.append((rank, str(error)))
                    break
                if state.ahead or state.state is Phase.RUNNING:
                    state.held += later
                else:  # what a rank says while it waits is ignored
                    state.held_operations = state.held_nbytes = 0

    def _take_one(self, rank: int, state: RankState, op: dict, body: Body, at: int, single: bool) -> int:
        file, line = requests.read_place(op)
        match op["do"]:
            case OpKind.SEND | OpKind.RECV | OpKind.COLLECTIVE:
                known = requests.read_operation(op, rank, state, file, line)
                state.ops[known.number] = known
                self.log.append(known)
                state.program.append(("post", known, line))
                known.body, at = requests.read_payload(op, body, at, single)
                self._post(rank, state, known)
            case FrameKind.WAIT:
                waited = state.ops[op["number"]]
                state.on, state.file, state.line = waited, file or waited.file, line or waited.line
                if not waited.waited:
                    state.program.append(("wait", waited, state.line))
                waited.waited = True
                if waited.number in state.told:
                    state.told.remove(waited.number)
                    state.on = None
                    if op.get("told") is True:
                        self.outbox.append((rank, {}, None))
                else:
                    state.ahead = op.get("ahead") is True
                    if state.ahead and waited.kind is not OpKind.SEND:
                        raise CodecError("a rank goes on without what it waits for")
                    self._stop(state, Phase.WAITING)
                    if waited.complete:
                        self._release(rank)
            case FrameKind.POLL:
                state.on, state.file, state.line = state.ops[op["number"]], file, line
                self._stop(state, Phase.POLLING)
            case FrameKind.GROUP:
                name, members = requests.read_group(op, rank, self.size)
                if len(self.made) >= MAX_OPERATIONS:
                    raise CodecError("the ranks make too many groups")
                state.groups[name] = (name, members)
                self.made.append((rank, name, members, len(state.ops), file, line))
            case FrameKind.COMPUTE:
                seconds = requests.read_seconds(op)
                if self.pieces is not None:
                    raise CodecError("a rank says how long it computes, but the router hands out its work")
                if len(state.work) >= MAX_OPERATIONS:
                    raise CodecError("a rank computes too often")
                state.work[len(state.program)] = seconds
                self._keep_line(state, line)
                state.program.append(("compute", None, None))
            case FrameKind.PIECE:
                data, at = requests.read_payload(op, body, at, single)
                if data is not None:
                    self._keep_used(state, data, line)
                self._keep_line(state, line)
                self._hand_out(rank, state, requests.read_count(op), quiet=op.get("quiet") is True)
            case FrameKind.MEMORY:
                at = self._access(rank, state, op, body, at, single)
            case FrameKind.CALL:
                state.call += 1
                if state.call >= self.calls:  # what is counted call by call would leave these operations out
                    raise CodecError("a rank begins a call that nobody asked for")
            case FrameKind.WRITE:
                state.files += 1
                if state.files <= MAX_FILES:
                    self.written.append((rank, requests.read_path(op), file, line))
            case FrameKind.CHANGED:
                state.changed = True
            case FrameKind.FAULT:
                self._fail(requests.read_fault(op, rank, state, self.rules.nccl))
            case FrameKind.DONE:
                state.result = (op, body)
                self._stop(state, Phase.DONE)
            case _:
                raise CodecError("an operation is unknown")
        return at

    def _hand_out(self, rank: int, state: RankState, count: int, *, quiet: bool) -> None:
        """Answers with the last of the rank's next `count` pieces of work in this call, and notes how long they take."""
        made = [] if self.pieces is None else self.pieces[rank][state.call]
        if not made or len(state.work) >= MAX_OPERATIONS:
            raise CodecError("a rank asks for work that there is not")
        first = state.taken.get(state.call, 0)
        taken = [made[(first + i) % len(made)] for i in range(count)]  # from the first one again: that takes time too
        result = taken[-1][1]
        state.taken[state.call] = first + count
        state.work[len(state.program)] = sum(seconds for seconds, _ in taken)
        state.program.append(("compute", None, None))
        if not quiet:
            self.outbox.append((rank, {}, Body.of([result])))

    @staticmethod
    def _keep_line(state: RankState, line: int | None) -> None:
        """Keeps from which line the rank's next piece of work comes."""
        if line is not None:
            state.lines[len(state.program)] = line

    def _keep_used(self, state: RankState, data: Body, line: int | None) -> None:
        """Keeps what a rank says that it computes with; nothing of it, if there is much."""
        fits = self.used_nbytes + data.nbytes <= _USED_NBYTES
        self.used_nbytes += data.nbytes if fits else 0
        kept = bytes(data.read()) if fits else b""
        state.used.append(Used(state.call, state.taken.get(state.call, 0), kept, line, len(state.program)))

    def _access(self, rank: int, state: RankState, op: dict, body: Body, at: int, single: bool) -> int:
        """Queues what the rank does with the memory: its turn comes when every rank has stopped."""
        if self.memory is None:
            raise CodecError("a rank uses a memory that this run does not have")
        data, at = requests.read_payload(op, body, at, single)
        known = requests.read_memory(op, rank, state, self.memory, None if data is None else bytes(data.read()))
        self.memory.queues[rank].append(known)
        standing = _standing_for(known, self.world, len(state.ops))
        if len(self.memory.done) + sum(map(len, self.memory.queues)) > MAX_OPERATIONS:
            why = f"the ranks have made {MAX_OPERATIONS} operations: an endless loop?"
            self.fault(FailureKind.CPU_LIMIT, rank, known.file, known.line, why, (standing,))
        elif known.kind in (Access.GET, Access.WAIT):
            state.on, state.file, state.line = standing, known.file, known.line
            self._stop(state, Phase.ACCESSING)
        return at

    # ----------------------------------------------------------------------------------------- rules and matching

    def _post(self, rank: int, state: RankState, op: Op) -> None:
        self.undelivered_nbytes += op.nbytes if op.body is not None else 0
        if len(self.log) > MAX_OPERATIONS:
            why = f"the ranks have made {MAX_OPERATIONS} operations: an endless loop?"
            self.fault(FailureKind.CPU_LIMIT, rank, op.file, op.line, why, (op,))
            return
        if self.undelivered_nbytes > MAX_UNDELIVERED_NBYTES:
            why = "the ranks have sent gigabytes that nobody received: an endless loop?"
            self.fault(FailureKind.MEMORY, rank, op.file, op.line, why, (op,))
            return
        if (
            op.nbytes <= PAYLOAD_LOGGED_NBYTES
            and self.logged_nbytes + op.nbytes <= _LOGGED_NBYTES
            and op.kind is not OpKind.RECV
        ):
            op.payload = b"" if op.body is None else bytes(op.body.read())
            self.logged_nbytes += op.nbytes
        if op.kind is OpKind.COLLECTIVE:
            name = canonical(op.collective)
            if "object" in op.name or not self.rules.allows(name):
                self.fault(FailureKind.FORBIDDEN_OP, rank, op.file, op.line, ops=(op,))
                return
            if canonical(op.name) != name:
                op.name = name
            self._begin(state, op)
            return
        if op.name not in POINT_TO_POINT and "object" not in op.name:
            op.name = "isend" if op.kind is OpKind.SEND else "irecv"
        if "object" in op.name or not self.rules.allows(op.name):
            self.fault(FailureKind.FORBIDDEN_OP, rank, op.file, op.line, ops=(op,))
            return
        if op.peer is not None and not self.rules.allows_peer(rank, op.peer, self.size):
            self.fault(FailureKind.FORBIDDEN_PEER, rank, op.file, op.line, ops=(op,))
            return
        self._begin(state, op)

    def _begin(self, state: RankState, op: Op) -> None:
        """Lets an operation find its partners: at once, or under NCCL's rules when it is at the head of its rank's queue."""
        if not self.rules.nccl:
            self._start(op)
            return
        state.queue.append(op)
        self._advance(op.rank)

    def _advance(self, rank: int) -> None:
        """Starts what the rank's queue holds, as far as it goes; what that completes may let other ranks' queues go on."""
        self.advancing.append(rank)
        if len(self.advancing) > 1:
            return  # the loop below comes to it
        try:
            while self.advancing:
                self._advance_one(self.ranks[self.advancing[0]])
                self.advancing.popleft()
        finally:
            self.advancing.clear()

    def _advance_one(self, state: RankState) -> None:
        while state.queue:
            op, before = state.queue[0], state.started
            if op.batch is None or not before or before[0].batch != op.batch:
                if not all(earlier.complete for earlier in before):
                    return
                state.started = []
            state.started.append(state.queue.popleft())
            self._start(op)

    def holding(self, op: Op) -> Op:
        """What must be complete first: under NCCL's rules an earlier operation of the rank, else the operation itself."""
        started = self.ranks[op.rank].started
        if not self.rules.nccl or op.complete or op in started:
            return op
        return next((earlier for earlier in started if not earlier.complete), op)

    def _start(self, op: Op) -> None:
        if op.kind is OpKind.COLLECTIVE:
            self._enter(self.ranks[op.rank], op)
        elif op.kind is OpKind.SEND:
            self._offer(op)
        elif op.peer is None:
            self.anysource.append(op)
        else:
            key = (op.group, op.peer, op.rank, self._tag(op))
            waiting = self.sends.get(key)
            if waiting:
                self._match(waiting.popleft(), op)
            else:
                self.receives.setdefault(key, deque()).append(op)

    def _offer(self, op: Op) -> None:
        key = (op.group, op.rank, op.peer, self._tag(op))
        waiting = self.receives.get(key)
        if waiting:
            self._match(op, waiting.popleft())
        else:
            self.sends.setdefault(key, deque()).append(op)
            if self.delivery == "buffered":
                self._complete(op)

    def _tag(self, op: Op) -> int:
        """The tag by which messages meet; NCCL ignores it."""
        return 0 if self.rules.nccl else op.tag

    def _match(self, send: Op, recv: Op) -> None:
        send.partner, recv.partner = recv, send
        send.match = recv.match = self.matches
        self.matches += 1
        recv.body = send.body
        if send.tag != recv.tag:
            self.faults.append(_swapped(send, recv))
            return
        if send.dtype != recv.dtype or send.numel != recv.numel:
            kind = FailureKind.DTYPE_MISMATCH if send.dtype != recv.dtype else FailureKind.SIZE_MISMATCH
            first = min((send, recv), key=lambda op: (op.index, op.rank))
            self.faults.append(WireFault(kind, recv.rank, first.index, recv.file, recv.line, ops=(send, recv)))
            return
        recv.received_nbytes = send.nbytes
        if not send.complete:
            self._complete(send)
        self._complete(recv)

    def _enter(self, state: RankState, op: Op) -> None:
        op.sequence = state.sequences.get(op.group, 0)
        state.sequences[op.group] = op.sequence + 1
        slot = self.slots.setdefault((op.group, op.sequence), {})
        slot[op.rank] = op
        if len(slot) < len(op.group[1]):
            return
        members = [slot[r] for r in op.group[1]]
        number, self.matches = self.matches, self.matches + 1
        for member in members:
            member.match = number
        problem = collectives.disagreement(members)
        if problem is not None:
            kind, culprit, message = problem
            self.faults.append(
                WireFault(kind, culprit.rank, culprit.index, culprit.file, culprit.line, message, tuple(members))
            )
            return
        for member, body in zip(members, collectives.compute(members), strict=True):
            self.undelivered_nbytes -= member.nbytes if member.body is not None else 0
            member.body = body
            self.undelivered_nbytes += collectives.held_nbytes(member)
            self._complete(member)

    # ------------------------------------------------------------------------------------- who goes on, and when

    def _stop(self, state: RankState, phase: Phase) -> None:
        state.state = phase
        self.running -= 1

    def _complete(self, op: Op) -> None:
        op.complete = True
        state = self.ranks[op.rank]
        if self.rules.nccl:
            self._advance(op.rank)
        if state.state is Phase.WAITING and state.on is op:
            self._release(op.rank)
        elif op.kind is OpKind.SEND:
            state.tell.append(op.number)

    def _release(self, rank: int) -> None:
        """The rank may go on: at once, or when its turn is drawn."""
        state = self.ranks[rank]
        if self.delivery == "shuffled":
            state.state = Phase.RELEASED
        else:
            self._answer(rank)

    def _answer(self, rank: int) -> None:
        state = self.ranks[rank]
        op, state.on = state.on, None
        state.state, state.polls = Phase.RUNNING, 0
        self.running += 1
        message: Answer = {}
        done = [n for n in state.tell if n != op.number]
        state.tell = []
        if done:
            state.told.update(done)
            message["complete_sends"] = done
        if state.ahead:  # its process has gone on: there is nothing to tell
            state.ahead = False
            self.going_on.append(rank)
            return
        if op.kind is OpKind.RECV:
            message["source"] = op.group[1].index(op.partner.rank)
        body = None
        if op.kind is not OpKind.SEND:
            if op.kind is OpKind.COLLECTIVE:
                self.undelivered_nbytes -= collectives.held_nbytes(op)
            body, op.body = op.body, None
            if op.partner is not None and op.partner.body is not None:  # once, however often a rank says that it waits
                op.partner.body = None
                self.undelivered_nbytes -= op.partner.nbytes
        self.outbox.append((rank, message, body))

    def settle(self) -> bool:
        """Called when no rank runs: finds a rank that can continue. False if the run is over, with or without a fault."""
        while self.running == 0:
            if not (
                self._match_anysource()
                or self._draw()
                or self._advance_memory()
                or (not self.faults and self._answer_polls())
            ):
                self.finished = True
                return False
            self._go_on()
        return True

    def _advance_memory(self) -> bool:
        """Lets the ranks use the memory, one operation at a time, until one of them has what it waits for."""
        done = None if self.memory is None or self.faults else self.memory.advance()
        if done is None:
            return False
        op, got = done
        state = self.ranks[op.rank]
        state.state, state.on = Phase.RUNNING, None
        self.running += 1
        self.outbox.append((op.rank, {}, Body.of([got])))
        return True

    def _match_anysource(self) -> bool:
        """Matches a receive from any source with a message: the one with the lowest operation number on its sender.

        With "shuffled" delivery it is drawn at random.
        """
        for recv in sorted(self.anysource, key=lambda op: (op.index, op.rank)):
            offers = [
                queue[0]
                for (group, _, dst, tag), queue in self.sends.items()
                if queue and group == recv.group and dst == recv.rank and tag == recv.tag
            ]
            if not offers:
                continue
            offers.sort(key=lambda op: (op.index, op.rank))
            if self.delivery == "shuffled":  # one of the latest call, so that it overtakes those of the call before
                latest = max(op.call for op in offers)
                chosen = self.chance.choice([op for op in offers if op.call == latest])
            else:
                chosen = offers[0]
            self.sends[chosen.group, chosen.rank, chosen.peer, chosen.tag].popleft()
            self.anysource.remove(recv)
            self._match(chosen, recv)
            return True
        return False

    def _draw(self) -> bool:
        """Lets one rank continue whose wait is over, drawn at random (only with "shuffled" delivery)."""
        ready = [r for r, state in enumerate(self.ranks) if state.state is Phase.RELEASED]
        if ready:
            self._answer(self.chance.choice([r for r in ready if r != self.slow] or ready))
        return bool(ready)

    def _answer_polls(self) -> bool:
        """Answers the ranks that asked whether an operation is complete. Called when no other rank can continue first."""
        polling = [(r, state) for r, state in enumerate(self.ranks) if state.state is Phase.POLLING]
        complete = [pair for pair in polling if pair[1].on.complete and not self._works(*pair)]
        for rank, state in complete or polling:
            if state.polls >= (_POLLS_AT_WORK if self._works(rank, state) else _POLLS):
                continue
            state.polls = 0 if complete else state.polls + 1
            state.state = Phase.RUNNING
            self.running += 1
            self.outbox.append((rank, {"complete": state.on.complete and not self._works(rank, state)}, None))
        return self.running > 0

    def _works(self, rank: int, state: RankState) -> bool:
        """Whether the rank has work left in this call: until then a poll is told that nothing is complete, or it would be a wait."""
        made = [] if self.pieces is None else self.pieces[rank][state.call]
        return 0 < state.taken.get(state.call, 0) < len(made)

    # --------------------------------------------------------------------------------------------------- the end

    def fault(
        self, kind: FailureKind, rank: int, file=None, line=None, message: str = "", ops: Sequence[Op] = ()
    ) -> None:
        """Notes a fault of `rank` and stops that rank."""
        self._fail(WireFault(kind, rank, len(self.ranks[rank].ops), file, line, message, tuple(ops)))

    def _fail(self, fault: WireFault) -> None:
        state = self.ranks[fault.rank]
        if state.state is Phase.RUNNING:
            self.running -= 1
        state.state, state.ahead = Phase.FAULT, False
        state.held.clear()
        self.faults.append(fault)

    def first_fault(self) -> WireFault | None:
        """The fault with the lowest operation number; among equals, the one on the lowest rank."""
        return min((*self._groups_apart(), *self.faults), key=lambda f: (f.step, f.rank), default=None)

    def _groups_apart(self) -> Iterator[WireFault]:
        """A fault for each group whose members differ from those of the group of the same name on a lower rank.

        gloo would treat the two as one group.
        """
        first: dict[str, tuple[int, tuple[int, ...]]] = {}
        for rank, name, members, step, file, line in sorted(self.made, key=lambda made: made[0]):
            lower, theirs = first.setdefault(name, (rank, members))
            if members != theirs:
                yield WireFault(FailureKind.DESYNC, rank, step, file, line, _other_group(lower, theirs, members))

    def stuck(self) -> bool:
        """Whether some rank waits for what never comes."""
        return any(state.state in BLOCKED for state in self.ranks)

    def forget(self) -> None:
        """Frees what nobody reads after the verdict: the bytes of all messages and of the results."""
        for held in (self.sends, self.receives, self.anysource, self.slots, self.outbox):
            held.clear()
        for op in self.log:
            op.body = None
        for state in self.ranks:
            state.result = None
            state.held.clear()


def _standing_for(access: MemoryOp, world: tuple, index: int) -> Op:
    """An operation that says, where ranks wait for each other, that this one waits in the memory."""
    return Op(
        access.rank, 0, index, access.call, OpKind.RECV, access.kind, world, access.file, access.line, peer=access.peer
    )


def _of_a_thread(op: object) -> bool:
    """Whether a thread reports itself while its rank waits."""
    return isinstance(op, dict) and op.get("do") == FrameKind.FAULT and op.get("kind") == FailureKind.THREAD


def _swapped(send: Op, recv: Op) -> WireFault:
    """The fault of a receive that gets a message with another tag, under NCCL's rules."""
    from allranks.ranks.nccl_rules.refusals import Rule, tag_order  # it takes time to import

    first = min((send, recv), key=lambda op: (op.index, op.rank))
    message = tag_order(send.tag, recv.tag, send.rank)
    return WireFault(
        FailureKind.NCCL_RULE,
        recv.rank,
        first.index,
        recv.file,
        recv.line,
        message,
        ops=(recv, send),
        rule=Rule.TAG_ORDER,
    )


def _other_group(lower: int, theirs: tuple[int, ...], members: tuple[int, ...]) -> str:
    return (
        f"it makes a group of {name_ranks(members)}, but rank {lower} makes one of {name_ranks(theirs)}. "
        "new_group is itself collective: every rank calls it for every group, in one order"
    )
