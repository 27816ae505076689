"""Messages arrive whole, in order, of every dtype and layout; handles mean what torch says they mean."""

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.wire import FailureKind, run

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
]


def shift(t):
    p, r = dist.get_world_size(), dist.get_rank()
    got = torch.empty_like(t)
    sending = dist.isend(t, (r + 1) % p)
    dist.recv(got, (r - 1) % p)
    sending.wait()
    return got


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3)], ids=str)
def test_every_dtype_and_shape(pool, dtype, shape):
    inputs = [(torch.randn(shape) * 9).to(dtype) for _ in range(3)]
    outcome = pool.run(shift, 3, per_rank=[(t,) for t in inputs])
    assert outcome.failure is None
    for r in range(3):
        assert outcome.results[r].dtype == dtype
        assert torch.equal(outcome.results[r], inputs[r - 1])
    assert {e.dtype for e in outcome.log} == {str(dtype).removeprefix("torch.")}
    assert {e.numel for e in outcome.log} == {inputs[0].numel()}


def test_nan_and_signed_zero_keep_their_bits(pool):
    bits = torch.tensor([0x7FC00001, -0x7FFFFFFF - 1, 0x7F800001], dtype=torch.int32)
    outcome = pool.run(shift, 2, (bits.view(torch.float32),))
    assert torch.equal(outcome.results[0].view(torch.int32), bits)


def test_non_contiguous_tensors(pool):
    base = torch.arange(24.0).reshape(4, 6)
    outcome = pool.run(shift, 2, per_rank=[(base.t(),), (base.t() + 100,)])
    assert torch.equal(outcome.results[1], base.t())
    assert torch.equal(outcome.results[0], base.t() + 100)


def test_one_element_that_keeps_a_stride(pool):
    """Contiguous to torch, whatever its stride; a plain reshape and view as bytes fails on it."""

    def gather(t):
        out = torch.empty(2)
        dist.all_gather_into_tensor(out, t[::2][1:2])
        got = torch.zeros(6)[::2][1:2]
        sending = dist.isend(t[::2][1:2].clone(), 1 - dist.get_rank())
        dist.recv(got, 1 - dist.get_rank())
        sending.wait()
        return out, got

    outcome = pool.run(gather, 2, per_rank=[(torch.arange(5.0) + 10 * r,) for r in range(2)])
    assert outcome.failure is None, outcome.failure.text()
    assert outcome.results[0][0].tolist() == [2, 12]
    assert [got.tolist() for _, got in outcome.results] == [[12], [2]]


def test_contiguity_can_be_insisted_on(pool, program):
    from allranks.ranks.wire import Rules

    outcome = pool.run(program("dist.send(torch.zeros(4, 4).t(), 1 - r)"), 2, rules=Rules(contiguous=True))
    assert outcome.failure.kind is FailureKind.EXCEPTION
    assert ".contiguous()" in outcome.failure.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "dist.send(x, 1 - r)",
            "send takes contiguous tensors only, and the one that it sends is not: call .contiguous() first",
        ),
        (
            "dist.recv(x, 1 - r)",
            "recv takes contiguous tensors only, and the one that it fills is not: give it a contiguous copy, then copy the result",
        ),
        (
            "dist.all_reduce(x)",
            "all_reduce takes contiguous tensors only, and the one that it fills is not: give it a contiguous copy, then copy the",
        ),
        ("w = dist.isend(torch.zeros(1), r)", "isend to rank 0, which is this rank itself: gloo has no such link"),
        ("w = dist.irecv(torch.zeros(1), r)", "irecv from rank 0, which is this rank itself"),
        ("dist.send(torch.zeros(1), r)", "send to rank 0, which is this rank itself: torch refuses that"),
    ],
)
def test_what_gloo_refuses_is_refused_with_the_mend(pool, program, body, words):
    from allranks.ranks.wire import Rules

    failure = pool.run(program(f"x = torch.zeros(4, 4).t()\n{body}"), 2, rules=Rules(contiguous=True)).failure
    assert failure.error == "ValueError"
    assert words in failure.message


def test_large_tensors_pass_by_shared_memory(pool):
    inputs = [torch.randn(3_000_000) for _ in range(2)]
    outcome = pool.run(shift, 2, per_rank=[(t,) for t in inputs])
    assert outcome.failure is None
    assert torch.equal(outcome.results[0], inputs[1])
    assert torch.equal(outcome.results[1], inputs[0])
    assert all(e.payload is None for e in outcome.log)
    assert outcome.trace.bytes_sent() == [12_000_000] * 2


def test_messages_between_two_ranks_keep_their_order_by_tag(pool, program):
    outcome = pool.run(
        program("""
        if r == 0:
            works = [dist.isend(torch.tensor([i]), 1, tag=i % 2) for i in range(6)]
            for w in works:
                w.wait()
            return None
        got = []
        for tag in (1, 0, 1, 0, 0, 1):
            t = torch.zeros(1, dtype=torch.int64)
            dist.recv(t, 0, tag=tag)
            got.append(int(t))
        return got
        """),
        2,
    )
    assert outcome.failure is None
    assert outcome.results[1] == [1, 0, 3, 2, 4, 5]


def test_the_data_of_an_irecv_arrives_by_wait_and_not_before(pool, program):
    outcome = pool.run(
        program("""
        if r == 0:
            dist.send(torch.ones(3), 1)
            dist.send(torch.ones(3), 1)
            return None
        early, t = torch.zeros(3), torch.zeros(3)
        w = dist.irecv(early, 0)
        before = early.clone()
        done = w.is_completed()
        between = early.clone()
        w.wait()
        dist.recv(t, 0)
        return before, done, between, early
        """),
        2,
    )
    before, done, between, early = outcome.results[1]
    assert before.isnan().all() and between.isnan().all()
    assert done is True
    assert early.tolist() == [1, 1, 1]


