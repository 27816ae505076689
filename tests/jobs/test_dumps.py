"""Flight-recorder dumps: real ones of live gloo ranks, NCCL's form, what the debug server shows, and bad files."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from allranks.jobs.desync import desync
from allranks.jobs.dumps import is_dump, read_dump
from allranks.jobs.job import Job, ProfileError
from allranks.jobs.plain import RefusedError, unpickle

RANKS = 3
PROGRAM = Path(__file__).with_name("recorded_dumps.py")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dumps")
    store = tmp_path_factory.mktemp("met") / "store"
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "2000"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(RANKS), str(store), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        for rank in range(RANKS)
    ]
    try:
        for process in ranks:
            assert process.stdout.readline() == b"written\n"
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    return folder


def job(folder: Path, names) -> Job:
    return Job(tuple(record for name in names for record in read_dump(name, (folder / name).read_bytes())))


def names(*ranks: int, end: str = "") -> list[str]:
    return [f"trace_rank{rank}{end}" for rank in ranks]


@pytest.mark.live
def test_a_live_dump_says_what_the_rank_called(dumps):
    data = (dumps / "trace_rank0").read_bytes()
    assert is_dump(data[:4096])
    assert unpickle(data) == (pickle.loads(data), True)
    [record] = read_dump("trace_rank0", data)
    assert (record.rank, record.rank_from, record.source) == (0, "the file's name", "flight recorder")
    assert record.facts["backend"] == "gloo"
    calls = [(c.op, c.group, c.in_elements, c.dtype, c.state) for c in record.calls]
    world = "0 default_pg"
    assert calls[-5:] == [
        *(("all_reduce", world, n, "float32", "completed") for n in (8, 9, 10)),
        ("broadcast", "1 pair", 8, "int32", "completed"),
        ("all_reduce", world, 7, "float32", "scheduled"),
    ]
    assert [c.seq for c in record.calls if c.group == world] == [1, 2, 3, 4, 5]
    assert record.calls[-1].nbytes == 28
    assert record.calls[-1].where.startswith(str(PROGRAM))
    assert any("gloo" in note for note in record.notes)


@pytest.mark.live
def test_both_forms_say_the_same(dumps):
    for rank in range(RANKS):
        [pickled] = read_dump(f"trace_rank{rank}", (dumps / f"trace_rank{rank}").read_bytes())
        [plain] = read_dump(f"trace_rank{rank}.json", (dumps / f"trace_rank{rank}.json").read_bytes())
        assert [(c.op, c.group, c.seq, c.nbytes, c.start_us) for c in pickled.calls] == [
            (c.op, c.group, c.seq, c.nbytes, c.start_us) for c in plain.calls
        ]


@pytest.mark.live
def test_the_first_call_where_ranks_differ_is_named_with_both_lines(dumps):
    first, *_ = desync(job(dumps, names(0, 1, 2)))
    assert (first.kind, first.rank) == ("desync", 1)
    assert first.cause == "Rank 1 made another call than ranks 0 and 2: broadcast, where they made all_reduce."
    lines = PROGRAM.read_text().splitlines()
    mine = next(i for i, line in enumerate(lines, 1) if "torch.ones(5)" in line)
    theirs = max(i for i, line in enumerate(lines, 1) if "torch.ones(7)" in line)
    assert "call 5 of the group of all ranks is the first that differs" in first.evidence
    assert f"rank 1: broadcast of 5 float32 at {PROGRAM}:{mine}" in first.evidence
    assert f"rank 0: all_reduce of 7 float32 at {PROGRAM}:{theirs}" in first.evidence


@pytest.mark.live
def test_a_missing_file_is_a_clue(dumps):
    causes = desync(job(dumps, names(0, 2)))
    assert [(c.kind, c.rank) for c in causes[:1]] == [("missing_rank", 1)]
    assert "There is no dump of rank 1." in causes[0].cause
    assert "killed" in causes[0].evidence
    assert "destroy_process_group" in causes[0].evidence
    assert "ranks 0 and 2 wait in call 5" in causes[0].evidence


@pytest.mark.live
def test_a_dump_that_ends_in_the_middle_still_tells_its_complete_calls(dumps):
    for end in ("", ".json"):
        data = (dumps / f"trace_rank0{end}").read_bytes()
        [whole] = read_dump(f"trace_rank0{end}", data)
        told = 0
        for cut in range(1, len(data) - 1, 97):
            try:
                [part] = read_dump(f"trace_rank0{end}", data[:cut])
            except ProfileError as refused:
                assert "\n" not in str(refused)
            else:
                told += 1
                assert part.calls == tuple(whole.calls[: len(part.calls)]) or not whole.groups == part.groups
                assert any("ends in the middle" in note for note in part.notes)
        assert told > 5


def entry(number, op="nccl:all_reduce", seq=None, group=("0", "default_pg"), state="completed", **more):
    return {
        "frames": [{"name": "step", "filename": "/home/me/train.py", "line": 40 + number}],
        "record_id": number,
        "pg_id": 0,
        "process_group": group,
        "collective_seq_id": number + 1 if seq is None else seq,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": op,
        "time_created_ns": 1_724_779_239_936_775_119 + number,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
        **more,
    }


def nccl(rank, *entries, ranks=4, groups=()):
    """A dump as NCCL's recorder writes it, and the record that it gives."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    for name, desc, members in groups:
        config[name] = {"name": name, "desc": desc, "ranks": str(members)}
    dump = {
        "version": "2.10",
        "pg_config": config,
        "pg_status": {},
        "comm_lib_version": "2.27.5",
        "entries": list(entries),
    }
    [record] = read_dump(f"nccl_trace_rank_{rank}", pickle.dumps(dump, protocol=2))
    return record


