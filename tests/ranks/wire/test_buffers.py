"""What an operation fills belongs to it until wait(): read early it is wrong, written or passed on it ends the run."""

import pytest
import torch
from allranks.ranks.wire import FailureKind, Rules
from allranks.ranks.wire.buffers import Memory, Poison

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn),
]
CHANGED = FailureKind.CHANGED_BEFORE_WAIT


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_poison_shows_every_write(dtype):
    x = torch.ones(3, 4).to(dtype)
    part = x[:, ::2]
    poison = Poison(part)
    assert poison.is_whole()
    assert (x[:, 1::2].float() if not dtype.is_complex else x[:, 1::2].real).eq(1).all()
    if dtype.is_floating_point or dtype.is_complex:
        assert part.to(torch.complex64 if dtype.is_complex else torch.float32).isnan().all()
    part[2, 1] = 0
    assert not poison.is_whole()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64], ids=str
)
def test_adding_to_poison_shows(dtype):
    x = torch.zeros(4, dtype=dtype)
    poison = Poison(x)
    x += 1
    assert not poison.is_whole()


def test_poison_of_views_that_torch_keeps_lazy():
    for x in (
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2, dtype=torch.complex64).conj().imag,
        torch.empty(0),
    ):
        assert Poison(x).is_whole()


def test_poison_is_no_change_for_autograd():
    x = torch.ones(3, requires_grad=True)
    y = (x * x).sum()
    Poison(x)
    y.backward()


def test_columns_of_one_matrix_do_not_overlap():
    m = torch.zeros(4, 6)
    assert not Memory([m[:, :2]]).overlaps(Memory([m[:, 2:4]]))
    assert Memory([m[:, :3]]).overlaps(Memory([m[:, 2:4]]))
    assert Memory([m[1]]).overlaps(Memory([m]))
    assert not Memory([m[1:1]]).overlaps(Memory([m]))


