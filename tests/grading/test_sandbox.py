"""What a rank can't do in the sandbox. Each test runs real code in a real rank, as a submission would."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from pathlib import Path

import pytest
import torch
from allranks.ranks.wire import Program, Ranks

from autograder import sandbox as sandbox_module
from autograder import seccomp
from autograder.sandbox import Sandbox, SandboxError

HEAD = """
import os
def _open(n):
    try:
        os.fstat(n)
        return True
    except OSError:
        return False
FDS = [n for n in range(3, 256) if _open(n)]
def say(*words):
    os.write(FDS[-1], (" ".join(map(str, words)) + chr(10)).encode())
try:
"""
TAIL = """
except BaseException as error:
    say(type(error).__name__)
os._exit(7)
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:  # the machine that runs these tests must be able to make one
        made.wait_warm()
        yield made


@pytest.fixture(scope="module")
def unfiltered():
    """A sandbox whose filter allows every call: what namespaces and limits hold by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seccomp, "program", lambda: struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
        made = Sandbox()
    with made:
        made.wait_warm()
        yield made


def start(sandbox: Sandbox, body: str):
    """A rank that runs `body`, and the descriptor on which it says things."""
    read, write = os.pipe()
    code = HEAD + "\n".join("    " + line for line in body.strip().splitlines()) + TAIL
    child = sandbox.spawn("cProfile:run", args=code, fds=[write])
    os.close(write)
    return child, read


def said(sandbox: Sandbox, body: str) -> list[str]:
    """What a rank that ran `body` said, line by line."""
    child, read = start(sandbox, body)
    with os.fdopen(read) as lines:
        found = lines.read().splitlines()
    assert child.wait(30) == 7
    return found


def test_can_not_ask_an_oracle(sandbox):
    """Of the package a rank sees what carries messages and calls the answer; no file that knows a right one, and no schedule."""
    body = """
import allranks, allranks.judge.in_rank.driver, importlib, pathlib
package = pathlib.Path(allranks.__file__).parent
say(*sorted(p.name for p in package.iterdir()))
say(*sorted(str(p.relative_to(package)) for p in (package / "judge").rglob("*.py")))
for room in (".", "judge", "judge/in_rank", "ranks/wire"):
    try:
        (package / room / "mine.py").write_text("x = 1")
    except OSError as error:
        say(type(error).__name__)
for name in ("exercises.diagnosis", "judge.compare", "judge.judging", "theory.schedules.ring", "schedules.ring", "theory.pipelines.orders"):
    try:
        importlib.import_module(f"allranks.{name}")
        say("imported")
    except ModuleNotFoundError:
        say("ModuleNotFoundError")
"""
    package, seen, *refused = said(sandbox, body)
    assert package.split() == ["__init__.py", "base", "judge", "ranks"]
    shown = (
        "__init__.py",
        "in_rank/__init__.py",
        "in_rank/arguments.py",
        "in_rank/driver.py",
        "in_rank/live.py",
        "in_rank/rehearsal.py",
    )
    assert seen.split() == [f"judge/{name}" for name in shown]
    assert refused == ["OSError"] * 4 + ["ModuleNotFoundError"] * 6


def test_a_first_run_imports_nothing(sandbox):
    """Each rank of each submission would take that time; the fork server has taken it once."""

    def names():
        import sys

        return sorted(sys.modules)

    forked = said(sandbox, "import sys; say(*sorted(sys.modules))")[0].split()
    with Ranks(2, spawner=sandbox) as ranks:
        used = ranks.run(names, 2).results[0]
    own = {"__allranks__", "cProfile", "profile", "pstats", "allranks.ranks.wire"}
    assert {name for name in set(used) - set(forked) if not name.startswith("_")} <= own


def test_refuses_to_start_where_what_a_rank_needs_has_moved(monkeypatch):
    monkeypatch.setattr(sandbox_module, "SHOWN", ("base.errors", "moved_away"))
    with pytest.raises(SandboxError, match="moved_away"):
        sandbox_module.command()


def test_has_only_the_descriptors_it_was_given(sandbox):
    assert said(sandbox, "say(len(FDS))") == ["1"]


def test_is_alone(sandbox):
    found = said(sandbox, "say(os.getpid(), os.getppid())\nsay(*[p for p in os.listdir('/proc') if p.isdigit()])")
    assert found in (["1 0", "1"], ["1 0", ""])


def test_sees_nothing_of_the_course(sandbox):
    places = [
        str(sandbox_module.FORKSERVER.parent),
        "/etc/passwd",
        os.path.expanduser("~/.ssh"),
        os.path.expanduser("~/.bashrc"),
        os.getcwd() + "/solutions",
    ]
    if not sys.prefix.startswith("/home/"):  # else it is there, with the way to this Python
        places.append("/home")
    assert said(sandbox, f"say(*filter(os.path.exists, {places!r}))") == [""]


def test_sees_programs_and_libraries_of_the_system_and_no_data(sandbox):
    """nbgrader's own place for the exchange, with everybody's submissions, is /usr/local/share/nbgrader/exchange."""
    found = said(sandbox, "say(*os.listdir('/usr'), *os.listdir('/usr/local'))")[0].split()
    assert {"bin", "lib"} <= set(found)
    assert [name for name in found if not name.startswith(("bin", "sbin", "lib", "cuda", "local"))] == []


def test_has_no_capabilities_and_gets_none(sandbox):
    body = """
