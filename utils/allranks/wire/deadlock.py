"""Where every rank stands when nobody can go on: the circle of waits, or whom they wait for in vain."""

from __future__ import annotations

from allranks.wire.failures import Failure, FailureKind
from allranks.wire.record import TextOf
from allranks.wire.router import Router
from allranks.wire.state import Op, RankState
from allranks.wire.wait import Wait, at


def waits(router: Router, text_of: TextOf) -> tuple[Wait, ...]:
    """Where every rank stands."""
    return tuple(_wait(router, rank, state, text_of) for rank, state in enumerate(router.ranks))


def _wait(router: Router, rank: int, state: RankState, text_of: TextOf) -> Wait:
    op = state.on
    if op is None or state.state not in ("waiting", "polling"):
        word = {"done": "returned", "fault": "stopped"}.get(state.state, "running")
        return Wait(rank, word, None)
    peers = awaited(router, op)
    name = op.name if op.line == state.line or state.line is None else f"wait() of {op.name}"
    text = text_of(state.file, state.line)
    return Wait(rank, name, peers[0] if peers else None, state.line, text, op.tag, peers, op.nbytes)


def awaited(router: Router, op: Op) -> tuple[int, ...]:
    """Whom an operation waits for."""
    if op.kind == "collective":
        slot = router.slots.get((op.group, op.sequence), {})
        return tuple(r for r in op.group[1] if r not in slot)
    if op.peer is not None:
        return (op.peer,)
    return tuple(r for r in op.group[1] if r != op.rank)


def find_deadlock(router: Router, text_of: TextOf) -> Failure:
    """Why nobody can go on."""
    all_waits = waits(router, text_of)
    stuck = [w for w in all_waits if w.peers or router.ranks[w.rank].state in ("waiting", "polling")]
    cycle = _cycle(router, all_waits)
    inside = [all_waits[r] for r in cycle] or stuck
    in_collective = [w for w in stuck if router.ranks[w.rank].on.kind == "collective"]
    if in_collective and (not cycle or any(w in in_collective for w in inside)):
        return _desync(router, all_waits, in_collective, cycle)
    if cycle:
        first = inside[0]
        message = f"Deadlock: {_chain(inside)}. {_hint(router, inside)}"
        return Failure(
            FailureKind.DEADLOCK,
            message,
            first.rank,
            first.line,
            first.text,
            _step(router, first.rank),
            all_waits,
            cycle,
        )
    return _left_early(router, all_waits, stuck)


def _step(router: Router, rank: int) -> int:
    return len(router.ranks[rank].ops)


def _cycle(router: Router, all_waits: tuple[Wait, ...]) -> tuple[int, ...]:
    """The ranks of the first circle of waits, in its order; empty where there is none."""
    for start in range(router.size):
        path: list[int] = []
        rank: int | None = start
        while rank is not None and rank not in path:
            path.append(rank)
            blocked = router.ranks[rank].state in ("waiting", "polling")
            candidates = [p for p in all_waits[rank].peers if router.ranks[p].state in ("waiting", "polling")]
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


def _hint(router: Router, waiting: list[Wait]) -> str:
    ops = [router.ranks[w.rank].on for w in waiting]
    mismatched = other_tag(router, ops)
    if mismatched:
        return mismatched
    elsewhere = _elsewhere(router, ops)
    if elsewhere:
        return elsewhere
    if all(op.kind == "send" for op in ops):
        if len(ops) == 1:
            return "A rank can't wait for its own message before it receives it."
        if any(w.op == "send" for w in waiting):
            return "Every send waits until it is received, and nobody receives: let some ranks receive first, or use isend, irecv or batch_isend_irecv."
        return (
            "Everybody waits for a send to be received before anybody has posted the receive: post it first, then wait."
        )
    if all(op.kind == "recv" for op in ops):
        if any(op.kind == "send" for w in waiting for op in router.ranks[w.rank].ops.values()):
            return "What they sent has all been received: one receive is too many, or a send is missing."
        return "Everybody receives and nobody sends: let some ranks send first, or use irecv before the send."
    return "Each waits for what another will do only later: check the order of their operations."


