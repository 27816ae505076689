"""With `ahead` a rank's process goes on while it waits for a send; what comes out is the same."""

import pytest
from allranks.ranks.wire import FailureKind, Rules
from allranks.ranks.wire.body import Body, CodecError
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.state import Phase

EXCHANGE = """
import torch
import torch.distributed as dist

def f():
    r, p = dist.get_rank(), dist.get_world_size()
    x, y = torch.full((3,), r), torch.empty(3, dtype=torch.int64)
    for _ in range(3):
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, x, (r + 1) % p), dist.P2POp(dist.irecv, y, (r - 1) % p)])
        for work in works:
            work.wait()
        x = y.clone()
    return x.tolist()
"""


def about(do: str, peer: int, number: int) -> dict:
    named = {"do": do, "name": f"i{do}", "group": "0", "number": number, "dtype": "int8", "numel": 4, "tag": 0}
    return {**named, "peer": peer, "nbytes": 4 if do == "send" else 0}


def wait(number: int, **more) -> dict:
    return {"do": "wait", "number": number, **more}


def test_what_follows_a_wait_for_a_send_is_taken_when_the_send_is_complete():
    router = Router(2, Rules())
    router.take(0, [about("send", 1, 1), wait(1, ahead=True), about("recv", 1, 2)], Body(b"1234"))
    router.take(0, [wait(2)], Body())
    assert (len(router.log), router.ranks[0].state, router.running) == (1, Phase.WAITING, 1)
    router.take(1, [about("recv", 0, 1), wait(1)], Body())
    assert len(router.log) == 3
    assert [(rank, body.data) for rank, _, body in router.outbox] == [(1, b"1234")]
    router.take(1, [about("send", 0, 2), wait(2, ahead=True), {"do": "done"}], Body(b"5678"))
    assert [(rank, body.data) for rank, _, body in router.outbox] == [(1, b"1234"), (0, b"5678")]
    assert [state.state for state in router.ranks] == [Phase.RUNNING, Phase.DONE]


def test_a_send_that_nobody_receives_is_a_deadlock_there_and_not_later():
    router = Router(2, Rules())
    for rank in range(2):
        router.take(rank, [about("send", 1 - rank, 1), wait(1, ahead=True), about("recv", 1 - rank, 2)], Body(b"1234"))
        router.take(rank, [wait(2)], Body())
    assert not router.settle()
    assert router.stuck()
    assert [state.on.name for state in router.ranks] == ["isend", "isend"]


def test_only_a_wait_for_a_send_lets_a_rank_go_on():
    router = Router(2, Rules())
    with pytest.raises(CodecError, match="without what it waits for"):
        router.take(0, [about("recv", 1, 1), wait(1, ahead=True)], Body())


def test_nonsense_that_was_held_is_that_ranks_and_not_the_others():
    router = Router(2, Rules())
    router.take(0, [about("send", 1, 1), wait(1, ahead=True), wait(99)], Body(b"1234"))
    router.take(1, [about("recv", 0, 1), wait(1)], Body())
    ((rank, why),) = router.broken
    assert rank == 0
    assert "malformed" in why
    assert router.ranks[1].state is Phase.RUNNING


def test_what_is_held_is_limited(monkeypatch):
    monkeypatch.setattr("allranks.ranks.wire.router.MAX_OPERATIONS", 50)
    router = Router(2, Rules())
    router.take(0, [about("send", 1, 1), wait(1, ahead=True)], Body(b"1234"))
    for number in range(2, 60):
        router.take(0, [about("recv", 1, number)], Body())
    assert [fault.kind for fault in router.faults] == [FailureKind.CPU_LIMIT]
    assert not router.ranks[0].held


@pytest.mark.parametrize("delivery", ["rendezvous", "buffered", "shuffled"])
def test_an_exchange_has_the_same_results_in_fewer_messages(pool, delivery, monkeypatch):
    from allranks.ranks.wire import Program

    frames, take = [], Router.take
    monkeypatch.setattr(Router, "take", lambda self, *said: (frames.append(1), take(self, *said))[1])
    counts = []
    for ahead in (False, True):
        frames.clear()
        run = pool.run(Program(EXCHANGE, "f", "x.py"), 4, delivery=delivery, seed=5, ahead=ahead)
        assert run.failure is None
        assert run.results == [[(r - 3) % 4] * 3 for r in range(4)]
        counts.append(len(frames))
    assert counts[1] <= counts[0]
    assert delivery != "rendezvous" or counts[1] == 4 * 3 + 4


@pytest.mark.parametrize("body", ["dist.send(x, 1 - r)\ndist.recv(x, 1 - r)", "dist.send(x, 1 - r)\nraise ValueError"])
def test_a_circle_of_sends_is_told_in_the_same_words_and_the_ranks_live_on(pool, program, body):
    told = []
    for ahead in (False, True):
        run = pool.run(program(f"x = torch.ones(2)\n{body}"), 2, ahead=ahead)
        told.append((run.failure.kind, run.failure.line, str(run.failure.message)))
        pids = pool.pids
        assert pool.run(program("return r"), 2).results == [0, 1]
        assert pool.pids == pids
    assert told[0] == told[1]
    assert told[0][0] is FailureKind.DEADLOCK
