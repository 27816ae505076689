"""Why nobody can go on: who waits for whom, and what to change."""

from __future__ import annotations

from allranks.base.errors import capital, name_ranks
from allranks.ranks.wire.failures import DeadlockCause, Failure, FailureKind
from allranks.ranks.wire.memory_model import MemoryModel, MemoryOp
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.state import BLOCKED, Op, Phase, RankState
from allranks.ranks.wire.student_code import Lines
from allranks.ranks.wire.wait import Doing, Unmet, Wait

_DOING = {Phase.DONE: Doing.RETURNED, Phase.FAULT: Doing.STOPPED}
_SAME_ADVICE = {  # that needs no rank, line or tag
    DeadlockCause.OWN_MESSAGE: "A rank that sends to itself must post the receive first, with irecv.",
    DeadlockCause.SENDS_FIRST: (
        "A send may wait until its receiver is there: start one of the two with isend or irecv, use batch_isend_irecv, "
        "or let every other rank receive first."
    ),
    DeadlockCause.SENDS_AWAITED_FIRST: (
        "An isend may be complete only when it is received: post the receive first, then wait for the isend."
    ),
    DeadlockCause.RECEIVES_FIRST: (
        "None of them has sent: if the send comes after the receive, start it before, with isend, or let some ranks send first; "
        "if there is no send to the rank that waits, it is missing."
    ),
    DeadlockCause.TOO_MANY_RECEIVES: (
        "What they sent has all been received: one receive is too many, or a send is missing or comes too late."
    ),
    DeadlockCause.NOT_IN_A_BATCH: (
        "NCCL runs a rank's operations one after the other, so an isend or irecv outside a batch holds up the rank's next "
        "operation: give all that must run at the same time to one dist.batch_isend_irecv."
    ),
    DeadlockCause.GROUP_ORDER: (
        "NCCL runs a rank's collectives one after the other, also those of different groups: call them in the same order on "
        "all ranks."
    ),
    DeadlockCause.QUEUE_ORDER: (
        "NCCL runs a rank's operations one after the other: start them in the same order on all ranks that take part."
    ),
    DeadlockCause.ORDER: (
        "Each rank waits for an operation that another rank starts only later: check the order of the operations."
    ),
}
_BATCH_ADVICE = (
    "Send and receive in one dist.batch_isend_irecv, or let every other rank receive first; on NCCL an isend or irecv outside "
    "a batch would hold up the rank's next operation."
)
_NCCL_ADVICE = dict.fromkeys(
    (DeadlockCause.SENDS_FIRST, DeadlockCause.SENDS_AWAITED_FIRST, DeadlockCause.RECEIVES_FIRST), _BATCH_ADVICE
)


def waits(router: Router, lines: Lines) -> tuple[Wait, ...]:
    """What every rank does."""
    return tuple(_wait(router, rank, state, lines) for rank, state in enumerate(router.ranks))


def _wait(router: Router, rank: int, state: RankState, lines: Lines) -> Wait:
    op = state.on
    if op is None or state.state not in BLOCKED:
        return Wait(rank, _DOING.get(state.state, Doing.RUNNING))
    head = router.holding(op)
    peers = awaited(router, head)
    return Wait(
        rank,
        op=op.called if op.line == state.line or state.line is None else f"wait() of {op.called}",
        kind=op.kind,
        peer=peers[0] if peers else None,
        line=state.line,
        place=lines.place(state.line),
        text=lines.text(state.file, state.line),
        tag=op.tag,
        peers=peers,
        nbytes=op.nbytes,
        held_by="" if head is op else head.called,
        held_line=None if head is op else head.line,
        held_place="" if head is op else lines.place(head.line),
    )


def unmet(router: Router, lines: Lines) -> tuple[Unmet, ...]:
    """The messages that found no partner, by rank."""
    left = [op for op in router.log if (op.partner is None if op.kind is not OpKind.COLLECTIVE else not op.complete)]
    return tuple(
        Unmet(
            op.rank,
            op.called,
            op.kind,
            awaited(router, op) if op.peer is not None or op.kind is OpKind.COLLECTIVE else (),
            op.nbytes,
            op.tag,
            lines.place(op.line),
        )
        for op in sorted(left, key=_rank_and_index)
    )


def awaited(router: Router, op: Op) -> tuple[int, ...]:
    """Whom an operation waits for."""
    if op.kind is OpKind.COLLECTIVE:
        slot = router.slots.get((op.group, op.sequence), {})
        return tuple(r for r in op.group[1] if r not in slot)
    if op.peer is not None:
        return (op.peer,)
    return tuple(r for r in op.group[1] if r != op.rank)


