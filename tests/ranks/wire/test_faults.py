"""A storm of wrong and hostile programs: each gets one reason, within the limits, and leaves nothing behind."""

import py_compile
import signal
import threading

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.wire import FailureKind, Program, Rules, router, session
from waiting import gone, until

K = FailureKind

# name: (body, kind, ranks, line, words of the message, options)
STORM = {
    "size": ("t = torch.zeros(4 + r)\ndist.send(t, 1) if r == 0 else dist.recv(t, 0)", K.SIZE_MISMATCH, 5, ("Rank 0 sent 4 float32 elements to rank 1", "expected 5 float32")),
    "dtype": ("t = torch.zeros(4, dtype=[torch.int64, torch.float64][r])\ndist.send(t, 1) if r == 0 else dist.recv(t, 0)", K.DTYPE_MISMATCH, 5, ("4 int64", "4 float64")),
    "complex against real": ("t = torch.zeros(4, dtype=torch.complex64) if r else torch.zeros(4)\ndist.send(t, 1) if r == 0 else dist.recv(t, 0)", K.SIZE_MISMATCH, 5, ("4 float32", "4 complex64")),
    "sizes of a collective": ("dist.all_reduce(torch.zeros(3 + r))", K.SIZE_MISMATCH, 4, ("of 3 float32", "of 4 float32")),
    "dtypes of a collective": ("dist.all_reduce(torch.zeros(3, dtype=torch.float64 if r else torch.float32))", K.DTYPE_MISMATCH, 4, ("float64", "float32")),
    "output that does not fit": ("dist.all_gather_into_tensor(torch.zeros(5), torch.zeros(2))", K.SIZE_MISMATCH, 4, ("output 5",)),
    "parts that are no whole rows": ("dist.all_to_all_single(torch.zeros(4), torch.zeros(3))", K.EXCEPTION, 4, ("cuts its input into 2 equal parts; this one has 3 rows",)),
    "sizes that do not add up": ("dist.all_to_all_single(torch.zeros(4), torch.zeros(3), [2, 2], [2, 3])", K.EXCEPTION, 4, ("input sizes [2, 3] add up to 5, but its input has 3 rows",)),
    "uneven parts": ("dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [2, 2], [1 + 2 * r, 3 - 2 * r])", K.SIZE_MISMATCH, 4, ("sends 1 element to rank 0",)),
    "too few parts out": ("dist.all_to_all([torch.zeros(1)], [torch.zeros(1), torch.zeros(1)])", K.SIZE_MISMATCH, 4, ("all_to_all among 2 ranks takes 2 parts in and 2 out",)),
    "a dtype that torch only stores": ("dist.all_reduce(torch.zeros(2, dtype=torch.uint16))", K.DTYPE_MISMATCH, 4, ("SUM is not defined for uint16",)),
    "a collective by the name of a send": ("dist.group.WORLD._get_backend(torch.device('cpu'))._collective('isend', [torch.zeros(1)], [torch.zeros(1)]).wait()", K.KILLED, None, ("a collective is unknown",)),
    "centuries of computing": ("from allranks.ranks.wire.endpoint import compute\ncompute(1.7e308)", K.KILLED, None, ("a time to compute is no time",)),
    "one tensor for all": ("dist.all_gather([torch.zeros(1)] * p, torch.zeros(1))", K.EXCEPTION, 4, ("all_gather would fill 2 tensors that lie in the same memory", "`[t] * p`")),
    "too many parts in": ("dist.all_to_all([torch.zeros(1), torch.zeros(1)], [torch.zeros(1)] * 3)", K.SIZE_MISMATCH, 4, ("all_to_all among 2 ranks takes 2 parts in and 2 out",)),
    "parts to gather that do not fit": ("dist.all_gather([torch.zeros(2), torch.zeros(3)], torch.zeros(2))", K.SIZE_MISMATCH, 4, ("output",)),
    "average of whole numbers": ("dist.all_reduce(torch.zeros(3, dtype=torch.int32), dist.ReduceOp.AVG)", K.DTYPE_MISMATCH, 4, ("AVG is not defined for int32",)),
    "left-over send": ("if r == 0:\n    w = dist.isend(torch.zeros(2), 1)", K.UNMATCHED, 5, ("Rank 0 sent 2 float32 elements to rank 1", "nobody received")),
    "left-over receive": ("if r == 0:\n    w = dist.irecv(torch.zeros(2), 1)", K.UNMATCHED, 5, ("nobody sent it",)),
    "send never waited": ("t = torch.zeros(2)\ndist.isend(t, 1) if r == 0 else dist.recv(t, 0)", K.NEVER_WAITED, 5, ("never waited for its isend", "still in use")),
    "receive never waited": ("t = torch.zeros(2)\ndist.send(t, 1) if r == 0 else dist.irecv(t, 0)", K.NEVER_WAITED, 5, ("never waited for its irecv", "not arrived")),
    "collective never waited": ("dist.all_reduce(torch.zeros(2), async_op=True)", K.NEVER_WAITED, 4, ("never waited for its all_reduce",)),
    "collective called by one, not waited": ("if r == 0:\n    dist.all_reduce(torch.zeros(2), async_op=True)", K.DESYNC, 5, ("rank 1 never did",)),
    "changed before wait": ("t = torch.zeros(2)\nif r == 0:\n    w = dist.isend(t, 1)\n    t += 1\n    w.wait()\nelse:\n    dist.recv(t, 0)", K.CHANGED_BEFORE_WAIT, 8, ("changed the buffer of isend to rank 1, line 6", "before its wait(), line 8")),
    "received into what is being sent": ("t = torch.full((2,), float(r))\nw = dist.isend(t, 1 - r)\ndist.recv(t, 1 - r)\nw.wait()", K.CHANGED_BEFORE_WAIT, 6, ("Rank 0's recv, line 6 writes into the buffer of its isend to rank 1, line 5", "before the wait() of that", "buffer of its own")),
    "changed before a collective's wait": ("t = torch.zeros(2)\nw = dist.all_reduce(t, async_op=True)\nt += r\nw.wait()", K.CHANGED_BEFORE_WAIT, 7, ("all_reduce",)),
    "exception": ("if r == 1:\n    raise KeyError('chunk')\ndist.barrier()", K.EXCEPTION, 5, ("Rank 1, line 5 raised KeyError: 'chunk'",)),
    "exception in torch": ("torch.zeros(2) + torch.zeros(3)", K.EXCEPTION, 4, ("RuntimeError",)),
    "torch's own refusal": ("dist.send(torch.zeros(1), r)", K.EXCEPTION, 4, ("ValueError",)),
    "no such rank": ("dist.send(torch.zeros(1), p)", K.EXCEPTION, 4, ("send to rank 2, but there are only ranks 0 to 1",)),
    "rank -1": ("dist.irecv(torch.zeros(1), -1)", K.EXCEPTION, 4, ("rank -1",)),
    "no such root": ("dist.broadcast(torch.zeros(1), 5)", K.EXCEPTION, 4, ("5",)),
    "an exception that can't be shown": ("class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E", K.EXCEPTION, 7, ("can't be shown",)),
    "control characters": ("raise ValueError('a\\x1b[31mb\\x00c\\nd')", K.EXCEPTION, 4, ("a [31mb c d",)),
    "recursion": ("def g():\n    g()\ng()", K.EXCEPTION, 5, ("RecursionError",)),
    "keyboard interrupt": ("raise KeyboardInterrupt", K.EXCEPTION, 4, ("KeyboardInterrupt",)),
    "sys.exit": ("import sys\nif r:\n    sys.exit(3)\ndist.barrier()", K.EXITED, 6, ("Rank 1, line 6 ended the process",)),
    "os._exit": ("import os\nif r:\n    os._exit(0)\ndist.barrier()", K.EXITED, None, ("Rank 1", "exit code 0")),
    "killed": ("import os, signal\nif r:\n    os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()", K.KILLED, None, ("Rank 1 was killed by SIGKILL",)),
    "crash": ("import ctypes\nif r:\n    ctypes.string_at(0)\ndist.barrier()", K.KILLED, None, ("SIGSEGV",)),
    "endless loop": ("while r == 1:\n    pass\ndist.barrier()", K.CPU_LIMIT, (4, 5), ("more than 0.3 s",)),
    "asleep": ("import time\nif r == 1:\n    time.sleep(100)\ndist.barrier()", K.WALL_LIMIT, 6, ("Rank 1, line 6 had not ended after 3 s",)),
    "memory": ("if r == 1:\n    x = torch.ones(10**10)\ndist.barrier()", K.MEMORY, 5, ("Rank 1, line 5 asked for more than",)),
    "memory of Python": ("x = []\nwhile True:\n    x.append(bytearray(10**7))", K.MEMORY, 6, ("asked for more",)),
    "megabytes of output": ("while True:\n    print('x' * 10000)", K.OUTPUT, None, ("printed more than",)),
    "a cell's name": ("torch.ones(1) * rank", K.EXCEPTION, 4, ("NameError: name 'rank' is not defined. Cells of %%ranks have that name; a function asks for it: dist.get_rank().",)),
    "closed output": ("import os\nos.close(1)\nos.close(2)\nprint('x')\nraise ValueError", K.EXCEPTION, (7, 8), ("raised",)),
    "fork": ("import os\nos.fork()", K.FORKED, 5, ("tried to start another process",)),
    "subprocess": ("import subprocess\nsubprocess.run(['true'])", K.FORKED, 5, ("another process",)),
    "os.system": ("import os\nos.system('true')", K.FORKED, 5, ("another process",)),
    "multiprocessing": ("import multiprocessing as m\nq = m.get_context('fork').Process(target=print)\nq.start()", K.FORKED, 6, ("another process",)),
    "function as a result": ("return lambda: 1", K.BAD_RESULT, None, ("a function can't be returned",)),
    "huge number": ("return 10**6000", K.BAD_RESULT, None, ("19932 bits",)),
    "endless result": ("x = []\nx.append(x)\nreturn x", K.BAD_RESULT, None, ("nested deeper",)),
    "meta tensor": ("return torch.zeros(2, device='meta')", K.BAD_RESULT, None, ("meta",)),
    "import": ("import no_such_module", K.IMPORT, 4, ("no_such_module",)),
}  # fmt: skip