WRONG = {  # the body from line 4 on, the line of the failure, words
    "sends what it has yet to receive": (
        "a, b = torch.zeros(2), torch.zeros(2)\nw = dist.irecv(a, (r - 1) % p)\nv = dist.isend(a, (r + 1) % p)\nw.wait()\nv.wait()",
        6,
        (
            "isend to rank 1, line 6 sends the tensor that its irecv from rank 2, line 5 fills",
            "before the wait() of that",
        ),
    ),
    "sends a part of it": (
        "a = torch.zeros(4)\nw = dist.irecv(a[:2], (r - 1) % p)\nv = dist.isend(a[1:3], (r + 1) % p)\nw.wait()\nv.wait()",
        6,
        ("sends the tensor that its irecv",),
    ),
    "zeroes it": (
        "a = torch.empty(2)\nw = dist.irecv(a, (r - 1) % p)\na.zero_()\ndist.send(torch.ones(2), (r + 1) % p)\nw.wait()",
        8,
        ("Rank 0 wrote into the tensor that its irecv from rank 2, line 5 fills, before its wait(), line 8",),
    ),
    "adds to it": (
        "a = torch.ones(2)\nw = dist.irecv(a, (r - 1) % p)\na += 1\ndist.send(torch.ones(2), (r + 1) % p)\nw.wait()",
        8,
        ("wrote into the tensor",),
    ),
    "receives twice into one": (
        "a = torch.zeros(1)\nworks = [dist.irecv(a, q) for q in range(p) if q != r]\n[dist.isend(torch.ones(1), q) for q in range(p)]",
        5,
        ("receives into the tensor that its irecv from rank 1", "both would fill it. Give each a tensor of its own"),
    ),
    "receives into what it sends": (
        "a = torch.zeros(2)\nw = dist.isend(a, (r + 1) % p)\nv = dist.irecv(a, (r - 1) % p)\nw.wait()\nv.wait()",
        6,
        ("irecv, line 6 writes into the buffer of its isend to rank 1, line 5", "either value"),
    ),
    "one buffer in a batch": (
        "a = torch.zeros(2)\n"
        "ops = [dist.P2POp(dist.isend, a, (r + 1) % p), dist.P2POp(dist.irecv, a, (r - 1) % p)]\n"
        "for w in dist.batch_isend_irecv(ops):\n    w.wait()",
        6,
        ("writes into the buffer", "either value"),
    ),
    "passes it to a collective": (
        "a, b = torch.ones(2), torch.zeros(2)\nw = dist.all_reduce(a, async_op=True)\ndist.broadcast(a, 0)\nw.wait()",
        6,
        ("broadcast", "all_reduce, line 5"),
    ),
    "gathers into what another gathers": (
        "a = torch.zeros(p)\nw = dist.all_gather_into_tensor(a, torch.ones(1), async_op=True)\n"
        "dist.all_gather_into_tensor(a, torch.ones(1))\nw.wait()",
        6,
        ("uses the tensor that its all_gather_into_tensor, line 5 fills",),
    ),
    "complex numbers": (
        "a = torch.zeros(2, dtype=torch.complex64)\nw = dist.irecv(a, (r - 1) % p)\na[1] = 3\n"
        "dist.send(torch.ones(2, dtype=torch.complex64), (r + 1) % p)\nw.wait()",
        8,
        ("wrote into the tensor",),
    ),
    "through other names of the memory": (
        "a = torch.zeros(2, dtype=torch.int64)\nw = dist.irecv(a, (r - 1) % p)\na.numpy()[0] = 7\n"
        "dist.send(torch.ones_like(a), (r + 1) % p)\nw.wait()",
        8,
        ("wrote into the tensor",),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_memory_of_an_operation_under_way_is_its_own(name, pool, program):
    body, line, words = WRONG[name]
    failure = pool.run(program(body), 3).failure
    assert failure.kind is CHANGED, failure.message
    assert (failure.rank, failure.line if "writes" not in words[0] else line) == (0, line), failure.message
    for word in words:
        assert word in failure.message


RIGHT = {  # what must stay as it is
    "in place": "a = torch.ones(1)\nw = dist.all_reduce(a, async_op=True)\nw.wait()\nreturn a.sum().item()",
    "gathered beside its own part": (
        "a = torch.zeros(p)\na[r] = 1\nw = dist.all_gather_into_tensor(a, a[r : r + 1], async_op=True)\nw.wait()\nreturn a.sum().item()"
    ),
    "parts of one vector": (
        "a = torch.zeros(3)\na[r] = 1\nworks = [dist.isend(a[r : r + 1], q) for q in range(p) if q != r]\n"
        "works += [dist.irecv(a[q : q + 1], q) for q in range(p) if q != r]\nfor w in works:\n    w.wait()\nreturn a.sum().item()"
    ),
    "columns": (
        "a = torch.zeros(2, 3)\na[:, r] = 0.5\nworks = [dist.isend(a[:, r], q) for q in range(p) if q != r]\n"
        "works += [dist.irecv(a[:, q], q) for q in range(p) if q != r]\nfor w in works:\n    w.wait()\nreturn a.sum().item()"
    ),
    "one tensor to many": (
        "a = torch.ones(1)\nworks = [dist.isend(a, q) for q in range(p) if q != r]\nb = torch.zeros(3, 1)\n"
        "works += [dist.irecv(b[q], q) for q in range(p) if q != r]\nfor w in works:\n    w.wait()\nreturn b.sum().item() + 1"
    ),
    "the same buffer after its wait": (
        "a, total = torch.zeros(1), 0\nfor q in range(p - 1):\n    w = dist.isend(torch.ones(1), (r + 1) % p)\n"
        "    v = dist.irecv(a, (r - 1) % p)\n    v.wait()\n    w.wait()\n    total += a.item()\nreturn total + 1"
    ),
    "nothing": (
        "a = torch.ones(0)\nw = dist.isend(a, (r + 1) % p)\nv = dist.irecv(a, (r - 1) % p)\nw.wait()\nv.wait()\nreturn 3.0"
    ),
    "a functional collective": (
        "import torch.distributed._functional_collectives as f\nreturn f.all_reduce(torch.ones(2), 'sum', dist.group.WORLD)[0].item()"
    ),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("rules", [None, Rules(nccl=True)], ids=["gloo", "NCCL"])
def test_what_waits_in_time_is_right(name, rules, pool, program):
    if rules is not None and name in (
        "columns",
        "parts of one vector",
        "one tensor to many",
        "the same buffer after its wait",
        "nothing",
    ):
        pytest.skip("these hang or are refused on NCCL for other reasons")
    outcome = pool.run(program(RIGHT[name]), 3, rules=rules, cpu_s=30)
    assert outcome.failure is None, outcome.failure.text()
    assert outcome.results == [3.0] * 3


def test_a_value_that_is_read_too_early_is_wrong(pool, program):
    body = """
    a, early = torch.full((2,), r + 1.0), []
    for work in (dist.all_reduce(a, async_op=True), dist.all_gather([b := torch.zeros(1), c := torch.zeros(1)], torch.ones(1), async_op=True)):
        early += [t.clone() for t in (a, b, c)] if not early else []
        work.wait()
    return torch.cat(early)
    """
    outcome = pool.run(program(body), 2)
    assert outcome.failure is None
    assert all(result.isnan().all() for result in outcome.results)


def test_blocking_calls_are_not_poisoned(pool, program):
    """Their caller can't look meanwhile. A broadcast's root and a reduce's leaves keep theirs."""
    body = "a = torch.full((2,), r + 1.0)\nw = dist.reduce(a, 0, async_op=True)\nx = a.clone()\nw.wait()\nreturn x.isnan().all().item()"
    assert pool.run(program(body), 3).results == [True, False, False]
    body = "a = torch.full((2,), r + 1.0)\nw = dist.broadcast(a, 0, async_op=True)\nx = a.clone()\nw.wait()\nreturn x.isnan().all().item()"
    assert pool.run(program(body), 3).results == [False, True, True]


def test_under_nccls_rules_a_batch_has_no_order(pool, program):
    body = (
        "a = torch.zeros(2)\n"
        "ops = [dist.P2POp(dist.isend, a, (r + 1) % p), dist.P2POp(dist.irecv, a, (r - 1) % p)]\n"
        "for w in dist.batch_isend_irecv(ops):\n    w.wait()"
    )
    assert pool.run(program(body), 3, rules=Rules(nccl=True)).failure.kind is CHANGED