def find_deadlock(router: Router, lines: Lines) -> Failure:
    """Why nobody can go on."""
    all_waits = waits(router, lines)
    asking = [w for w in all_waits if (on := router.ranks[w.rank].on) is not None and on.complete]
    if asking:
        return _asks_in_vain(router, lines, all_waits, asking[0])
    stuck = [w for w in all_waits if w.peers or router.ranks[w.rank].state in BLOCKED]
    cycle = _cycle(router, all_waits)
    if router.rules.nccl and (queued := _queued(router, all_waits, cycle)):
        return queued
    inside = [all_waits[r] for r in cycle] or stuck
    in_collective = [w for w in stuck if router.ranks[w.rank].on.kind is OpKind.COLLECTIVE]
    if in_collective and (not cycle or any(w in in_collective for w in inside)):
        return _desync(router, lines, all_waits, in_collective, cycle)
    if cycle:
        return _in_a_cycle(router, inside, all_waits, cycle, *_cause(router, lines, inside))
    return _left_early(router, all_waits, stuck)


def _asks_in_vain(router: Router, lines: Lines, all_waits: tuple[Wait, ...], wait: Wait) -> Failure:
    """A rank with work left asks in a loop whether an operation is complete: no poll says so before the work is done."""
    message = (
        f"Rank {wait.rank} asks again and again whether its {router.ranks[wait.rank].on.name}{lines.at(wait.line)} is complete, while it "
        "still has work to do: that is a wait in disguise. Go on with the work, and call wait() after it."
    )
    return Failure(FailureKind.DEADLOCK, message, wait.rank, wait.line, wait.text, _step(router, wait.rank), all_waits)


def _in_a_cycle(
    router: Router,
    inside: list[Wait],
    all_waits: tuple[Wait, ...],
    cycle: tuple[int, ...],
    cause: DeadlockCause,
    advice: str,
) -> Failure:
    first, seen = inside[0], f"Deadlock: {_chain(inside)}."
    return Failure(
        FailureKind.DEADLOCK,
        f"{seen} {advice}",
        first.rank,
        first.line,
        first.text,
        _step(router, first.rank),
        all_waits,
        cycle,
        cause=cause,
        advice=advice,
        seen=seen,
    )


def _queued(router: Router, all_waits: tuple[Wait, ...], cycle: tuple[int, ...]) -> Failure | None:
    """The failure if, under NCCL's rules, a rank of the cycle has posted what another one waits for, but it can't start."""
    heads = [router.holding(op) for r in cycle if (op := router.ranks[r].on) is not None]
    partners = [partner for head in heads for partner in _partners_in_queues(router, head)]
    if not partners:
        return None
    kinds = {op.kind for op in (*heads, *partners)}
    if kinds == {OpKind.COLLECTIVE}:
        cause = DeadlockCause.GROUP_ORDER
    else:
        cause = DeadlockCause.QUEUE_ORDER if OpKind.COLLECTIVE in kinds else DeadlockCause.NOT_IN_A_BATCH
    return _in_a_cycle(router, [all_waits[r] for r in cycle], all_waits, cycle, cause, _SAME_ADVICE[cause])


def _partners_in_queues(router: Router, head: Op) -> list[Op]:
    """The operations that would complete this one, and that earlier operations of their ranks hold up."""
    return [
        op
        for rank in awaited(router, head)
        for op in router.ranks[rank].queue
        if op.group == head.group
        and (op.kind is OpKind.COLLECTIVE) == (head.kind is OpKind.COLLECTIVE)
        and (op.kind is OpKind.COLLECTIVE or (op.kind is not head.kind and op.peer == head.rank))
    ]


def _step(router: Router, rank: int) -> int:
    return len(router.ranks[rank].ops)


def _cycle(router: Router, all_waits: tuple[Wait, ...]) -> tuple[int, ...]:
    """The ranks of the first circle of waits, in its order; empty if there is none."""
    for start in range(router.size):
        path: list[int] = []
        rank: int | None = start
        while rank is not None and rank not in path:
            path.append(rank)
            blocked = router.ranks[rank].state in BLOCKED
            candidates = [p for p in all_waits[rank].peers if router.ranks[p].state in BLOCKED]
            rank = candidates[0] if blocked and candidates else None
        if rank is not None:
            ring = path[path.index(rank) :]
            lowest = ring.index(min(ring))
            return tuple(ring[lowest:] + ring[:lowest])
    return ()