@pytest.mark.parametrize("name", STORM)
def test_storm(pool, program, name):
    body, kind, line, words = STORM[name]
    wall_s = 3 if kind is K.WALL_LIMIT else 60
    cpu_s = 0.3 if kind is K.CPU_LIMIT else 60
    outcome = pool.run(program(body), 2, cpu_s=cpu_s, wall_s=wall_s, memory_bytes=300_000_000)
    failure = outcome.failure
    assert failure is not None
    assert failure.kind in (kind if isinstance(kind, tuple) else (kind,)), failure.message
    assert failure.line in (line if isinstance(line, tuple) else (line,))
    for word in words:
        assert word in failure.message
    assert "Traceback" not in failure.text()
    assert failure.message.isprintable()
    good = pool.run(program("dist.barrier(); return r"), 2)
    assert good.failure is None
    assert good.results == [0, 1]


@pytest.mark.parametrize(
    ("source", "kind", "line", "word"),
    [
        ("def f(:\n", K.SYNTAX, 1, "does not parse"),
        ("x = 1\ndef g(): pass", K.NO_FUNCTION, None, "no function f"),
        ("f = 3", K.NO_FUNCTION, None, "no function f"),
        ("import torch\nimport nowhere.at.all\ndef f(): pass", K.IMPORT, 2, "nowhere"),
        ("from math import nothing\ndef f(): pass", K.IMPORT, 1, "nothing"),
        ("x = 1\ny = x / 0\ndef f(): pass", K.EXCEPTION, 2, "ZeroDivisionError"),
        ("import sys\nsys.exit()\ndef f(): pass", K.EXITED, 2, "ended the process"),
        ("def f():\n    return 1\x00", K.SYNTAX, None, "null"),
        ("while True: pass", K.CPU_LIMIT, 1, "endless loop"),
    ],
)
def test_programs_that_do_not_load(pool, source, kind, line, word):
    failure = pool.run(Program(source, "f", "answer.py"), 2, cpu_s=0.3).failure
    assert failure.kind is kind, failure.message
    assert failure.line == line
    assert word in failure.message