import ctypes
libc = ctypes.CDLL(None)
say(libc.mount(b"none", b"/scratch", b"tmpfs", 0, None), libc.unshare(0x10000000), libc.sethostname(b"x", 1))
say(os.getuid() != 0)
"""
    assert said(sandbox, body) == ["-1 -1 -1", "True"]


@pytest.mark.parametrize("folder", ["/", "/usr/lib", "/dev", "/etc"])
def test_can_not_write_outside_of_its_own_folders(sandbox, folder):
    assert said(sandbox, f"open({folder + '/left_behind'!r}, 'w')") in (["OSError"], ["PermissionError"])


def test_the_package_is_read_only(sandbox):
    import allranks

    path = os.path.join(os.path.dirname(allranks.__file__), "trace.py")
    assert said(sandbox, f"open({path!r}, 'a')") in (["OSError"], ["PermissionError"])


@pytest.mark.parametrize("folder", ["/scratch", "/tmp", "/dev/shm"])
def test_one_rank_sees_no_file_of_another(sandbox, folder):
    if folder == "/tmp" and Path(__file__).is_relative_to("/tmp"):
        pytest.skip("this checkout lies in /tmp, which the sandbox then shows read-only")
    first, read = start(
        sandbox, f"open({folder + '/note'!r}, 'w').write('x')\nsay('written')\nimport time; time.sleep(60)"
    )
    assert os.read(read, 100) == b"written\n"
    assert said(sandbox, f"say(os.path.exists({folder + '/note'!r}))") == ["False"]
    first.kill()
    assert first.wait(30) == -9
    os.close(read)


def test_has_no_network(sandbox, unfiltered):
    body = """
import socket
for address in (("127.0.0.1", 80), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, timeout=5)
    except OSError as error:
        say(error.errno)
"""
    assert said(sandbox, body) == [str(errno.EPERM)] * 2
    assert said(sandbox, "import socket\nsocket.socket(socket.AF_VSOCK)") == [
        "PermissionError"
    ]  # no namespace holds those
    # descriptors that are under way in one count against all of a user's processes
    assert said(sandbox, "import socket\nsocket.socketpair()") == ["PermissionError"]
    assert said(unfiltered, body) == [str(errno.ENETUNREACH)] * 2  # not even loopback is up


def test_reaches_no_abstract_socket_of_another(unfiltered):
    body = "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind(chr(0) + 'here')\ns.listen()\nsay('up')\ntime.sleep(60)"
    first, read = start(unfiltered, body)
    assert os.read(read, 100) == b"up\n"
    connect = "import socket\nsocket.socket(socket.AF_UNIX).connect(chr(0) + 'here')"
    assert said(unfiltered, connect) == ["ConnectionRefusedError"]
    first.kill()
    os.close(read)


@pytest.mark.parametrize(
    "call",
    [
        "os.utime('/dev/null')",
        "os.utime(os.memfd_create('m'))",
        "os.fchmod(os.memfd_create('m'), 0o600)",
        "os.chmod('/dev/null', 0o666)",
        "os.setxattr(os.memfd_create('m'), 'user.word', b'x')",
        "os.removexattr(os.memfd_create('m'), 'user.word')",
    ],
)
def test_leaves_no_mark_on_what_others_see(sandbox, call):
    assert said(sandbox, call) == ["PermissionError"]


def test_its_seconds_can_not_be_had_back(sandbox):
    body = """