def _chain(waiting: list[Wait]) -> str:
    parts = [str(w) for w in waiting[:6]]
    if len(waiting) > 6:
        parts.append(f"and so on round {len(waiting)} ranks")
    return "; ".join(parts)


def _cause(router: Router, lines: Lines, waiting: list[Wait]) -> tuple[DeadlockCause, str]:
    """Why these ranks wait for each other, and a sentence on what to change."""
    ops = [router.holding(router.ranks[w.rank].on) for w in waiting]
    if router.memory is not None and any(router.ranks[w.rank].state is Phase.ACCESSING for w in waiting):
        return DeadlockCause.SIGNALS, _missing_signal(router.memory, [w.rank for w in waiting])
    if found := other_tag(router, ops) or _crossed(router, lines, ops):
        return found
    cause = _cause_by_kind(router, waiting, ops)
    return cause, (_NCCL_ADVICE if router.rules.nccl else {}).get(cause, _SAME_ADVICE[cause])


def _missing_signal(memory: MemoryModel, ranks: list[int]) -> str:
    """Which signal is not there, and what the signals that were given say of it."""
    wanted = [op for rank in ranks if (op := memory.held_up(rank)) is not None]
    for wait in wanted:
        if not memory.given(wait.peer, wait.rank, wait.channel) and (found := _elsewhere(memory, wait)):
            return found
    wait = max(wanted, key=lambda op: memory.given(op.peer, op.rank, op.channel))
    count = memory.given(wait.peer, wait.rank, wait.channel)
    late = f"or rank {wait.peer} would give it only after its own wait"
    if count:
        why = (
            f"{_signals(wait.peer, wait.rank, wait.channel, count)}, and rank {wait.rank} waits for one more: either this wait is too "
            f"many, or a signal is missing, {late}"
        )
    else:
        why = f"rank {wait.peer} has given rank {wait.rank} no signal on channel {wait.channel}: either it is missing, {late}"
    return f"{capital(why)}. Give signals before you wait, and count them: as many waits as signals."


def _elsewhere(memory: MemoryModel, wait: MemoryOp) -> str:
    """Where the rank that gave nothing gave a signal that nobody takes: on another channel, or to another rank. Else empty."""
    for (src, dst, channel), left in sorted(memory.signals.items()):
        if src != wait.peer or not left or len(left) < memory.given(src, dst, channel):
            continue  # where some were taken, the others may still be
        gave = capital(_signals(src, dst, channel, len(left)))
        if dst == wait.rank:
            return (
                f"{gave}, but rank {dst} waits on channel {wait.channel}: probably one of the two channels is wrong, since a signal and "
                "its wait need the same."
            )
        if channel == wait.channel:
            return (
                f"{gave}, but rank {wait.rank} waits for a signal of rank {src} on it: probably the signal names the wrong rank, or the "
                "wait does."
            )
    return ""


def _signals(src: int, dst: int, channel: int, count: int) -> str:
    many = "one signal" if count == 1 else f"{count} signals"
    return f"rank {src} has given rank {dst} {many} on channel {channel}"


def _cause_by_kind(router: Router, waiting: list[Wait], ops: list[Op]) -> DeadlockCause:
    kinds = {op.kind for op in ops}
    if kinds == {OpKind.SEND}:
        if len(ops) == 1:
            return DeadlockCause.OWN_MESSAGE
        sends = any(w.op == "send" for w in waiting)
        return DeadlockCause.SENDS_FIRST if sends else DeadlockCause.SENDS_AWAITED_FIRST
    if kinds == {OpKind.RECV}:
        sent = any(op.kind is OpKind.SEND for w in waiting for op in router.ranks[w.rank].ops.values())
        return DeadlockCause.TOO_MANY_RECEIVES if sent else DeadlockCause.RECEIVES_FIRST
    return DeadlockCause.ORDER


def _crossed(router: Router, lines: Lines, ops: list[Op]) -> tuple[DeadlockCause, str] | None:
    """The cause and a sentence if a rank waits for one that sends to, or receives from, a third rank; else None."""
    for op in ops:
        queues = router.receives if op.kind is OpKind.SEND else router.sends
        for other in sorted((o for queue in queues.values() for o in queue), key=_rank_and_index):
            if op.kind is not OpKind.COLLECTIVE and other.rank == op.peer and other.peer not in (None, op.rank):
                return DeadlockCause.CROSSED, f"{capital(_does(op, lines))}, but {_does(other, lines)}."
    return None