@pytest.mark.parametrize("late", range(3))
def test_what_is_said_of_tags_does_not_depend_on_who_came_first(pool, program, late):
    body = (
        f"import time\ntime.sleep(0.2 * (r == {late}))\nt = torch.ones(1)\nw = dist.isend(t, (r + 1) % p, tag=1)\n"
        "dist.recv(torch.empty(1), (r - 1) % p, tag=2)"
    )
    failure = pool.run(program(body), 3).failure
    assert "Rank 0 sends with tag 1, but rank 1 receives with tag 2." in failure.message


def test_an_endless_loop_is_told_from_sleep_where_the_clock_ends_it_first(pool, program):
    """On a busy machine a loop may not get the processor time of its own limit."""
    busy = pool.run(program("while r == 0: pass"), 2, wall_s=3, cpu_s=60).failure
    asleep = pool.run(program("import time\ntime.sleep(60)"), 2, wall_s=3, cpu_s=60).failure
    assert busy.kind is asleep.kind is K.WALL_LIMIT
    assert "had not ended after 3 s, of which it computed for" in busy.message
    assert busy.message.endswith("an endless loop?")
    assert asleep.message.endswith("had not ended after 3 s.")


def test_a_rank_that_is_woken_late_still_says_where_it_is(pool, program, monkeypatch):
    """A busy machine takes its time to run the rank that was asked."""
    monkeypatch.setattr(session, "ANSWER_S", 30)
    pool.start(2)
    process = pool._members[1].process
    kill = process.kill

    def slowly(sig=signal.SIGKILL):
        threading.Timer(0.6, kill, [sig]).start() if sig == signal.SIGUSR1 else kill(sig)

    monkeypatch.setattr(process, "kill", slowly)
    failure = pool.run(program("import time\nif r:\n    time.sleep(100)"), 2, wall_s=3).failure
    assert (failure.kind, failure.rank, failure.line) == (K.WALL_LIMIT, 1, 6)