import resource, signal
signal.setitimer(signal.ITIMER_PROF, 0)
say(*resource.getrlimit(resource.RLIMIT_CPU))
resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))
"""
    assert said(sandbox, body) == ["600 600", "ValueError"]


@pytest.mark.parametrize("name", ["schedules", "bench.executor", "simulator", "race"])
def test_has_nothing_that_knows_or_runs_whole_algorithms(sandbox, name):
    assert said(sandbox, f"import allranks.{name}") == ["ModuleNotFoundError"]


def test_starts_no_process_and_no_program(sandbox):
    body = """
import subprocess
for start in (os.fork, lambda: os.execv("/bin/true", ["true"]), lambda: subprocess.Popen(["/bin/true"])):
    try:
        say(start())
    except OSError as error:
        say(type(error).__name__)
"""
    assert said(sandbox, body) == ["PermissionError"] * 3


def test_a_fork_bomb_ends_with_its_rank(unfiltered):
    body = """
count = 0
try:
    while True:
        if os.fork() == 0:
            import time
            time.sleep(60)
            os._exit(0)
        count += 1
except OSError:
    say(count < 200)
"""
    assert said(unfiltered, body) == ["True"]
    assert said(unfiltered, "say('as before')") == ["as before"]  # no process of the bomb is left to count


def test_what_it_leaves_running_is_killed_with_it(unfiltered):
    body = """
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(30)
    say("still there")
say("gone")
"""
    assert said(unfiltered, body) == ["gone"]  # the pipe closes at once: nobody else holds its end


def test_threads_and_gradients_work(sandbox):
    body = """
import threading, torch
thread = threading.Thread(target=say, args=("in a thread",))
thread.start()
thread.join()
weight = torch.ones(2, requires_grad=True)
(3 * weight).sum().backward()
say(weight.grad.tolist())
"""
    assert said(sandbox, body) == ["in a thread", "[3.0, 3.0]"]


CALL = """
import ctypes, sys
_libc, _names = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libseccomp.so.2")
def call(name, *arguments):
    ctypes.set_errno(0)
    got = _libc.syscall(_names.seccomp_syscall_resolve_name(name.encode()), *arguments)
    return got, ctypes.get_errno()
