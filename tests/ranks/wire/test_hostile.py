"""What a rank sends is never believed: broken frames, impossible values and lies end the run, not the router."""

import copy
import json
import os
import random
import socket
import textwrap
from types import SimpleNamespace

import pytest
import torch
from allranks.ranks.wire import FailureKind, Rules, ending, record, session
from allranks.ranks.wire.body import Body, CodecError
from allranks.ranks.wire.codec import HEAD, Channel
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.session import Member, Session
from allranks.ranks.wire.student_code import Lines
from allranks.ranks.wire.values import decode, pack, unpack
from allranks.theory.simulator.clock import UniformNetwork

RAW = [
    b"\x00" * 64,
    b"garbage that is no frame at all" * 10,
    HEAD.pack(2**31, 0, 0, 0),
    HEAD.pack(4, 0, 0, 0) + b"nope",
    HEAD.pack(2, 0, 5, 0) + b"[]",
    HEAD.pack(2, 0, 10**9, 1) + b"[]",
    HEAD.pack(200000, 0, 0, 0) + b"[" * 200000,
]
MESSAGES = [
    {},
    {"stopped": True},
    [{}],
    [{"do": "what"}],
    [{"do": "wait", "number": 99}],
    [
        {
            "do": "send",
            "name": "send",
            "group": "0",
            "number": 1,
            "peer": 77,
            "tag": 0,
            "dtype": "float32",
            "numel": 1,
            "nbytes": 4,
        }
    ],
    [
        {
            "do": "send",
            "name": "send",
            "group": "0",
            "number": 1,
            "peer": 1,
            "tag": 0,
            "dtype": "float32",
            "numel": 10**12,
            "nbytes": 4,
        }
    ],
    [{"do": "recv", "name": "recv", "group": "0", "number": 1, "peer": 1, "tag": 0, "dtype": "object", "numel": 1}],
    [{"do": "recv", "name": "recv", "group": "9", "number": 1, "peer": 1, "tag": 0, "dtype": "int8", "numel": 1}],
    [
        {
            "do": "collective",
            "collective": "all_reduce",
            "name": "x",
            "group": "0",
            "number": 1,
            "dtype": "int8",
            "inputs": [-1],
            "outputs": [1],
        }
    ],
    [{"do": "group", "group": "1", "members": [0, 5]}],
    [{"do": "compute"}],
    [{"do": "compute", "seconds": -1.0}],
    [{"do": "compute", "seconds": float("nan")}],
    [{"do": "compute", "seconds": float("inf")}],
    [{"do": "compute", "seconds": "long"}],
    [{"do": "done", "value": {"pickle": 0}, "sizes": [3]}],
    [{"do": "done", "value": {"tensor": ["float32", [2**40], [1], 0, 0, 0, 0, None]}, "sizes": [0]}],
    [{"do": "done", "value": [1, 2], "sizes": []}],
    [{"do": "done"}],
    [{"do": "fault", "kind": "NO_SUCH_KIND", "message": 3, "where": [1, "x"]}],
    [{"do": "fault", "kind": "forbidden operation", "message": "", "where": None}],
    [{"do": "fault", "kind": "cpu limit", "number": 3, "error": {}}],
    "text",
    None,
]
ABOUT = {"group": "0", "number": 1, "tag": 0, "dtype": "float32", "numel": 1}
FIND = (
    "import gc\nfrom allranks.ranks.wire.codec import Channel\nc = next(o for o in gc.get_objects() if type(o) is Channel)\n"
    "class Beside:  # a body of nothing, and a descriptor beside it\n    fd, data, nbytes = 0, b'', 0\n"
)