def test_a_rank_that_stops_late_is_kept(pool, program, monkeypatch):
    monkeypatch.setattr(session, "ANSWER_S", 30)
    pool.start(2)
    before = pool.pids
    body = (
        "import time\ntry:\n    dist.recv(torch.ones(1), 1 - r)\nexcept BaseException:\n    time.sleep(0.6)\n    raise"
    )
    assert pool.run(program(body), 2).failure.kind is K.DEADLOCK
    assert pool.pids == before


def test_endless_messages_end(pool, program, monkeypatch):
    monkeypatch.setattr(router, "MAX_OPERATIONS", 60)
    body = program("t = torch.zeros(1)\nwhile True:\n    w = dist.isend(t, 1 - r)\n    w.is_completed()")
    failure = pool.run(body, 2).failure
    assert (failure.kind, failure.line) == (K.CPU_LIMIT, 6)
    assert "60 operations: an endless loop?" in failure.message


def test_messages_that_nobody_receives_do_not_fill_the_memory(pool, program, monkeypatch):
    monkeypatch.setattr(router, "MAX_UNDELIVERED_NBYTES", 10_000_000)
    body = program("t = torch.zeros(250_000)\nfor _ in range(20):\n    w = dist.isend(t, 1 - r)\nw.wait()")
    failure = pool.run(body, 2).failure
    assert (failure.kind, failure.line) == (K.MEMORY, 6)
    body = program(
        "t = torch.zeros(250_000)\nfor _ in range(20):\n"
        "    w = dist.isend(t, 1 - r)\n    dist.recv(t.clone(), 1 - r)\n    w.wait()\n    dist.all_reduce(t)"
    )
    assert pool.run(body, 2).failure is None