"""


@pytest.mark.parametrize("name", [name for name in seccomp.REFUSED if name not in seccomp.NEW_PROCESSES])
def test_the_kernel_refuses(sandbox, name):
    if ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name(name.encode()) < 0:
        pytest.skip(f"{platform.machine()} has no {name}")
    assert said(sandbox, f"{CALL}\nsay(*call({name!r}, 0, 0, 0, 0))") == [f"-1 {errno.EPERM}"]


HOLD = "\nimport time; time.sleep(60)"
MAPPED = """
import mmap
def mapped(path):
    return mmap.mmap(os.open(path, os.O_RDONLY), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
def at(path):
    _libc.mmap.restype = ctypes.c_void_p
    return _libc.mmap(None, ctypes.c_size_t(4096), 1, 1, os.open(path, os.O_RDONLY), ctypes.c_long(0))
"""
COVERT_CHANNELS = {  # what one rank does, what another then sees of it, and what it sees where the kernel refuses
    "a key ring": (
        "say(call('add_key', b'user', b'note', b'heard', 5, -4)[0] > 0)",
        "heard = ctypes.create_string_buffer(5)\n"
        "call('keyctl', 11, call('keyctl', 10, -4, b'user', b'note', 0)[0], heard, 5)\nsay(heard.raw)",
        "b'heard'",
        repr(bytes(5)),
    ),
    "a lock on a file": (
        "import fcntl, sys\nfile = open(sys.executable)\nfcntl.flock(file, fcntl.LOCK_EX)\nsay('held')",
        "import fcntl, sys\nfcntl.flock(open(sys.executable), fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "BlockingIOError",
        "PermissionError",
    ),
    "a lock on a part of a file": (
        "import fcntl, sys\nfile = open(sys.executable)\nfcntl.lockf(file, fcntl.LOCK_SH, 1)\nsay('held')",
        "import fcntl, struct, sys\nasked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)\n"
        "found = fcntl.fcntl(open(sys.executable), fcntl.F_GETLK, asked)\nsay(found[:2] == asked[:2])",
        "False",
        "PermissionError",
    ),
    "what is in memory (mincore)": (
        f"{MAPPED}\nsay(mapped(sys.executable)[0])",
        f"{MAPPED}\nfound = (ctypes.c_ubyte * 1)()\nsay(call('mincore', ctypes.c_void_p(at(sys.executable)), 4096, found)[0])",
        "0",
        "-1",
    ),
    "what is in memory (RWF_NOWAIT)": (
        "say(open(sys.executable, 'rb').read(1))",
        "say(os.preadv(os.open(sys.executable, os.O_RDONLY), [bytearray(1)], 0, os.RWF_NOWAIT))",
        "1",
        "PermissionError",
    ),
    "the load of the machine": (
        "say('busy')",
        "say(call('sysinfo', ctypes.create_string_buffer(200))[0])",
        "0",
        "-1",
    ),
    "the memory of pipes": (
        "import fcntl\nheld = [fcntl.fcntl(os.pipe()[0], 1031, 1 << 20) for _ in range(8)]\nsay('held')",
        "say(len(os.pipe()))",
        "2",
        "PermissionError",
    ),
}


@pytest.mark.parametrize("means", COVERT_CHANNELS)
def test_one_rank_leaves_no_word_for_another_in_the_kernel(sandbox, unfiltered, means):
    leave, look, heard, refused = COVERT_CHANNELS[means]

    def seen(made: Sandbox) -> list[str]:
        first, read = start(made, CALL + "\n" + leave + HOLD)
        assert os.read(read, 100)
        try:
            return said(made, CALL + "\n" + look)
        finally:
            first.kill()
            os.close(read)

    assert seen(sandbox) == [refused]
    if means != "a key ring" or os.getuid() == 0:  # others' sandboxes have a user namespace, and key rings of its own
        assert seen(unfiltered) == [heard]  # it is the filter that stops it


@pytest.mark.parametrize(
    "name", ["self/pagemap", "self/smaps", "self/maps", "sys/fs/file-nr", "loadavg", "locks", "1/stat"]
)
def test_reads_nothing_of_others_in_proc(sandbox, name):
    """Which pages others have mapped, too; and counters of the whole machine."""
    assert said(sandbox, f"open('/proc/{name}')") == ["FileNotFoundError"]
    assert said(sandbox, "say(len(open('/proc/self/statm').read().split()))") == ["7"]


def test_can_not_read_what_is_counted_for_all_processes_of_a_user(sandbox):
    body = """
import resource, signal
say(*(resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MEMLOCK)))
"""
    assert said(sandbox, body) == ["0 0"]


WAIT = """
import time
found = call('futex', ctypes.c_void_p(at(sys.executable)), {wait}, ctypes.c_uint32(ctypes.c_uint32.from_address(at(sys.executable)).value),
    (ctypes.c_long * 2)(60, 0), None, ctypes.c_uint32(1))
say(found)
"""
WAKE = """
import time
say('begin')
for _ in range(600):  # until the other waits
    got = call('futex', ctypes.c_void_p(at(sys.executable)), {wake}, 1, (ctypes.c_long * 2)(1, 0), ctypes.c_void_p(at(sys.executable)), ctypes.c_uint32(1))
    if got[0] == 1 or got[1] in (1, 38):
        break
    time.sleep(0.05)