def _does(op: Op, lines: Lines) -> str:
    does = "sends to" if op.kind is OpKind.SEND else "receives from"
    return f"rank {op.rank} {does} rank {op.peer}{lines.in_brackets(op.line)}"


def _rank_and_index(op: Op) -> tuple[int, int]:
    return op.rank, op.index


def other_tag(router: Router, ops: list[Op]) -> tuple[DeadlockCause, str] | None:
    """Where a send and a receive would meet, but for their tags or groups."""
    offered = sorted((op for queue in router.sends.values() for op in queue), key=_rank_and_index)  # not who came first
    wanted = sorted((op for queue in router.receives.values() for op in queue), key=_rank_and_index)
    for send in offered:
        for recv in wanted:
            if (send.rank, send.peer) == (recv.peer, recv.rank) and (send in ops or recv in ops):
                if send.tag != recv.tag:
                    return DeadlockCause.TAGS_DIFFER, (
                        f"Rank {send.rank} sends with tag {send.tag}, but rank {recv.rank} receives with tag {recv.tag}."
                    )
                if send.group != recv.group:
                    return DeadlockCause.GROUPS_DIFFER, (
                        f"Rank {send.rank} sends in another group than the one in which rank {recv.rank} receives."
                    )
    return None


def with_other_tag(message: str, router: Router, op: Op) -> str:
    """The message, and behind it the sentence on a tag or a group that differs, if one does."""
    found = other_tag(router, [op])
    return f"{message} {found[1]}" if found else message


def _desync(
    router: Router, lines: Lines, all_waits: tuple[Wait, ...], in_collective: list[Wait], cycle: tuple[int, ...]
) -> Failure:
    """Some ranks are in a collective that others did not call."""
    first = in_collective[0]
    op = router.ranks[first.rank].on
    missing = [all_waits[r] for r in first.peers]
    same = [w.rank for w in in_collective if router.ranks[w.rank].on.sequence == op.sequence and w.peers == first.peers]
    what = []
    gone = [wait.rank for wait in missing if wait.doing is Doing.RETURNED]
    if gone:
        what.append(f"{name_ranks(gone)} {'has' if len(gone) == 1 else 'have'} returned without calling it")
    groups = ""
    for wait in missing:
        if wait.doing is not Doing.RETURNED:
            group = _other_group(op, router.ranks[wait.rank].on)
            what.append(f"rank {wait.rank} is in {wait.op}{lines.at(wait.line)}{group}")
            groups = groups or group
    verb = "waits" if len(same) == 1 else "wait"
    advice = "Ranks meet only in one and the same group." if groups else "Every rank of the group must call it."
    message = (
        f"{capital(name_ranks(same))} {verb} in {op.called}{lines.at(first.line)}, but {'; '.join(what[:6])}. {advice}"
    )
    return Failure(
        FailureKind.DESYNC, message, first.rank, first.line, first.text, _step(router, first.rank), all_waits, cycle
    )


def _other_group(op: Op, other: Op | None) -> str:
    """In which other group a rank is in the same collective, in words; "" if it is not in one."""
    if other is None or other.kind is not OpKind.COLLECTIVE or other.name != op.name or other.group == op.group:
        return ""
    members = other.group[1]
    same = members == op.group[1]
    return f", in another group{' of the same ranks' if same else f', that of {name_ranks(members)}'}"


def _left_early(router: Router, all_waits: tuple[Wait, ...], stuck: list[Wait]) -> Failure:
    """A rank waits for one that has returned."""
    for wait in stuck:
        gone = [p for p in wait.peers if all_waits[p].doing is Doing.RETURNED]
        if not gone:
            continue
        op = router.ranks[wait.rank].on
        does = "receives it" if op.kind is OpKind.SEND else "sends it"
        if router.ranks[wait.rank].state is Phase.ACCESSING:
            does = "gives it that signal"
        message = f"{capital(str(wait))}, but rank {gone[0]} has returned and never {does}."
        if op.peer is None:
            message = f"{capital(str(wait))}, but nobody sends."
        return Failure(
            FailureKind.LEFT_EARLY,
            with_other_tag(message, router, op),
            wait.rank,
            wait.line,
            wait.text,
            _step(router, wait.rank),
            all_waits,
        )
    first = stuck[0]
    return Failure(
        FailureKind.DEADLOCK, f"Nobody can go on: {_chain(stuck)}.", first.rank, first.line, first.text, None, all_waits
    )
