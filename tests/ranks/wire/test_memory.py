"""The wire's memory: others see a put behind a fence only, every race is found whatever the order, and waits without end are named."""

from __future__ import annotations

import pytest
import torch
from allranks import wire
from allranks.base.errors import CourseError
from allranks.ranks.wire.failures import DeadlockCause, FailureKind
from allranks.ranks.wire.memory_model import Access, Memory, MemoryModel, MemoryOp

SEEDS = range(12)


@pytest.fixture(scope="module")
def pool():
    with wire.Ranks(4) as ranks:
        yield ranks


def pass_on(fenced: bool, answered: bool, turns: int = 3):
    """Each rank puts to its right neighbour, in one place, `turns` times."""
    memory = wire.memory()
    right, left = (memory.rank + 1) % memory.ranks, (memory.rank - 1) % memory.ranks
    got = []
    for turn in range(turns):
        memory.put(right, 0, torch.tensor([10.0 * turn + memory.rank]))
        if fenced:
            memory.fence()
        memory.signal(right, 1)
        memory.wait(left, 1)
        got.append(memory.get(memory.rank, 0, 1).item())
        if answered:
            memory.signal(left, 2)
            memory.wait(right, 2)
    return got


@pytest.mark.parametrize("order", ["weak", "program"])
def test_with_fence_and_answer_every_order_is_right(pool, order):
    for seed in SEEDS:
        outcome = pool.run(pass_on, 3, args=(True, True), memory=Memory(1, order=order), seed=seed)
        assert not outcome.failure and not outcome.races and not outcome.signals_left
        assert outcome.results == [[10.0 * t + (r - 1) % 3 for t in range(3)] for r in range(3)]


@pytest.mark.parametrize("order", ["weak", "program"])
def test_a_missing_fence_is_a_race_in_every_order(pool, order):
    for seed in SEEDS:
        outcome = pool.run(pass_on, 3, args=(False, True), memory=Memory(1, order=order), seed=seed)
        first = outcome.races[0]
        assert (first.before.kind, first.after.kind, first.signalled) == (Access.PUT, Access.GET, True)
        right = [[10.0 * t + (r - 1) % 3 for t in range(3)] for r in range(3)]
        assert (outcome.results == right) is (order == "program")


@pytest.mark.parametrize("order", ["weak", "program"])
def test_a_missing_answer_is_a_race_in_every_order(pool, order):
    for seed in SEEDS:
        outcome = pool.run(pass_on, 3, args=(True, False), memory=Memory(1, order=order), seed=seed)
        assert outcome.races and not any(race.signalled for race in outcome.races)
        assert {race.before.kind for race in outcome.races} | {race.after.kind for race in outcome.races} == {
            "put",
            "get",
        }


def test_the_same_seed_gives_the_same_run(pool):
    def told(seed: int) -> list:
        outcome = pool.run(pass_on, 4, args=(False, False), memory=Memory(1), seed=seed)
        return [
            outcome.results,
            [(op.rank, op.kind, op.step) for op in outcome.accesses],
            [r.key for r in outcome.races],
        ]

    assert told(3) == told(3)
    assert any(told(3) != told(seed) for seed in SEEDS)


def test_knowledge_goes_through_a_third_rank(pool):
    def relay():
        memory = wire.memory()
        if memory.rank == 0:
            memory.put(2, 0, torch.ones(1))
            memory.fence()
            memory.signal(1)
        elif memory.rank == 1:
            memory.wait(0)
            memory.signal(2)  # no fence of its own is needed
        else:
            memory.wait(1)
            return memory.get(2, 0, 1).item()

    outcome = pool.run(relay, 3, memory=Memory(1))
    assert outcome.results[2] == 1.0 and not outcome.races


def test_a_rank_sees_its_own_puts_at_once(pool):
    def own():
        memory = wire.memory()
        memory.put(0, 1, torch.tensor([1.0, 2.0]))
        memory.put(0, 2, torch.tensor([3.0]))
        return memory.get(0, 1, 2).tolist()

    outcome = pool.run(own, 1, memory=Memory(3))
    assert outcome.results == [[1.0, 3.0]] and not outcome.races


def test_two_puts_of_two_ranks_race(pool):
    outcome = pool.run(lambda: wire.memory().put(0, 0, torch.ones(1)), 2, memory=Memory(1))
    (race,) = outcome.races
    assert {race.before.rank, race.after.rank} == {0, 1} and race.owner == 0 and not race.signalled


def test_what_nobody_has_put_is_garbage_and_a_race(pool):
    outcome = pool.run(lambda: wire.memory().get(0, 0, 1).item(), 1, memory=Memory(1))
    assert outcome.results[0] > 1e15 and outcome.races[0].before is None