say(got)
"""


@pytest.mark.parametrize("wait", [0, 9, 256 + 9])
@pytest.mark.parametrize("wake", [1, 10])
def test_no_rank_wakes_another(sandbox, unfiltered, wait, wake):
    """A futex on a page that all ranks have mapped, without FUTEX_PRIVATE_FLAG, is one futex for all of them."""
    head = CALL + MAPPED

    def heard(made: Sandbox) -> tuple[str, str]:
        child, read = start(made, head + WAIT.replace("{wait}", str(wait)))
        woke = said(made, head + WAKE.replace("{wake}", str(wake)))[-1]
        with os.fdopen(read) as lines:
            slept = lines.read().strip()
        assert child.wait(30) == 7
        return slept, woke

    assert heard(sandbox) == (f"(-1, {errno.EAGAIN})", f"(-1, {errno.EPERM})")
    if wait == 0:  # the others take a moment of the clock, which is long past
        assert heard(unfiltered) == ("(0, 0)", "(1, 0)")


@pytest.mark.parametrize("operation", range(14))
@pytest.mark.parametrize("clock", [0, 256])
def test_no_futex_is_shared(sandbox, operation, clock):
    body = (
        CALL
        + f"say(call('futex', (ctypes.c_uint32 * 2)(), {operation + clock}, 1, (ctypes.c_long * 2)(0, 1), (ctypes.c_uint32 * 2)(), 1))"
    )
    assert said(sandbox, body) == [f"(-1, {errno.EAGAIN if operation in (0, 9) else errno.EPERM})"]


def test_threads_of_the_c_library_can_be_joined(sandbox):
    """Its join waits on a shared futex; torch's own threads end so."""
    body = """
import ctypes
libc, made = ctypes.CDLL(None), ctypes.c_ulong()
work = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: __import__("time").sleep(0.2))
say(libc.pthread_create(ctypes.byref(made), None, work, None), libc.pthread_join(made, None))
"""
    assert said(sandbox, body) == ["0 0"]


@pytest.mark.parametrize("number", [449, *range(453, 512)])
def test_calls_that_are_newer_than_the_list_are_refused(sandbox, number):
    assert said(sandbox, f"{CALL}\nsay(_libc.syscall({number}, -1, -1, -1, -1, -1, -1), ctypes.get_errno())") == [
        f"-1 {errno.ENOSYS}"
    ]


def test_the_filter_knows_every_call_by_name():
    """A name that libseccomp does not know would be left open without a word."""
    names = ctypes.CDLL("libseccomp.so.2")
    listed = [name for name in seccomp.REFUSED if name not in seccomp._NUMBERS]
    newer = {"setxattrat", "removexattrat"}  # their numbers are above the last that is allowed
    assert [
        name for name in listed if name not in newer and names.seccomp_syscall_resolve_name(name.encode()) == -1
    ] == []


def test_calls_of_another_architecture_end_the_rank(sandbox):
    if platform.machine() != "x86_64":
        pytest.skip("x32 is a matter of x86_64")
    child, read = start(sandbox, "import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)\nsay('went on')")
    with os.fdopen(read) as lines:
        assert lines.read() == ""
    assert child.wait(30) == -signal.SIGSYS


def test_without_libseccomp_it_refuses_and_names_the_mend(monkeypatch):
    def missing(name):
        raise OSError("libseccomp.so.2: cannot open shared object file")

    monkeypatch.setattr(seccomp.ctypes, "CDLL", missing)
    with pytest.raises(SandboxError, match=r"cannot open .* \(Debian: apt install libseccomp2\)"):
        Sandbox()


def test_memory_is_limited(sandbox):
    assert said(sandbox, "x = []\nwhile True:\n    x.append(bytearray(1 << 27))") == ["MemoryError"]


def test_mapped_memory_is_limited_and_the_limit_stays(sandbox):
    body = "import mmap, resource\nm = mmap.mmap(-1, 3 << 30)"
    assert said(sandbox, body) == ["OSError"]
    assert said(sandbox, body.replace("\n", "\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n")) == ["ValueError"]