def test_catching_everything_does_not_stop_the_end(pool, program):
    body = """
    for i in range(3):
        try:
            dist.recv(torch.zeros(1), 1 - r)
        except BaseException:
            pass
    return "survived"
    """
    outcome = pool.run(program(body), 2)
    assert outcome.deadlock is not None
    assert outcome.results == [None, None]
    assert pool.run(program("return r"), 2).results == [0, 1]


def test_forbidden_operations_are_refused_with_their_line(pool, program):
    body = program("t = torch.ones(2)\nif r == 1:\n    dist.all_reduce(t)\nelse:\n    dist.recv(t, 1)")
    failure = pool.run(body, 2, allow={"send", "recv"}).failure
    assert failure.kind is K.FORBIDDEN_OP
    assert (failure.rank, failure.line, failure.op) == (1, 6, "all_reduce")
    assert "Allowed: recv, send" in failure.message
    body = program("w = dist.isend(torch.ones(1), 1) if r == 0 else dist.irecv(torch.ones(1), 0)\nw.wait()")
    assert pool.run(body, 2, allow={"send", "recv"}).failure.op == "isend"
    assert pool.run(body, 2, allow={"isend", "irecv"}).failure is None


def test_a_collective_can_not_be_passed_off_as_another(pool, program):
    """What counts is what the router does for the rank, not the name that the rank gives."""
    body = program("dist.group.WORLD.allreduce([torch.ones(1)]).wait()")
    failure = pool.run(body, 2, allow={"send", "recv", "all_gather"}).failure
    assert failure.kind is K.FORBIDDEN_OP
    assert failure.op == "all_reduce"


def test_forbidden_peers(pool, program):
    body = program("t = torch.ones(1)\nif r == 0:\n    dist.send(t, 2)\nif r == 2:\n    dist.recv(t, 0)")
    failure = pool.run(body, 4, rules=Rules(peers="ring")).failure
    assert failure.kind is K.FORBIDDEN_PEER
    assert (failure.rank, failure.line) == (0, 6)
    assert "its neighbours are rank 3 and rank 1" in failure.message
    assert pool.run(body, 3, rules=Rules(peers="ring")).failure is None
    failure = pool.run(body, 3, rules=Rules(peers=lambda rank, peer, p: peer == 1)).failure
    assert failure.kind is K.FORBIDDEN_PEER


def test_files_opened_for_writing_are_known(pool, program, tmp_path):
    body = program(f"open({str(tmp_path / 'x')!r}, 'w').close()\nopen('/dev/null').close()\ndist.barrier()")
    outcome = pool.run(body, 2)
    assert outcome.failure is None
    assert {(f.rank, f.path, f.line) for f in outcome.files} == {(r, str(tmp_path / "x"), 4) for r in range(2)}


