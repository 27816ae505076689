"""Whether orders are a pipeline: every action once, on its rank, after what it needs; no circle of waiting ranks."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.theory.pipelines.actions import KINDS, Action, Orders


def check(orders: Orders) -> str | None:
    """What is wrong with orders, in one sentence; None if nothing is.

    A rank's messages leave at once and wait for their receiver in a buffer, so a deadlock is one of the order itself.

    >>> pipelines.check(pipelines.read([["F0", "B0"], ["B0", "F0"]], micro_batches=1))
    'rank 1 runs B0 of stage 1 before its F0.'
    """
    return next(_faults(orders), None)


def needs(orders: Orders, action: Action) -> list[Action]:
    """What must be over before an action begins, other than what stands before it in its rank's order.

    The gradient of the next stage is named "I" where that stage splits its backward, else "B".
    """
    stage, kind, i = action.stage, action.kind, action.micro_batch
    if kind == "F":
        return [Action(stage - 1, "F", i)] if stage else []
    if kind == "W":
        return [Action(stage, "I", i)]
    found = [Action(stage, "F", i)]
    if stage < orders.stages - 1:
        whole = Action(stage + 1, "B", i)
        found.append(whole if whole in orders.by_rank[orders.rank_of(stage + 1)] else Action(stage + 1, "I", i))
    return found


def _faults(orders: Orders) -> Iterator[str]:
    for rank in range(orders.ranks):
        yield from _strangers(orders, rank)
        yield from _repeated(orders, rank)
        yield from _missing(orders, rank)
        yield from _too_early(orders, rank)
    yield from _deadlock(orders)


def _strangers(orders: Orders, rank: int) -> Iterator[str]:
    """Actions that don't belong here at all."""
    for action in orders.actions[rank]:
        if action.kind not in KINDS:
            yield f"rank {rank} has an action of kind {action.kind!r}; the kinds are {', '.join(KINDS)}."
        if not 0 <= action.stage < orders.stages:
            yield f"rank {rank} runs {action.words}, but the stages are 0 to {orders.stages - 1}."
        elif orders.rank_of(action.stage) != rank:
            yield f"rank {rank} runs {action.words}, which is on rank {orders.rank_of(action.stage)}."
        if not 0 <= action.micro_batch < orders.micro_batches:
            last = orders.micro_batches - 1
            yield f"rank {rank} runs {action.words}, but the micro-batches are 0 to {last}."


def _repeated(orders: Orders, rank: int) -> Iterator[str]:
    """Actions that are there more than once, also as a part of another one."""
    seen: set[Action] = set()
    for action in orders.actions[rank]:
        if action in seen:
            yield f"rank {rank} runs {action.words} twice."
        for other in {"B": "IW", "I": "B", "W": "B"}.get(action.kind, ""):
            if Action(action.stage, other, action.micro_batch) in seen:
                both = Action(action.stage, other, action.micro_batch)
                yield (
                    f"rank {rank} runs {both.short} and {action.words}: B is I and W in one, so a gradient is made "
                    "twice."
                )
        seen.add(action)


def _missing(orders: Orders, rank: int) -> Iterator[str]:
    there = set(orders.actions[rank])
    for stage in (s for s in range(orders.stages) if orders.rank_of(s) == rank):
        for i in range(orders.micro_batches):
            if Action(stage, "F", i) not in there:
                yield f"rank {rank} lacks {Action(stage, 'F', i).words}."
            if Action(stage, "B", i) in there:
                continue
            halves = [kind for kind in "IW" if Action(stage, kind, i) in there]
            if not halves:
                yield f"rank {rank} lacks {Action(stage, 'B', i).words}."
            elif len(halves) == 1:
                other = "W" if halves == ["I"] else "I"
                yield f"rank {rank} lacks {Action(stage, other, i).words}: it runs {halves[0]}{i} only."


def _too_early(orders: Orders, rank: int) -> Iterator[str]:
    """Actions before what they need of the same stage."""
    done: set[Action] = set()
    for action in orders.actions[rank]:
        for need in needs(orders, action):
            if need.stage == action.stage and need not in done:
                yield f"rank {rank} runs {action.words} before its {need.short}."
        done.add(action)


def _deadlock(orders: Orders) -> Iterator[str]:
    """Carries out what can be; what is left waits in a circle, as everything is there."""
    done: set[Action] = set()
    at = [0] * orders.ranks
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(orders.actions):
            while at[rank] < len(mine) and all(need in done for need in needs(orders, mine[at[rank]])):
                done.add(mine[at[rank]])
                at[rank] += 1
                moved = True
    stuck = [rank for rank, mine in enumerate(orders.actions) if at[rank] < len(mine)]
    if stuck:
        yield _circle(orders, {rank: orders.actions[rank][at[rank]] for rank in stuck}, done)


def _circle(orders: Orders, next_of: dict[int, Action], done: set[Action]) -> str:
    """The ranks that wait for each other, in words."""
    waits = {}
    for rank, action in next_of.items():
        need = next(n for n in needs(orders, action) if n not in done)
        waits[rank] = (need, orders.rank_of(need.stage))
    path = [next(iter(next_of))]
    while waits[path[-1]][1] not in path:
        path.append(waits[path[-1]][1])
    parts = []
    for rank in path[path.index(waits[path[-1]][1]) :]:
        need, other = waits[rank]
        who = f"rank {rank} waits, before {next_of[rank].words}, for {need.words}"
        parts.append(f"{who}, which {'it' if other == rank else f'rank {other}'} runs after {next_of[other].words}")
    return f"deadlock: {'; '.join(parts)}."