def test_nccl_dumps_name_their_groups_their_peers_and_their_world():
    sent = entry(1, "nccl:send 1->0", seq=0, group=("7", "pipe"), state="started", p2p_seq_id=3, is_p2p=True)
    record = nccl(
        5, entry(0, "nccl:_all_gather_base", output_sizes=[[12, 4]]), sent, ranks=8, groups=[("7", "pipe", [2, 5])]
    )
    gathered, send = record.calls
    assert record.world_size == 8
    assert (gathered.op, gathered.nbytes, gathered.group_ranks) == ("all_gather", 192, tuple(range(8)))
    assert (send.op, send.seq, send.peer, send.group, send.state) == ("send", 3, 2, "7 pipe", "started")
    assert gathered.where == "/home/me/train.py:40"


def test_calls_are_matched_by_number_where_the_buffer_has_wrapped():
    late = [entry(i) for i in range(100, 105)]
    records = [nccl(0, *late[:4]), nccl(1, *late[1:3]), nccl(2, *late[:4]), nccl(3, *late[:4])]
    assert any("first 100 calls are not in the file" in note for note in records[0].notes)
    [cause] = desync(Job(tuple(records)))
    assert (cause.kind, cause.rank) == ("missing_rank", 1)
    assert "never made call 104" in cause.cause
    assert "train.py:142" in cause.evidence  # where rank 1 made its last one
    assert "train.py:143" in cause.evidence  # where the others wait


def test_a_call_left_out_and_an_order_turned_round_are_told():
    ops = ["nccl:all_reduce", "nccl:barrier", "nccl:_reduce_scatter_base"]

    def rank(number, order):
        return nccl(number, *(entry(i, ops[k]) for i, k in enumerate(order)), ranks=3)

    left_out = desync(Job((rank(0, (0, 1, 2)), rank(1, (0, 2)), rank(2, (0, 1, 2)))))[0]
    assert left_out.rank == 1
    assert "it left out one call" in left_out.evidence
    turned = desync(Job((rank(0, (0, 1, 2)), rank(1, (0, 2, 1)), rank(2, (0, 1, 2)))))[0]
    assert "the same two calls in the other order" in turned.evidence


def test_sizes_and_types_that_differ_are_named():
    size = desync(
        Job(tuple(nccl(r, entry(0, input_sizes=[[8 + (r == 2)]], output_sizes=[[8 + (r == 2)]])) for r in range(4)))
    )
    assert size[0].cause.startswith(
        "Rank 2 made the call with another size than ranks 0, 1 and 3: all_reduce of 9 float32"
    )
    kind = desync(Job(tuple(nccl(r, entry(0, input_dtypes=["Int" if r == 2 else "Float"])) for r in range(4))))
    assert "with another type" in kind[0].cause


def test_the_root_comes_first_when_a_missing_rank_waits_in_another_group():
    def rank(number, *more):
        return nccl(number, entry(0), *more, groups=[("5", "pair", [1, 2])])

    waits = entry(1, "nccl:broadcast", seq=1, group=("5", "pair"), state="started")
    world = entry(1, state="started")
    causes = desync(Job((rank(0, world), rank(1, waits), rank(2), rank(3, world))))
    assert causes[0].rank == 2
    assert "group pair of ranks 1 and 2" in causes[0].cause
    assert "rank 1 itself waits in call 1 of group pair" in causes[-1].evidence


def test_a_hang_with_the_same_call_everywhere_is_not_the_programs():
    stuck = entry(1, state="started", retired=True)
    [cause] = desync(Job(tuple(nccl(r, entry(0), stuck) for r in range(4))))
    assert cause.kind == "hang"
    assert "Every rank made call 2" in cause.cause
    assert "links" in cause.evidence


def test_a_finished_job_has_no_cause():
    assert desync(Job(tuple(nccl(r, entry(0), entry(1)) for r in range(4)))) == ()


