"""What a rank can't do in the sandbox. Each test runs real code in a real rank, as a submission would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autograder import sandbox as sandbox_module
from autograder.sandbox import Sandbox, SandboxError, why_not

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
    if reason := why_not():
        pytest.fail(f"the machine that runs these tests must be able to make a sandbox: {reason}")
    with Sandbox() as made:
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
    assert child.wait(10) == 7
    return found


def test_can_not_ask_an_oracle(sandbox):
    """Of the exercises a rank sees what calls the answer, and no file that knows it."""
    body = """
import allranks.exercises.checking.driver, pathlib
folder = pathlib.Path(allranks.exercises.__file__).parent
say(*sorted(str(p.relative_to(folder)) for p in folder.rglob("*.py")))
try:
    (folder / "mine.py").write_text("x = 1")
except OSError as error:
    say(type(error).__name__)
import allranks.exercises.diagnosis
"""
    seen, written, imported = said(sandbox, body)
    assert seen.split() == ["__init__.py", "checking/__init__.py", "checking/driver.py"]
    assert written == "OSError"
    assert imported == "ModuleNotFoundError"


def test_has_only_the_descriptors_it_was_given(sandbox):
    assert said(sandbox, "say(len(FDS))") == ["1"]


def test_is_alone(sandbox):
    found = said(sandbox, "say(os.getpid(), os.getppid())\nsay(*[p for p in os.listdir('/proc') if p.isdigit()])")
    assert found in (["1 0", "1"], ["1 0", ""])


def test_sees_nothing_of_the_course(sandbox):
    places = [
        str(sandbox_module.NURSERY.parent),
        "/etc/passwd",
        "/home",
        os.path.expanduser("~/.ssh"),
        os.getcwd() + "/solutions",
    ]
    assert said(sandbox, f"say(*map(os.path.exists, {places!r}))") == ["False False False False False"]


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
    assert first.wait(10) == -9
    os.close(read)


def test_has_no_network(sandbox):
    body = """
import socket
for address in (("127.0.0.1", 80), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, timeout=5)
    except OSError as error:
        say(error.errno)
"""
    assert said(sandbox, body) == ["101", "101"]  # network is unreachable: not even loopback is up


def test_reaches_no_abstract_socket_of_another(sandbox):
    body = "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind(chr(0) + 'here')\ns.listen()\nsay('up')\ntime.sleep(60)"
    first, read = start(sandbox, body)
    assert os.read(read, 100) == b"up\n"
    connect = "import socket\nsocket.socket(socket.AF_UNIX).connect(chr(0) + 'here')"
    assert said(sandbox, connect) == ["ConnectionRefusedError"]
    first.kill()
    os.close(read)


def test_a_fork_bomb_ends_with_its_rank(sandbox):
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
    assert said(sandbox, body) == ["True"]
    assert said(sandbox, "say('as before')") == ["as before"]  # no process of the bomb is left to count


def test_memory_is_limited(sandbox):
    assert said(sandbox, "x = []\nwhile True:\n    x.append(bytearray(1 << 27))") == ["MemoryError"]


def test_mapped_memory_is_limited_and_the_limit_stays(sandbox):
    body = "import mmap, resource\nm = mmap.mmap(-1, 3 << 30)"
    assert said(sandbox, body) == ["OSError"]
    assert said(sandbox, body.replace("\n", "\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n")) == ["ValueError"]


def test_disk_is_limited(sandbox):
    assert said(sandbox, "open('/scratch/big', 'wb').write(bytes(1 << 28))") == ["OSError"]


def test_what_it_leaves_running_is_killed_with_it(sandbox):
    body = """
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(1)
    say("still there")
    time.sleep(60)
say("gone")
"""
    assert said(sandbox, body) == ["gone"]  # the pipe closes at once: nobody else holds its end


def test_a_target_that_is_not_there_is_named(sandbox):
    with pytest.raises(SandboxError, match="No rank could be started in the sandbox: nowhere:nothing"):
        sandbox.spawn("nowhere:nothing")


def test_everything_ends_with_it():
    with Sandbox() as made:
        made.wait_warm()
        child, read = start(made, "import time\ntime.sleep(60)")
    assert child.wait(10) == -9
    assert os.read(read, 1) == b""
    os.close(read)
    with pytest.raises(SandboxError, match="The sandbox ended"):
        made.spawn("builtins:len", args=[])


def test_without_bubblewrap_it_refuses_and_names_the_mend(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match=r"bubblewrap is missing. Install it \(Debian: apt install bubblewrap\)"):
        Sandbox()