def test_disk_is_limited(sandbox):
    assert said(sandbox, "open('/scratch/big', 'wb').write(bytes(1 << 28))") == ["OSError"]


def test_memory_that_is_not_mapped_is_limited(sandbox):
    body = """
held, nbytes = [], 0
try:
    while nbytes < 4 << 30:
        held.append(os.memfd_create("x"))
        os.posix_fallocate(held[-1], 0, 8 << 20)
        nbytes += 8 << 20
except OSError as error:
    say(error.errno, nbytes <= 64 * (8 << 20))
try:
    os.ftruncate(held[0], (8 << 20) + 1)
except OSError as error:
    say(error.errno)
"""
    assert said(sandbox, body) == [f"{errno.EMFILE} True", str(errno.EFBIG)]


def test_a_target_that_is_not_there_is_named(sandbox):
    with pytest.raises(SandboxError, match="No rank could be started in the sandbox: nowhere:nothing"):
        sandbox.spawn("nowhere:nothing")


def test_everything_ends_with_it():
    with Sandbox() as made:
        made.wait_warm()
        child, read = start(made, "import time\ntime.sleep(60)")
    assert child.wait(30) == -9
    assert os.read(read, 1) == b""
    os.close(read)
    with pytest.raises(SandboxError, match="The sandbox is gone"):
        made.spawn("builtins:len", args=[])


def test_without_bubblewrap_it_refuses_and_names_the_mend(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match=r"bubblewrap is missing. Install it \(Debian: apt install bubblewrap\)"):
        Sandbox()


def test_each_rank_draws_random_numbers_of_its_own(sandbox):
    body = "import numpy, random, torch\nsay(torch.rand(1).item(), random.random(), numpy.random.rand())"
    drawn = [word for _ in range(3) for word in said(sandbox, body)[0].split()]
    assert len(set(drawn)) == 9


def test_torch_knows_the_processor_although_a_rank_has_no_proc(sandbox):
    body = "import torch\nsay(torch.ones(9, dtype=torch.float16).to(torch.float32).sum().item())"
    assert said(sandbox, body)[0].split() == ["9.0"]


def test_large_arguments_messages_and_results_get_through(sandbox):
    """They lie in shared memory, which a rank reads by a call that the filter must allow."""
    text = (
        "import torch\nimport torch.distributed as dist\n"
        "def pass_on(x):\n"
        "    got = torch.empty_like(x)\n"
        "    sent = dist.isend(x, 1 - dist.get_rank())\n"
        "    dist.recv(got, 1 - dist.get_rank())\n"
        "    sent.wait()\n"
        "    return got\n"
    )
    inputs = [torch.full((1 << 19,), float(rank)) for rank in range(2)]  # 2 MiB
    with Ranks(2, spawner=sandbox) as ranks:
        outcome = ranks.run(Program(text, "pass_on", "answer.py"), ranks=2, per_rank=[[(x,)] for x in inputs], calls=1)
    assert outcome.failure is None, outcome.failure
    assert [torch.equal(got, inputs[1 - rank]) for rank, (got,) in enumerate(outcome.results)] == [True, True]


def test_a_collective_inside_autograd_gets_through(sandbox):
    """Backward of CPU tensors runs in the thread that called it, so that the rank sends from its main thread."""
    text = (
        "import torch\nimport torch.distributed as dist\n"
        "class Sum(torch.autograd.Function):\n"
        "    forward = staticmethod(lambda ctx, x: x.view_as(x))\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        total = gradient.clone()\n"
        "        dist.all_reduce(total)\n"
        "        return total\n"
        "def gradient_of(x):\n"
        "    x = x.clone().requires_grad_()\n"
        "    (Sum.apply(x) * (dist.get_rank() + 1)).sum().backward()\n"
        "    return x.grad\n"
    )
    with Ranks(2, spawner=sandbox) as ranks:
        program = Program(text, "gradient_of", "answer.py")
        outcome = ranks.run(program, ranks=2, per_rank=[[(torch.zeros(3),)]] * 2, calls=1)
    assert outcome.failure is None, outcome.failure
    assert [got.tolist() for (got,) in outcome.results] == [[3.0] * 3] * 2