def test_a_file_that_a_library_writes_while_it_is_imported_is_none(pool, program, tmp_path):
    source = tmp_path / "source.py"
    source.write_text(f"open({str(tmp_path / 'cache')!r}, 'w').close()")
    py_compile.compile(str(source), str(tmp_path / "writes_a_cache.pyc"), dfile="<frozen library>")
    body = program(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport writes_a_cache")
    outcome = pool.run(body, 2)
    assert outcome.failure is None, outcome.failure.text()
    assert (tmp_path / "cache").exists()
    assert outcome.files == []


def test_output_is_kept_by_rank_and_capped(pool, program):
    body = program("print('hello', r)\nimport sys\nprint('oops', file=sys.stderr)\nraise ValueError")
    outcome = pool.run(body, 2)
    assert outcome.output == ["hello 0\noops\n", "hello 1\noops\n"]
    outcome = pool.run(program("print('y' * 100_000)"), 1, output_bytes=1000)
    assert outcome.failure.kind is K.OUTPUT
    outcome = pool.run(program("print('y' * 10_000)"), 1, output_bytes=1000)
    assert outcome.failure is None
    assert outcome.output[0].startswith("y" * 1000 + "\n... (9001 more bytes")
    assert pool.run(program("return 1"), 1).output == [""]


def test_writing_to_descriptor_1_is_kept_too(pool, program):
    assert pool.run(program("import os; os.write(1, b'raw')"), 1).output == ["raw"]


def test_what_a_deadlocked_rank_printed_is_there(pool, program):
    outcome = pool.run(program("print('at', r)\ndist.recv(torch.zeros(1), 1 - r)"), 2)
    assert outcome.output == ["at 0\n", "at 1\n"]


def test_the_first_of_several_faults_is_named(pool, program):
    """Every rank is wrong; the verdict is the earliest operation's, then the lowest rank's, in every run."""
    body = program(
        "import time\ntime.sleep(0.02 * (p - r))\nif r < 2:\n    dist.all_gather([torch.ones(1) for _ in range(p)], torch.ones(1))\ndist.barrier()"
    )
    seen = {pool.run(body, 4, allow={"send"}).failure.text() for _ in range(3)}
    assert len(seen) == 1
    assert "Rank 0, line 7 called all_gather" in seen.pop()


def test_the_call_is_counted(pool):
    def once(t):
        if t.item() == 3:
            raise ValueError
        dist.barrier()
        return t + 1

    outcome = pool.run(once, 2, per_rank=[[(torch.tensor(i),) for i in range(5)]] * 2, calls=5)
    assert (outcome.failure.kind, outcome.failure.call) == (K.EXCEPTION, 3)
    assert {e.call for e in outcome.log} == {0, 1, 2}


def test_student_threads_can_not_use_the_wire(pool, program):
    body = """
    import threading
    caught = []
    def work():
        try:
            dist.isend(torch.zeros(1), 1 - r)
        except RuntimeError as error:
            caught.append(str(error))
    t = threading.Thread(target=work)
    t.start()
    t.join()
    return caught
    """
    outcome = pool.run(program(body), 2)
    assert outcome.failure.kind is FailureKind.THREAD and "only the main thread may" in outcome.failure.message


def test_processes_that_escape_the_audit_are_killed(pool, program):
    """A fork made by C code is seen afterwards, and so is what it left."""
    body = program(
        "import ctypes, time\npid = ctypes.CDLL(None).fork()\nif pid == 0:\n    time.sleep(1000)\nreturn pid"
    )
    outcome = pool.run(body, 1)
    assert outcome.failure.kind is K.FORKED
    until(lambda: gone(outcome.results[0]))


def test_a_library_that_starts_a_process_while_it_is_imported_is_only_refused(pool, program, tmp_path):
    """As plotting libraries do, to find fonts; the program itself may start none."""
    library = (
        "import subprocess\ntry:\n    subprocess.run(['true'])\n    ran = True\nexcept OSError:\n    ran = False\n"
    )
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "starts_a_process.py").write_text(library)
    body = f"import sys\nsys.path.insert(0, {str(folder)!r})\nimport starts_a_process as s\n"
    outcome = pool.run(program(f"{body}return s.ran"), 2)
    assert outcome.results == [False, False], outcome.failure
    outcome = pool.run(program(f"{body}import os\nos.fork()"), 1)
    assert outcome.failure.kind is K.FORKED
    assert outcome.failure.line == 8