@pytest.mark.parametrize("number", range(len(RAW)))
def test_broken_frames_from_a_real_rank(pool, program, number):
    code = f"{FIND}c.socket.sendall({RAW[number]!r}) if r == 0 else None\ndist.barrier()"
    failure = pool.run(program(code), 2, wall_s=1).failure
    assert failure.kind in (FailureKind.KILLED, FailureKind.WALL_LIMIT)
    assert failure.rank == 0
    assert pool.run(program("return r"), 2).results == [0, 1]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_lies_from_a_real_rank(pool, program, number):
    code = f"{FIND}c.send({MESSAGES[number]!r}) if r == 0 else None\ndist.barrier()"
    outcome = pool.run(program(code), 2, wall_s=1)
    assert outcome.failure is not None
    assert outcome.results[0] is None
    assert pool.run(program("return r"), 2).results == [0, 1]


@pytest.mark.parametrize(
    "lie",
    [
        "c.send([], Beside)",
        "c.socket.sendmsg([HEAD.pack(1 << 20, 0, 0, 0)], [(1, 1, array.array('i', [0] * 16))])",  # of a frame that never ends
    ],
)
def test_descriptors_that_nobody_asked_for_are_closed_and_end_the_run(pool, program, opened, lie):
    pool.run(program("return r"), 2)
    before = opened()
    code = f"import array\nfrom allranks.ranks.wire.codec import HEAD\n{FIND}if r == 0:\n    for _ in range(100): {lie}\ndist.barrier()"
    assert pool.run(program(code), 2, wall_s=60).failure.kind is FailureKind.KILLED
    assert pool.run(program("return r"), 2).results == [0, 1]
    assert len(opened()) <= len(before)  # a rank that was replaced has others


def test_a_rank_that_ends_long_after_its_socket_has_ended_by_itself(pool, program):
    """As on a busy machine, which takes its time to end a process."""
    code = (
        f"{FIND}import os, time\nif r:\n    c.socket.shutdown(2)\n    time.sleep(1.5)\n    os._exit(3)\ndist.barrier()"
    )
    failure = pool.run(program(code), 2).failure
    assert (failure.kind, failure.rank) == (FailureKind.EXITED, 1) and "exit code 3" in failure.message


def test_descriptors_in_answer_to_a_stop_are_closed(pool, program, opened):
    pool.run(program("return r"), 2)
    before = opened()
    code = f"{FIND}try:\n    if r: dist.barrier()\nexcept BaseException:\n    for _ in range(50): c.send({{}}, Beside)\n    raise"
    pool.run(program(code), 2, wall_s=60)
    assert pool.run(program("return r"), 2).results == [0, 1]
    assert len(opened()) <= len(before)  # a rank that was replaced has others


def test_a_rank_that_ends_with_an_answer_still_queued_is_no_error_of_the_router():
    ours, theirs = socket.socketpair()
    channel = Channel(ours, blocking=False)
    while not channel.outgoing:
        channel.send([0] * 10_000)
    theirs.close()
    process = SimpleNamespace(pid=0, poll=lambda: 7)
    session = Session([Member(process, channel)], Router(1, Rules()), {"output_bytes": 0, "output_limit": 0})
    session.selector.register(channel, session._events(session.members[0]), (0, session.members[0], "frames"))
    for key, events in session.selector.select(1):
        session.serve(events, *key.data)
    (fault,) = session.router.faults
    assert (fault.kind, fault.message) == (FailureKind.EXITED, "exit code 7")
    session.selector.close()
    channel.close()


def test_waiting_again_and_again_makes_no_room_for_more():
    router = Router(2, Rules())
    router.take(0, [{"do": "send", "name": "isend", "peer": 1, "nbytes": 4, **ABOUT}], Body(b"1234"))
    router.take(1, [{"do": "recv", "name": "recv", "peer": 0, **ABOUT}], Body())
    assert router.undelivered_nbytes == 4
    for _ in range(3):
        router.take(1, [{"do": "wait", "number": 1}], Body())
        assert router.undelivered_nbytes == 0


def collective(name: str, inputs: list[int], outputs: list[int], number: int = 1, **more) -> dict:
    about = {"do": "collective", "collective": name, "name": name, "group": "0", "number": number, "dtype": "int8"}
    return {**about, "inputs": inputs, "outputs": outputs, "nbytes": sum(inputs), **more}