def test_the_rank_is_the_calls_where_the_name_says_another():
    record = nccl(3, entry(0, "nccl:send 2->0", p2p_seq_id=1))
    assert (record.rank, record.rank_from) == (2, "the file")
    assert record.notes == ("its name says rank 3, but its calls are rank 2's",)
    [unnamed] = read_dump("dump", pickle.dumps({"entries": [entry(0)]}, 2))
    assert unnamed.rank_from == "unknown"


SHOWN = json.dumps(
    {"version": "2.10", "pg_status": {}, "entries": [entry(0, "gloo:all_reduce", state="scheduled")]}, indent=2
)
PAGE = f"""<title>Torch Distributed Debug Server</title>
<h2>Rank 0: http://a:1/handler/fr_trace_json?</h2>
<pre>{SHOWN}</pre>
<h2>Rank 1: http://a:2/handler/fr_trace_json?</h2>
<p>Failed to fetch: status=503</p>
<pre>no answer</pre>
<h2>Rank 2: http://a:3/handler/fr_trace_json?</h2>
<pre>{SHOWN}</pre>"""
STACK = """=== Rank 1: http://a:2/handler/dump_traceback? ===
Thread 0x1 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/me/train.py", line 11 in work
"""


def test_the_debug_servers_pages_are_read():
    assert is_dump(PAGE.encode())
    records = read_dump("fr_trace_json.html", PAGE.encode())
    assert [r.rank for r in records] == [0, 2]
    [stack] = read_dump("stacks_20261123_063350.txt", STACK.encode())
    assert (stack.rank, stack.facts["stands"]) == (1, "/home/me/train.py:11 in work")
    with pytest.raises(ProfileError, match="save /fr_trace_json"):
        read_dump("fr_trace.txt", b"PARTIAL DATA\n=== FR Trace ===\n")


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/allranks-was-here",)


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_a_pickle_with_a_class_is_refused_by_name(protocol):
    data = pickle.dumps({"version": "2.10", "entries": [Evil()]}, protocol=protocol)
    with pytest.raises(RefusedError, match=r"asks for posix\.system, and a dump has plain data only: nothing"):
        unpickle(data)
    assert not Path("/tmp/allranks-was-here").exists()


BOMBS = {
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "lists in lists": b"\x80\x02" + b"]" * 200 + b"a" * 199 + b".",
    "open marks": b"\x80\x02" + b"(" * 1_000_000,
    "lists that share": b"\x80\x02]q\x00"
    + b"".join(b"](" + (b"h" + bytes([i])) * 10 + b"eq" + bytes([i + 1]) for i in range(20))
    + b".",
    "a memo far away": b"\x80\x02r\xff\xff\xff\x7f.",
    "extensions": b"\x80\x02\x82\x01.",
    "persistent names": b"\x80\x02NQ.",
    "an object built": b"\x80\x02}}b.",
    "names that are numbers": b"\x80\x02}K\x01K\x01s.",
    "text of protocol 0": b"(dp0\n.",
    "two values": b"\x80\x02NN.",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_pickles_that_no_recorder_writes_are_refused_in_one_sentence(bomb):
    with pytest.raises(RefusedError) as refused:
        unpickle(BOMBS[bomb])
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\x80\x02X\xff\xff\xff\xffab", "ends before the first call"),
        (b"\x80\x02]q\x00.", "not a flight recorder's"),
        (b'{"comm_lib_version": ' + b"[" * 100_000, "deeper|before the first call"),
        (b'{"entries": 7, "pg_status": {}}', "not a flight recorder's"),
        (b'{"pg_config": {}}', "no entries"),
    ],
)
def test_files_of_which_nothing_can_be_told_get_one_sentence(data, why):
    with pytest.raises(ProfileError, match=why):
        read_dump("x_rank0", data)


def test_entries_with_nonsense_in_every_field_are_read_or_left_out():
    strange = [None, -1, "x", [], {}, [[None, "a"]], [["7" * 50]], 1e308, True, "9" * 5000]
    for field in entry(0):
        for value in strange:
            dump = {"entries": [entry(0), {**entry(1), field: value}, 3, None]}
            [record] = read_dump("x_rank0.json", json.dumps(dump).encode())
            assert record.calls
            desync(Job((record, nccl(1, entry(0)))))


def test_a_dump_that_python_printed_is_read():
    entry = {"record_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 4, "state": "completed",
             "profiling_name": "nccl:all_reduce", "retired": True}  # fmt: skip
    whole = {
        "version": "2.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": [entry],
    }
    with_tuple = json.dumps(whole).replace('["0", "default_pg"]', '("0", "default_pg")')
    for text in (repr(whole), with_tuple):
        assert is_dump(text.encode())
        [record] = read_dump("trace_rank1.json", text.encode())
        assert (record.calls[0].op, record.calls[0].seq, record.calls[0].group) == ("all_reduce", 4, "0 default_pg")