def test_waits_in_a_circle_are_a_deadlock(pool):
    def wait_first():
        memory = wire.memory()
        memory.wait((memory.rank + 1) % memory.ranks)

    failure = pool.run(wait_first, 3, memory=Memory(1)).failure
    assert (failure.kind, failure.cause, failure.cycle) == (FailureKind.DEADLOCK, DeadlockCause.SIGNALS, (0, 1, 2))
    assert (
        "Rank 1 has given rank 0 no signal on channel 0: either it is missing, or rank 1 would give it only"
        in failure.advice
    )


@pytest.mark.parametrize(
    ("step", "channel", "waits", "advice"),
    [
        (1, 1, 1, "rank 1 has given rank 0 one signal on channel 1, but rank 0 waits on channel 0"),
        (2, 0, 1, "rank 1 has given rank 2 one signal on channel 0, but rank 0 waits for a signal of rank 1 on it"),
        (1, 0, 2, "one signal on channel 0, and rank 0 waits for one more: either this wait is too many"),
    ],
)
def test_a_deadlock_says_which_signal_is_not_there(pool, step, channel, waits, advice):
    def signal_then_wait():
        memory = wire.memory()
        memory.signal((memory.rank + 2 * step) % 3, channel)
        for _ in range(waits):
            memory.wait((memory.rank + 1) % 3)

    failure = pool.run(signal_then_wait, 3, memory=Memory(1)).failure
    assert failure.cause is DeadlockCause.SIGNALS and advice.lower() in failure.advice.lower(), failure.advice


def test_a_signal_that_never_comes_is_named(pool):
    def one_waits():
        memory = wire.memory()
        if memory.rank == 0:
            memory.wait(1)

    failure = pool.run(one_waits, 2, memory=Memory(1)).failure
    assert failure.kind is FailureKind.LEFT_EARLY
    assert "rank 1 has returned and never gives it that signal" in failure.message


def test_signals_that_are_left_are_counted(pool):
    def too_many():
        memory = wire.memory()
        if memory.rank == 0:
            memory.signal(1, 3)
            memory.signal(1, 3)

    assert pool.run(too_many, 2, memory=Memory(1)).signals_left == [(0, 1, 2)]


def test_puts_and_gets_are_in_the_trace(pool):
    outcome = pool.run(pass_on, 3, args=(True, True, 2), memory=Memory(1))
    sent = [(e.rank, e.peer, e.step) for e in outcome.trace if e.op == "send"]
    assert sorted(sent) == sorted((r, (r + 1) % 3, step) for r in range(3) for step in (0, 2))


def test_large_puts_keep_their_order(pool):
    def large():
        memory = wire.memory()
        memory.put(0, 0, torch.zeros(30_000))
        memory.put(0, 10_000, torch.ones(20_000))
        memory.put(0, 0, torch.full((5,), 2.0))
        whole = memory.get(0, 0, 30_000)
        return whole[:5].sum().item(), whole[:10_000].sum().item(), whole.sum().item()

    assert pool.run(large, 1, memory=Memory(30_000)).results == [(10.0, 10.0, 20_010.0)]


def test_an_endless_loop_of_gets_ends(pool, monkeypatch):
    from allranks.ranks.wire import router

    monkeypatch.setattr(router, "MAX_OPERATIONS", 200)

    def forever():
        memory = wire.memory()
        while True:
            memory.get(0, 0, 1)

    failure = pool.run(forever, 1, memory=Memory(1)).failure
    assert failure.kind is FailureKind.CPU_LIMIT and "200 operations" in failure.message


@pytest.mark.parametrize(
    "wrong",
    [
        {"numel": -1},
        {"numel": 1 << 20},
        {"numel": True},
        {"numel": 1, "order": "any"},
        {"numel": 1, "dtype": "float33"},
    ],
)
def test_a_memory_that_can_not_be(wrong):
    with pytest.raises(ValueError, match=r"must be|does not know"):
        Memory(**wrong)


def test_without_a_memory_there_is_none(pool):
    failure = pool.run(lambda: wire.memory(), 1).failure
    assert "wire.run(..., memory=...)" in failure.message
    with pytest.raises(CourseError, match=r"wire\.run"):
        wire.memory()


@pytest.mark.parametrize(
    "op",
    [
        MemoryOp(0, Access.PUT, 1, 3, 2, 8, data=b"12345678"),
        MemoryOp(0, Access.PUT, 1, 0, 2, 8, data=b"1234"),
        MemoryOp(0, Access.GET, 2, 0, 1, 4),
        MemoryOp(0, Access.SIGNAL, 0),
        MemoryOp(0, Access.WAIT, 1, channel=4),
    ],
)
def test_the_router_refuses_what_lies_outside(op):
    assert not MemoryModel(Memory(4), 2, 0).fits(op)