def _elsewhere(router: Router, ops: list[Op]) -> str | None:
    """A sentence where the rank that one of these waits for offers the same to another."""
    for op in ops:
        queues = router.receives if op.kind == "send" else router.sends
        for other in sorted((o for queue in queues.values() for o in queue), key=_place_of):
            if op.kind in ("send", "recv") and other.rank == op.peer and other.peer not in (None, op.rank):
                does, has = ("sends to", "receives from") if op.kind == "send" else ("receives from", "sends to")
                return f"Rank {op.rank} {does} rank {op.peer}, which {has} rank {other.peer}."
    return None


def _place_of(op: Op) -> tuple[int, int]:
    return op.rank, op.index


def other_tag(router: Router, ops: list[Op]) -> str | None:
    """A sentence where two ranks would meet but for their tags."""
    offered = sorted((op for queue in router.sends.values() for op in queue), key=_place_of)  # not who came first
    wanted = sorted((op for queue in router.receives.values() for op in queue), key=_place_of)
    for send in offered:
        for recv in wanted:
            if (send.rank, send.peer) == (recv.peer, recv.rank) and (send in ops or recv in ops):
                if send.tag != recv.tag:
                    return f"Rank {send.rank} sends with tag {send.tag}, but rank {recv.rank} receives with tag {recv.tag}."
                if send.group != recv.group:
                    return f"Rank {send.rank} sends in another group than the one in which rank {recv.rank} receives."
    return None


def _desync(router: Router, all_waits, in_collective: list[Wait], cycle) -> Failure:
    """Some ranks are in a collective that others did not call."""
    first = in_collective[0]
    op = router.ranks[first.rank].on
    missing = [all_waits[r] for r in first.peers]
    same = [w.rank for w in in_collective if router.ranks[w.rank].on.sequence == op.sequence and w.peers == first.peers]
    what = []
    for wait in missing:
        state = router.ranks[wait.rank]
        if state.state == "done":
            what.append(f"rank {wait.rank} has returned without calling it")
        else:
            what.append(f"rank {wait.rank} is in {wait.op}{at(wait.line)}")
    verb = "waits" if len(same) == 1 else "wait"
    message = f"{capital(name_ranks(same))} {verb} in {op.name}{at(first.line)}, but {'; '.join(what[:6])}. Every rank of the group must call it."
    return Failure(
        FailureKind.DESYNC, message, first.rank, first.line, first.text, _step(router, first.rank), all_waits, cycle
    )


def _left_early(router: Router, all_waits, stuck: list[Wait]) -> Failure:
    """A rank waits for one that has returned."""
    for wait in stuck:
        gone = [p for p in wait.peers if router.ranks[p].state == "done"]
        if not gone:
            continue
        op = router.ranks[wait.rank].on
        does = "receives" if op.kind == "send" else "sends"
        hint = other_tag(router, [op])
        message = f"{capital(str(wait))}, but rank {gone[0]} has returned and never {does} it."
        if op.peer is None:
            message = f"{capital(str(wait))}, but nobody sends."
        return Failure(
            FailureKind.LEFT_EARLY,
            f"{message} {hint}" if hint else message,
            wait.rank,
            wait.line,
            wait.text,
            _step(router, wait.rank),
            all_waits,
            details={"left": gone[0]},
        )
    first = stuck[0]
    return Failure(
        FailureKind.DEADLOCK, f"Nobody can go on: {_chain(stuck)}.", first.rank, first.line, first.text, None, all_waits
    )


def name_ranks(numbers: list[int]) -> str:
    """ "rank 2", or "ranks 0, 1"."""
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, sorted(numbers)))


def capital(text: str) -> str:
    """The text with a capital letter at its begin."""
    return text[:1].upper() + text[1:]