def test_a_message_is_what_the_buffer_held_when_it_was_posted(pool, program):
    outcome = pool.run(
        program("""
        t = torch.full((4,), float(r))
        if r == 0:
            w = dist.isend(t, 1)
            w.wait()
            t += 5
            return t
        got = torch.empty(4)
        dist.recv(got, 0)
        return got
        """),
        2,
    )
    assert outcome.failure is None
    assert outcome.results[1].tolist() == [0, 0, 0, 0]


def test_recv_from_any_source_is_the_same_every_time(pool, program):
    body = program("""
    if r:
        dist.send(torch.tensor([r]), 0)
        return None
    got = []
    for _ in range(p - 1):
        t = torch.zeros(1, dtype=torch.int64)
        got.append([dist.recv(t), int(t)])
    return got
    """)
    seen = {str(pool.run(body, 5).results[0]) for _ in range(5)}
    assert seen == {"[[1, 1], [2, 2], [3, 3], [4, 4]]"}
    shuffled = {str(pool.run(body, 5, delivery="shuffled", seed=s).results[0]) for s in range(6)}
    assert len(shuffled) > 1
    assert len({str(pool.run(body, 5, delivery="shuffled", seed=3).results[0]) for _ in range(3)}) == 1


def test_polling_a_handle_ends(pool, program):
    outcome = pool.run(
        program("""
        t = torch.zeros(2)
        w = dist.isend(torch.ones(2), 1) if r == 0 else dist.irecv(t, 0)
        polls = 0
        while not w.is_completed():
            polls += 1
        w.wait()
        return polls, t
        """),
        2,
    )
    assert outcome.failure is None
    assert outcome.results[1][1].tolist() == [1, 1]


def test_a_message_to_oneself(pool, program):
    outcome = pool.run(
        program(
            "t = torch.zeros(1); w = dist.isend(torch.ones(1), r); v = dist.irecv(t, r); w.wait(); v.wait(); return t"
        ),
        1,
    )
    assert outcome.failure is None
    assert outcome.results[0].tolist() == [1]
    assert outcome.seconds == 0


def test_sends_wait_for_their_receiver_unless_buffered(pool, program):
    body = program("t = torch.zeros(1); dist.send(torch.ones(1), 1 - r); dist.recv(t, 1 - r); return t")
    assert pool.run(body, 2).deadlock is not None
    assert pool.run(body, 2, delivery="shuffled").deadlock is not None
    outcome = pool.run(body, 2, delivery="buffered")
    assert outcome.failure is None
    assert outcome.results[0].tolist() == [1]


def test_one_rank_and_sixty_four(program):
    def all_to_next(t):
        p, r = dist.get_world_size(), dist.get_rank()
        for _ in range(3):
            got = torch.empty_like(t)
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, t, (r + 1) % p), dist.P2POp(dist.irecv, got, (r - 1) % p)]
            )
            for w in works:
                w.wait()
            t = got
        total = t.clone()
        dist.all_reduce(total)
        return t, total

    inputs = [torch.tensor([float(r)]) for r in range(64)]
    outcome = run(all_to_next, 64, per_rank=[(t,) for t in inputs])
    assert outcome.failure is None
    assert [int(a) for a, _ in outcome.results] == [(r - 3) % 64 for r in range(64)]
    assert {int(b) for _, b in outcome.results} == {sum(range(64))}
    assert outcome.trace.bytes_sent() == [12] * 64
    assert run(shift, 1, (inputs[0],)).failure is None


def test_the_log_and_the_trace_agree(pool):
    outcome = pool.run(shift, 3, (torch.arange(5, dtype=torch.int16),))
    results, trace, deadlock = outcome
    assert deadlock is None
    assert len(results) == 3
    sends = [e for e in outcome.log if e.kind == "send"]
    assert [e.op for e in sends] == ["isend"] * 3
    assert all(e.payload == torch.arange(5, dtype=torch.int16).numpy().tobytes() for e in sends)
    assert all(e.text == "sending = dist.isend(t, (r + 1) % p)" for e in sends)
    assert all(e.waited for e in outcome.log)
    by_match = {e.match: e for e in trace if e.op == "recv"}
    for event in trace:
        if event.op == "send":
            assert by_match[event.match].rank == event.peer
            assert (by_match[event.match].start, by_match[event.match].end) == (event.start, event.end)
    assert all(m.delivered for m in trace.messages())
    assert trace.bytes_sent() == trace.bytes_received() == [10, 10, 10]


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (
            "works.append(dist.irecv(there, (r + 1) % p))",
            "Rank 0 sends to rank 1 (line 4), but rank 1 receives from rank 2 (line 5).",
        ),
        ("dist.recv(there, (r - 1) % p)\n    dist.recv(there, (r + 1) % p)", "What they sent has all been received"),
        (
            "works.clear()\n    dist.recv(there, (r - 1) % p)\n    dist.recv(there, (r - 1) % p)",
            "What they sent has all been",
        ),
    ],
)
def test_a_circle_of_waits_is_told_as_it_is(pool, program, then, words):
    body = f"""
    works, there = [dist.isend(torch.zeros(1), (r + 1) % p)], torch.zeros(1)
    {then}
    for work in works:
        work.wait()
    """
    assert words in pool.run(program(body), 3).failure.message