def test_what_a_collective_brings_is_counted_once_and_until_it_is_taken():
    router, nbytes = Router(2, Rules()), 100_000
    for number in (1, 2):
        for rank in range(2):
            op = collective("all_gather", [nbytes], [nbytes, nbytes], number)
            router.take(rank, [op], Body.of([bytes(nbytes)]))
    assert router.undelivered_nbytes == 2 * 2 * nbytes
    for left in (3, 2, 1, 0):
        router.take(left % 2, [{"do": "wait", "number": 1 + left // 2}], Body())
        assert router.undelivered_nbytes == left * nbytes


def test_a_message_has_the_size_that_it_says():
    router = Router(2, Rules())
    for operations in ([{}], [{}, {}]):
        about = {"do": "send", "name": "isend", "peer": 1, "nbytes": 4, **ABOUT}
        with pytest.raises(CodecError, match="no payload of its size"):
            router.take(0, [about | {"i": i} | more for i, more in enumerate(operations)], Body.of([bytes(100_000)]))
        router = Router(2, Rules())


def test_a_run_that_is_over_keeps_no_message(pool, program, opened):
    pool.run(program("return r"), 2)
    before = opened()
    code = """
    big = torch.ones(100_000)
    dist.all_reduce(big)
    dist.isend(big, 1 - r)
    return dist.isend(big[:1000], 1 - r) and big
    """
    outcome = pool.run(program(code), 2)
    assert outcome.failure.kind is FailureKind.UNMATCHED
    assert len(outcome.log) == 6
    assert [len(e.payload or b"") for e in outcome.log if e.nbytes == 4000] == [4000, 4000]
    assert len(opened()) <= len(before)  # a rank that was replaced has others
    router = outcome.router
    assert not any((router.sends, router.receives, router.anysource, router.slots, router.outbox))
    assert all(op.body is None for op in router.log)
    assert all(state.result is None for state in router.ranks)


def test_what_is_logged_of_payloads_is_bounded():
    router, nbytes = Router(2, Rules()), 64 << 10
    for number in range(200):
        about = {
            "do": "send",
            "name": "isend",
            "peer": 1,
            "nbytes": nbytes,
            **ABOUT,
            "numel": nbytes // 4,
            "number": number,
        }
        router.take(0, [about], Body(bytes(nbytes)))
    assert sum(len(op.payload or b"") for op in router.log) == 8 << 20


def test_what_is_told_of_files_is_bounded():
    router = Router(2, Rules())
    for _ in range(1100):
        router.take(0, [{"do": "write", "path": "x" * 5000, "where": ["y" * 5000, 1]}], Body())
    router.take(1, [{"do": "write", "path": "x", "where": None}], Body())
    assert len(router.written) == 1001
    assert all(len(path) <= 500 and len(file or "") <= 500 for _, path, file, _ in router.written)


def test_ranks_that_say_too_much_end_the_run(pool, program, monkeypatch):
    code = "t = torch.ones(1)\nfor _ in range(100):\n    dist.all_reduce(t)"
    assert pool.run(program(code), 2).failure is None
    monkeypatch.setattr(session, "MAX_TEXT_NBYTES", 10_000)
    failure = pool.run(program(code), 2).failure
    assert failure.kind is FailureKind.MEMORY
    assert "have told the router megabytes about their operations" in failure.message
    assert pool.run(program("return r"), 2).results == [0, 1]


def test_nobody_shares_an_open_file_with_the_receiver():
    router, sent = Router(2, Rules()), Body.of([bytes(100_000)])
    router.take(0, [{"do": "send", "name": "isend", "peer": 1, "nbytes": 100_000, **ABOUT, "numel": 25_000}], sent)
    os.lseek(sent.fd, 7, os.SEEK_SET)
    assert os.lseek(router.log[0].body.fd, 0, os.SEEK_CUR) == 0


def test_a_call_that_nobody_asked_for_ends_the_run():
    router = Router(1, Rules(), calls=2)
    router.take(0, [{"do": "call"}], Body())
    with pytest.raises(CodecError, match="nobody asked for"):
        router.take(0, [{"do": "call"}], Body())


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "more"),
    [
        ("all_reduce", [1], [], {"reduce_op": "SUM"}),
        ("reduce", [1], [], {"reduce_op": "SUM", "root": 0}),
        ("broadcast", [1], [], {"root": 0}),
        ("gather", [1], [], {"root": 0}),
        ("gather", [1, 1], [1, 1], {"root": 0}),
        ("scatter", [1, 1], [], {"root": 0}),
    ],
)
def test_what_a_collective_brings_is_not_for_the_rank_to_say(name, inputs, outputs, more):
    router = Router(2, Rules())
    for rank in range(2):
        router.take(rank, [collective(name, inputs, outputs, **more)], Body(bytes(len(inputs))))
    assert [fault.kind for fault in router.faults] == [FailureKind.SIZE_MISMATCH]


def test_a_collective_is_logged_under_its_own_name():
    router = Router(1, Rules())
    router.take(0, [collective("barrier", [], [], a="all_gather_coalesced")], Body())
    assert router.log[0].name == "barrier"


@pytest.mark.parametrize("nonsense", [{"tag": float("inf")}, {"number": float("inf")}, {"numel": 1 << 62}])
def test_numbers_beyond_all_numbers_are_nonsense(nonsense):
    with pytest.raises(CodecError):
        Router(2, Rules()).take(0, [{"do": "recv", "name": "irecv", "peer": 1, **ABOUT, **nonsense}], Body())


def test_a_rank_can_not_pickle_its_way_into_the_router(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    message = {"value": {"pickle": 0}, "sizes": [len(pickle.dumps(Evil()))]}
    with pytest.raises(CodecError):
        unpack(message, Body(pickle.dumps(Evil())))
    assert not (tmp_path / "owned").exists()


def test_unsealed_shared_memory_is_refused():
    import os

    ours, theirs = socket.socketpair()
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.write(fd, b"x" * 100_000)
    sender, receiver = Channel(theirs, True), Channel(ours, True)
    sender.send([1], Body(fd=fd, nbytes=100_000))
    with pytest.raises(CodecError, match="sealed"):
        receiver.receive()
    sender.close()
    receiver.close()


def random_op(chance):
    return {
        "do": chance.choice(["send", "recv", "collective", "wait", "poll", "group", "call", "write", "fault", "done"]),
        "name": "isend",
        "group": "0",
        "number": chance.randrange(1, 9),
        "peer": chance.choice([0, 1, None]),
        "tag": 0,
        "dtype": "int8",
        "numel": chance.choice([0, 1, [1]]),
        "inputs": chance.choice([0, [1], [0]]),
        "outputs": [1],
        "collective": chance.choice(["all_reduce", "barrier", "all_to_all", "nonsense"]),
        "nbytes": chance.choice([0, 1]),
        "reduce_op": chance.choice(["SUM", "BAD", None]),
        "root": chance.choice([None, 0, 1]),
        "members": [0, 1],
        "kind": chance.choice(["exception", "changed before wait", "memory", "desync"]),
        "message": "m",
        "path": "p",
        "where": ["f", 1],
    }


LIMITS = {"cpu_s": 1, "wall_s": 1, "memory_bytes": 1, "output_limit": 1}
JUNK = [None, -1, 2**70, "x", [], {}, [[]], True, 1.5, float("nan"), ["float32"]]


@pytest.mark.parametrize("seed", range(40))
def test_the_router_survives_random_operations(seed):
    """Whatever comes, the router raises nothing but CodecError."""
    chance = random.Random(seed)
    for _ in range(40):
        router = Router(2, Rules(), chance.choice(["rendezvous", "buffered", "shuffled"]), seed)
        for _ in range(12):
            op = random_op(chance)
            for key in chance.sample(sorted(op), chance.choice([0, 0, 1, 2])):
                op[key] = copy.deepcopy(chance.choice(JUNK))
            try:
                router.take(chance.randrange(2), [op], Body(b"\1" * chance.choice([0, 1])))
            except CodecError:
                pass
            router.outbox.clear()
            if router.running == 0:
                router.settle()
        failure = ending.verdict(router, Lines(lambda file, line: None), LIMITS)
        assert failure is None or failure.text()
        rounds = record.timeline(router, UniformNetwork(1, 0))
        record.log(router, rounds, lambda file, line: None)
        record.trace(router, rounds, rounds, {})


@pytest.mark.parametrize("seed", range(20))
def test_values_survive_random_json(seed):
    chance = random.Random(seed)
    message, body = pack({}, [torch.arange(4.0), {"a": torch.zeros(2, 3).t()}, (1, "x")])
    text = json.dumps(message)
    for _ in range(200):
        at = chance.randrange(len(text))
        mutated = text[:at] + chance.choice('0123456789[]{},"-xlt') + text[at + 1 :]
        try:
            changed = json.loads(mutated)
        except ValueError:
            continue
        try:
            unpack(changed, body)
        except (CodecError, KeyError, TypeError):
            pass  # the pool takes these three for a rank's nonsense
    assert decode({"list": [1]}, []) == [1]


@pytest.mark.parametrize("count", [0, -1, True, 1.0, 10**7, "all"])
def test_an_odd_number_of_pieces_of_work_is_nonsense(count):
    router = Router(1, Rules(), pieces=[[[(2.0, b"")] * 3]])
    with pytest.raises(CodecError):
        router.take(0, [{"do": "piece", "count": count}], Body())


def test_several_pieces_of_work_take_their_time_together():
    """Past the last piece the first ones come again, and take their time again."""
    router = Router(1, Rules(), pieces=[[[(1.0, b""), (2.0, b""), (4.0, b"")]]])
    router.take(0, [{"do": "piece", "count": 2}], Body())
    router.take(0, [{"do": "piece", "count": 3}], Body())
    assert list(router.ranks[0].work.values()) == [3.0, 7.0]


READERS = {
    "process_vm_readv": """
        at = lambda place: ctypes.byref((ctypes.c_uint64 * 2)(place, 8))
        got = ctypes.CDLL(None).process_vm_readv(int(pid), at(found.data_ptr()), 1, at(int(place)), 1, 0)""",
    "/proc/PID/mem": """
        try:
            got = os.preadv(os.open(f"/proc/{int(pid)}/mem", os.O_RDONLY), [found.numpy()], int(place))
        except OSError:
            got = -1""",
    "ptrace": "got = ctypes.CDLL(None).ptrace(16, int(pid), 0, 0)  # PTRACE_ATTACH",
}


@pytest.mark.parametrize("way", READERS)
def test_a_rank_reads_no_other_ranks_memory(pool, program, way):
    """Its address and process may come in a message; the data may not come beside it."""
    body = """
        import ctypes, os
        secret, found = torch.full((1,), 42.0 + r, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        own, told = torch.tensor([os.getpid(), secret.data_ptr()]), torch.empty(2, dtype=torch.int64)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, 1 - r), dist.P2POp(dist.irecv, told, 1 - r)])
        [work.wait() for work in works]
        pid, place = told.tolist()
        READ
        dist.barrier()
        return got, found.item()"""
    read = textwrap.indent(textwrap.dedent(READERS[way]).strip("\n"), " " * 8).strip()
    assert pool.run(program(body.replace("READ", read)), 2).results == [(-1, 0.0)] * 2
    readable = program(body.replace("READ", read).replace("told.tolist()", "own.tolist()"))
    if way != "ptrace":  # one's own memory stays readable: the way itself works here
        assert pool.run(readable, 2).results == [(8, 42.0), (8, 43.0)]
