"""Root's fork server for all people: a fork is wholly the asker's, and nobody gets more rights by asking."""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from allranks.ranks.engines.forkserver import machine, peer
from allranks.ranks.engines.forkserver.anew import NOBODY, environment
from allranks.ranks.engines.forkserver.peer import Peer, PeerError
from waiting import until

ANA, GROUP = 41001, 41002  # no accounts of this machine, as far as the kernel cares
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can fork for others"),
]
SERVER = """
import sys
from pathlib import Path
from allranks.ranks.engines.forkserver.machine import MachineServer
MachineServer(Path(sys.argv[1]), ["g41002", "u0"], ("numpy.random", "torch", "machine_targets", "encodings.idna"), ()).serve()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """(its socket, its process, a folder that all accounts can write)."""
    folder = Path("/tmp", f"art-machine-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o1777)
    env = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{folder}", "A_SECRET": "of root's"}
    env.pop(machine.SOCKET_ENV, None)
    log = open(folder / "log", "w+")
    command = [sys.executable, "-c", SERVER, str(folder / "socket")]
    process = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)
    while not (folder / "socket").exists():
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    yield folder / "socket", process, folder
    assert process.poll() is None, (folder / "log").read_text()
    process.kill()
    process.wait()
    log.close()
    subprocess.run(["rm", "-r", str(folder)], check=True)


# tells by what variables it imported, and what it drew by chance
WHOLE = """
import json, os, sys
from pathlib import Path
sys.path.append(sys.argv[2])
drawn, read = [], set()
look, draw = type(os.environ).__getitem__, os.urandom
def looked(self, name):
    read.add(str(name))
    return look(self, name)
def drew(size):
    drawn.append(draw(size))
    return drawn[-1]
type(os.environ).__getitem__, os.urandom = looked, drew
from allranks.ranks.engines.forkserver.machine import MachineServer
class Telling(MachineServer):
    def listen(self):
        type(os.environ).__getitem__, os.urandom = look, draw
        told = {"read": sorted(read), "drawn": [one.hex() for one in drawn if len(one) >= 16]}
        Path(sys.argv[1]).with_name("told").write_text(json.dumps(told))
        super().listen()
Telling(Path(sys.argv[1]), ["u41001"]).serve()
"""


@pytest.fixture(scope="module")
def whole():
    """(socket, folder) of a server that imports all that the hub's does, in the environment that the hub's has."""
    folder = Path("/tmp", f"art-whole-{os.getpid()}")
    (folder / "where-it-began").mkdir(parents=True)
    log = open(folder / "log", "w+")
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", WHOLE, str(folder / "socket"), str(Path(__file__).parent)],
        env=environment(folder),
        cwd=folder / "where-it-began",
        stdout=log,
        stderr=log,
    )
    while not (folder / "socket").exists():
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    yield folder / "socket", folder
    assert process.poll() is None, (folder / "log").read_text()
    process.kill()
    process.wait()
    log.close()
    subprocess.run(["rm", "-r", str(folder)], check=True)


def test_a_fork_keeps_no_folder_name_or_number_of_roots(whole):
    """Modules look them up when they are imported: the trash, Lab's settings, folders of compiled code."""

    def hers() -> None:
        os.environ.update(HOME="/home/ana", TMPDIR="/var/tmp", USER="ana", LOGNAME="ana")

    roots = [f"/root/{name}" for name in (".local", ".jupyter", ".cache", ".config", ".ipython")]
    words = [NOBODY, str(whole[1] / "where-it-began"), *roots]
    left = as_ana(lambda: ask(whole[0], "kept", words=words), hers)
    left = [line for line in left if not line.endswith(f".NOBODY: {NOBODY}")]
    assert not left, "\n".join(left)
    hers_now = as_ana(lambda: ask(whole[0], "kept", words=["/home/ana/"]), hers)
    assert any("user_settings_dir" in line for line in hers_now), hers_now
    assert any("HOMETRASH" in line for line in hers_now), hers_now


def test_no_variable_that_the_hub_sets_was_looked_up_by_an_import(whole):
    """A fork would have what root's process found instead: the path of its server's cookies, the hub's address."""
    as_ana(lambda: ask(whole[0]))
    read = json.loads((whole[1] / "told").read_text())["read"]
    prefixes = ("JUPYTERHUB_", "JPY_", "ALLRANKS_", "MEM_", "CPU_", "JUPYTER_CONFIG_PATH", "JUPYTER_RUNTIME_DIR")
    # of the hub's own process, or looked up anew
    harmless = {"JPY_PARENT_PID", "JPY_INTERRUPT_EVENT", "JUPYTERHUB_METRICS_PREFIX"}
    found = {
        name for name in read if name.startswith(prefixes) and not name.endswith("_BUCKETS") and "_XSRF_" not in name
    }
    assert found <= harmless


def test_what_an_import_drew_by_chance_is_not_everybodys_key(whole):
    """multiprocessing's key lets a process send pickles, which run: it must not be the same for two people."""
    as_ana(lambda: ask(whole[0]))
    drawn = json.loads((whole[1] / "told").read_text())["drawn"]
    assert drawn
    found = as_ana(lambda: ask(whole[0], "kept", words=drawn))
    found = [line for line in found if "__composable_api_state_key_" not in line]  # a name in torch, no secret
    assert not found, "\n".join(found)


def as_ana(what: Callable[[], object], before: Callable[[], object] = lambda: None) -> object:
    """What `what` returns in a process of Ana's; `before` runs there while it still has root's rights."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.chdir("/")
            before()
            os.setgroups([GROUP])
            os.setresgid(ANA, ANA, ANA)
            os.setresuid(ANA, ANA, ANA)
            ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process that was executed
            os.write(write, json.dumps(what()).encode())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as said:
        text = said.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def remove_group(path: Path) -> None:
    """Once it is empty: the last of its processes may be ending still."""

    def removed() -> bool:
        try:
            path.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    until(removed, says=f"{path} is in use")


def ask(path: Path, target: str = "report", **args: object) -> object:
    """What the fork wrote to the descriptor that it was given; None where none was made."""
    read, write = os.pipe()
    with pytest.MonkeyPatch.context() as patch:  # not left behind for the tests after this one
        patch.setenv(machine.SOCKET_ENV, str(path))
        fork = machine.spawn(f"machine_targets:{target}" if ":" not in target else target, args or {"n": 1}, [write])
    os.close(write)
    with open(read, encoding="utf-8") as said:
        text = said.read()
    if fork is not None:
        fork.wait(20)
    return json.loads(text) if text else None


def test_a_fork_is_a_process_of_the_asker_in_every_way(server):
    core = min(os.sched_getaffinity(0))

    def before() -> None:
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.sched_setaffinity(0, {core})
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no new privileges
        os.environ["HERS"] = "yes"
        os.environ["TMPDIR"] = "/var/tmp"

    said = as_ana(lambda: ask(server[0]), before)
    assert said["args"] == {"n": 1}
    assert said["uids"] == [ANA] * 3 and said["gids"] == [ANA] * 3 and said["groups"] == [GROUP]
    assert said["back"] == "stays" and said["rights"] == [0, 0, 0, 0] and said["no_new_privs"] == 1
    assert (said["umask"], said["core"], said["cores"], said["nice"], said["cwd"]) == (0o027, 0, [core], 7, "/")
    assert said["env"]["HERS"] == "yes" and "A_SECRET" not in said["env"], "its environment is the asker's, not root's"
    assert said["temporary"] == "/var/tmp"
    assert said["leads"] and said["owner"] == ANA and said["sockets"] == 0


def test_a_fork_is_in_the_askers_control_group_and_sees_its_mounts(server):
    """As with the systemd spawner: limits of a group, and a /tmp of one's own."""
    folder = server[2]
    groups = [
        path for path in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")) if (path / "cgroup.procs").exists()
    ]
    if not groups or not os.access(groups[0], os.W_OK):
        pytest.skip("this machine gives root no control groups")
    group = groups[0] / f"art-{os.getpid()}"
    group.mkdir()
    (folder / "private").mkdir()

    def before() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        library = ctypes.CDLL(None, use_errno=True)
        assert library.unshare(0x20000) == 0
        assert library.mount(b"none", b"/", None, 0x4000 | 0x40000, None) == 0  # nothing goes back
        assert library.mount(b"tmpfs", str(folder / "private").encode(), b"tmpfs", 0, None) == 0
        (folder / "private" / "hers").touch()

    def asked() -> dict:
        os.chdir(folder / "private")
        return {"mine": os.readlink("/proc/self/ns/mnt"), **ask(server[0])}

    try:
        said = as_ana(asked, before)
        assert said["mounts"] == said["mine"] != os.readlink("/proc/self/ns/mnt")
        assert said["cwd"] == str(folder / "private")
        assert any(line.endswith(f"/{group.name}") for line in said["groups_of_control"])
    finally:
        remove_group(group)


@pytest.mark.parametrize("ends_a_line", ["\x0c", "\r", "\x1c", "\x85", "\u2028"])
def test_the_name_of_a_control_group_is_no_order_to_root(server, ends_a_line):
    """An account with control groups of its own, as systemd gives one to who logs in, names them as it likes."""
    folder = server[2]
    tops = [
        path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if (path / "cgroup.procs").exists()
    ]
    if not tops or not os.access(tops[0], os.W_OK):
        pytest.skip("this machine gives root no control groups")
    hers = tops[0] / f"art-{os.getpid()}"
    roots = folder / "roots" / "file"
    roots.parent.mkdir(mode=0o700)
    roots.write_text("precious")
    (folder / "bait").mkdir()
    (folder / "bait" / "cgroup.procs").symlink_to(roots)
    inner = hers / f"x{ends_a_line}0:{folder}:" / "bait"  # a line "0:FOLDER:/bait" of its own, if the name may end one

    def before() -> None:
        (hers / "x").mkdir(parents=True)
        inner.mkdir(parents=True)
        (inner / "cgroup.procs").write_text(str(os.getpid()))

    try:
        said = as_ana(lambda: ask(server[0]), before)
        assert roots.read_text() == "precious"
        assert said["groups_of_control"][-1].endswith("/bait")
    finally:
        for path, _, _ in os.walk(hers, topdown=False):
            remove_group(Path(path))
        subprocess.run(["rm", "-r", str(folder / "roots"), str(folder / "bait")], check=True)


def test_a_control_group_that_only_an_ending_thread_has_is_refused(tmp_path, monkeypatch):
    """Linux tells "/" of a process whose first thread is ending, with version 1: its fork would have no limit of memory."""
    for path, pids in (("memory", "1\n7\n"), ("memory/limited", "4321\n"), ("systemd", "1\n4321\n")):
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "cgroup.procs").write_text(pids)
    monkeypatch.setattr(peer, "_CGROUPS", tmp_path)
    rest = ["1:name=systemd:/", "0::/anything", ""]
    peer._check_groups(["4:memory:/limited", *rest], 4321)
    with pytest.raises(PeerError, match="is not /, of memory"):
        peer._check_groups(["4:memory:/", *rest], 4321)


def test_a_reading_that_leaves_the_asker_out_does_not_refuse_it(tmp_path, monkeypatch):
    """Where other processes start while version 1 lists a group's, the last of them are left out of that reading."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").write_text("1\n")
    monkeypatch.setattr(peer, "_CGROUPS", tmp_path)
    readings, read = [], peer._lines

    def second_has_it(path: Path) -> list[str]:
        readings.append(path)
        return read(path) + ["4321"] * (len(readings) > 1)

    monkeypatch.setattr(peer, "_lines", second_has_it)
    peer._check_groups(["4:memory:/"], 4321)
    assert len(readings) == 2


def test_an_asker_gets_its_fork_while_others_start_processes(server):
    """A fork takes a reading of each controller, and one in 200 left the asker out while two loops forked."""
    top = Path("/sys/fs/cgroup/unified")
    if not (top / "cgroup.procs").exists() or not os.access(top, os.W_OK):
        pytest.skip("this machine has no version 1 of control groups beside version 2")
    group = top / f"art-{os.getpid()}"
    group.mkdir()  # the lists of version 1 then end with who is in it
    endless = "import os\nwhile True:\n  os.fork() or os._exit(0)\n  os.wait()"
    loops = [subprocess.Popen([sys.executable, "-c", endless]) for _ in range(2)]
    try:
        before = partial((group / "cgroup.procs").write_text, "0")  # the writer itself
        given = as_ana(lambda: [ask(server[0]) is not None for _ in range(20)], before)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        remove_group(group)
    assert given == [True] * 20


def test_who_may_not_log_in_gets_no_fork(server, capfd):
    """A machine has other accounts than the hub's."""

    def others() -> None:
        os.setgroups([])
        os.setresgid(ANA, ANA, ANA)
        os.setresuid(ANA, ANA, ANA)
        assert ask(server[0]) is None

    pid = os.fork()
    if pid == 0:
        try:
            others()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert "the hub's accounts only" in capfd.readouterr().err


def test_a_persons_groups_and_account_are_the_kernels():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        one = Peer(ours)
        assert one.names() == {f"u{os.getuid()}", f"g{os.getgid()}", *(f"g{gid}" for gid in os.getgroups())}
        one.close()


def test_the_server_begins_with_nothing_of_its_starters(tmp_path):
    """Each fork would have it: an open file of the hub's, a token in the environment."""
    read, write = os.pipe()
    theirs = os.readlink(f"/proc/self/fd/{write}")
    command = [sys.executable, "-m", "allranks.ranks.engines.forkserver.machine", str(tmp_path / "socket"), "g1"]
    process = subprocess.Popen(
        command, pass_fds=[write], env={**os.environ, "A_TOKEN": "secret"}, stderr=subprocess.DEVNULL
    )
    try:
        while not (tmp_path / "socket").exists():
            assert process.poll() is None
            time.sleep(0.02)
        proc = Path(f"/proc/{process.pid}")
        for one in (proc / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it goes on importing
                assert os.readlink(one) != theirs
        given = dict(entry.split("=", 1) for entry in (proc / "environ").read_text().split("\0") if entry)
        assert given.keys() >= {"HOME", "PATH", "TMPDIR"} and given == environment(tmp_path)
        assert (tmp_path / NOBODY).stat().st_mode & 0o777 == 0o700
    finally:
        process.kill()
        process.wait()
        os.close(read)
        os.close(write)


def test_the_servers_home_is_nobody_elses(tmp_path):
    """What root's process imports may look for files there."""
    machine.make_own_folder(tmp_path / "new")
    machine.make_own_folder(tmp_path / "new")
    os.chown(tmp_path / "new", ANA, ANA)
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "open").mkdir(mode=0o755)
    for name in ("new", "link", "open"):
        with pytest.raises(PeerError, match="own"):
            machine.make_own_folder(tmp_path / name)


def test_the_server_has_only_the_rights_that_it_needs(server):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{server[1].pid}/status").read_text().splitlines())
    needed = {"DAC_OVERRIDE": 1, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "SYS_CHROOT": 18, "SYS_PTRACE": 19}
    needed |= {"SYS_ADMIN": 21, "SYS_NICE": 23, "SYS_RESOURCE": 24}
    most = sum(1 << number for number in needed.values())
    assert int(status["CapPrm"], 16) & ~most == int(status["CapEff"], 16) & ~most == int(status["CapInh"], 16) == 0
    said = as_ana(lambda: ask(server[0]))
    assert said["bound"] == int(status["CapBnd"], 16), "a set-uid program of hers has what it always had"


def test_root_and_who_is_confined_get_no_fork(server, capfd):
    assert ask(server[0]) is None
    assert "ordinary accounts" in capfd.readouterr().err

    def in_another_network() -> object:
        if ctypes.CDLL(None).unshare(0x10000000 | 0x40000000):
            return "no namespaces here"
        return ask(server[0])

    assert as_ana(in_another_network) in (None, "no namespaces here")

    def with_filtered_calls() -> object:
        library = ctypes.CDLL(None)
        library.prctl(38, 1, 0, 0, 0)
        allow = ctypes.create_string_buffer(bytes([0x06, 0, 0, 0, 0, 0, 0xFF, 0x7F]))  # one instruction: allow
        program = ctypes.create_string_buffer(16)
        ctypes.memmove(program, (1).to_bytes(8, "little") + ctypes.addressof(allow).to_bytes(8, "little"), 16)
        if library.prctl(22, 2, program, 0, 0):
            return "no filters here"
        return ask(server[0])

    assert as_ana(with_filtered_calls) in (None, "no filters here")
    assert as_ana(lambda: ask(server[0]))["uids"] == [ANA] * 3


def test_a_group_that_a_process_gave_up_is_not_given_back(server):
    """As a set-gid program does that connects, then runs what its caller names."""

    def connected_with_more() -> object:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(server[0]))
        os.setresgid(ANA, ANA, ANA)  # the effective one was GROUP
        return json.loads(connection.recv(1000))

    def set_gid() -> None:
        os.setgroups([GROUP])
        os.setresgid(ANA, GROUP, ANA)
        os.setresuid(ANA, ANA, ANA)

    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            set_gid()
            os.write(write, json.dumps(connected_with_more()).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read, encoding="utf-8") as said:
        told = json.loads(said.read())
    assert "changed its account" in told.get("error", ""), told


@pytest.mark.parametrize(("number", "why"), [(errno.EINVAL, "has ended"), (errno.ENOPROTOOPT, "Linux 6.5")])
def test_a_process_is_never_found_by_its_number(number, why):
    """Before 6.16 Linux says EINVAL of a process that has ended; another one may have its number by now."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    class Ended:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            if option == 77:
                raise OSError(number, os.strerror(number))
            return ours.getsockopt(level, option, size)

    with ours, theirs, pytest.raises(PeerError, match=why):
        Peer(Ended())


def test_what_a_request_names_is_imported_without_roots_rights(server):
    _, _, folder = server
    (folder / "named_by_ana.py").write_text(
        f"import os\nopen({str(folder / 'who')!r}, 'w').write(str(os.geteuid()))\ndef run(args, fds): pass\n"
    )
    as_ana(lambda: ask(server[0], "named_by_ana:run"))
    assert (folder / "who").read_text() == str(ANA)


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xfe", b"[]", b"{}", b'{"id": "x"}', b'{"id": 1}', b'{"id": 1, "target": 3, "env": 4, "umask": []}'],
)
def test_garbage_stops_nobody(server, garbage):
    def send() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(server[0]))
            connection.settimeout(20)
            connection.recv(1000)
            connection.send(garbage)
            with contextlib.suppress(OSError):
                while connection.recv(1000):
                    pass
        return "sent"

    def send_and_go() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(server[0]))
            connection.recv(1000)
            connection.send(garbage)
        return "sent"

    assert as_ana(send if b'"id": 1' not in garbage else send_and_go) == "sent"
    assert as_ana(lambda: ask(server[0]))["uids"] == [ANA] * 3


def test_an_account_has_a_limited_number_of_connections_and_others_still_get_theirs(server):
    def crowd() -> list[str]:
        many = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(machine.MOST_CLIENTS + 3)]
        told = []
        for one in many:
            one.connect(str(server[0]))
            one.settimeout(20)
            told.append("error" if b"too many" in one.recv(1000) else "warm")
        return told

    assert as_ana(crowd) == ["warm"] * machine.MOST_CLIENTS + ["error"] * 3
    assert as_ana(lambda: ask(server[0]))["uids"] == [ANA] * 3, "the crowd has gone, and counts no more"


def test_a_connection_has_one_fork(server):
    def twice() -> list[int]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(server[0]))
            connection.settimeout(20)
            connection.recv(1000)
            request = {"id": 1, "target": "machine_targets:stay", "args": None, "env": {}, "cwd": "/", "umask": 18}
            read, write = os.pipe()
            for _ in range(2):
                socket.send_fds(connection, [json.dumps(request).encode()], [write])
            os.close(write)
            said = [os.read(read, 100)]
            os.set_blocking(read, False)
            time.sleep(
                1
            )  # nothing says that the second was dropped; a fork takes some milliseconds, a slow one can't fail this
            with contextlib.suppress(BlockingIOError):
                said.append(os.read(read, 100))
        return [len(one) > 0 for one in said]

    assert as_ana(twice) == [True]


def test_nothing_of_a_request_is_in_roots_memory(server):
    """Its forks for other people would have a copy."""
    secret = "of-ana-" + os.urandom(12).hex()

    def with_a_secret() -> object:
        os.environ["TOKEN"] = secret
        return ask(server[0])["env"]["TOKEN"]

    assert as_ana(with_a_secret) == secret
    pid = server[1].pid
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if line.split()[1].startswith("rw")]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for low, high in ((int(one, 16), int(other, 16)) for one, other in spans):
            memory.seek(low)
            assert secret.encode() not in memory.read(high - low)


def test_what_a_client_leaves_unread_delays_nobody(server):
    """The last reference to a connection that lingers: to close it waits until all is sent, which the client never reads."""

    def leave_it() -> float:
        listening = socket.create_server(("127.0.0.1", 0))
        slow = socket.socket()
        slow.connect(listening.getsockname())
        accepted, _ = listening.accept()
        slow.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                slow.send(bytes(1 << 16))
        slow.setblocking(True)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(server[0]))
            connection.recv(1000)
            number = slow.detach()
            socket.send_fds(connection, [b""], [number])  # an empty message: as if the client had gone
            os.close(number)
            began = time.monotonic()
            while connection.recv(1000):
                pass
        assert ask(server[0])["uids"] == [ANA] * 3
        accepted.close()
        return time.monotonic() - began

    assert as_ana(leave_it) < 20


def test_the_socket_is_there_once_it_answers(tmp_path, monkeypatch):
    """Who waits for it connects as soon as it is there."""
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    path, seen = Path("socket"), []

    class Watched(socket.socket):
        def listen(self, *backlog):
            seen.append(path.exists())
            super().listen(*backlog)

    for _ in range(2):  # the last server's may be there still
        with (
            Watched(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking,
        ):
            machine.listen_at(listening, path)
            assert path.stat().st_mode & 0o777 == 0o666
            asking.connect(str(path))
    assert seen[0] is False


@pytest.fixture
def idle():
    """A server's object in this process, which serves nobody."""
    server = machine.MachineServer(Path("/nowhere/socket"), ["g1"])
    yield server
    server.forget_closer()
    for end in (server.listening, server.selector, server.hangups, server.wake, server.wake_write):
        end.close()


def client_of(uid: int) -> machine.Client:
    client = machine.Client(socket.socket())
    client.peer = SimpleNamespace(uid=uid)
    return client


def test_a_fork_counts_until_it_has_ended(idle):
    """SIGKILL waits for as long as a file system of its own account does not answer it."""
    for number in range(machine.MOST_CLIENTS):
        idle.check_room(ANA)
        idle.owners[number] = client_of(ANA)
    with pytest.raises(PeerError, match="this account has too many"):
        idle.check_room(ANA)
    idle.check_room(ANA + 1)


def test_all_the_numbers_of_one_account_have_a_limit_together(idle):
    """With a range in /etc/subuid a set-uid program of one's own runs under each of them."""
    for number in range(machine.MOST_IN_ALL):
        idle.owners[number] = client_of(100_000 + number)
    with pytest.raises(PeerError, match="there are too many"):
        idle.check_room(ANA)


def test_a_process_that_can_not_close_what_was_left_stops_nobody(idle, monkeypatch):
    """A file whose pages must go to an account's own file system first, which does not answer."""
    started = []
    spawn = os.posix_spawnp

    def stuck(name: str, arguments: list[str], env: dict[str, str]) -> int:
        started.append(spawn("sleep", ["sleep", "600"], env))
        return started[-1]

    monkeypatch.setattr(os, "posix_spawnp", stuck)
    (one, one_end), (two, two_end) = socket.socketpair(), socket.socketpair()
    try:
        with one_end, two_end:
            idle.close(one)
            assert one.fileno() == -1 and one_end.recv(1) == b""
            assert [fd for fd in os.listdir(f"/proc/{started[0]}/fd") if int(fd) > 2], "it has the connection, open"
            idle.close(two)
            assert idle.left == [two] and len(started) == 1
            idle.closer_until = 0.0  # much later
            idle.close_left()
            assert two.fileno() == -1 and len(started) == 2
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_who_comes_while_no_descriptor_is_left_is_accepted_later(idle, monkeypatch):
    """Nobody's end may come for long: the server looks again by itself."""

    class Full(socket.socket):
        def accept(self):
            raise OSError(errno.ENFILE, "too many open files in system")

    asked = []
    monkeypatch.setattr(signal, "setitimer", lambda *timer: asked.append(timer))
    idle.listening.close()
    idle.listening = Full()
    idle.on_ready(idle.listening, idle.accept)
    idle.accept()
    assert asked == [(signal.ITIMER_REAL, machine.RETRY_S)] and idle.listening not in idle.selector.get_map()
    idle.reap()  # as each signal does
    assert idle.listening in idle.selector.get_map()


def test_a_descriptor_with_a_high_number_is_one_as_another():
    """Eight accounts with 64 connections each, or 250 people who have a server each, bring the numbers above 1023."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2100:
        pytest.skip("this process may not have so many descriptors")

    def high() -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            peer = Peer(ours)
            low, peer.pidfd = peer.pidfd, fcntl.fcntl(peer.pidfd, fcntl.F_DUPFD_CLOEXEC, 2000)
            os.close(low)
            peer.check()
            peer.close()
        return "checked"

    assert as_ana(high) == "checked"


def test_who_lets_a_target_return_nonsense_stops_only_themselves(server):
    as_ana(lambda: ask(server[0], "builtins:slice"))
    assert as_ana(lambda: ask(server[0]))["uids"] == [ANA] * 3


def test_who_is_refused_leaves_no_descriptor_behind(server):
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{server[1].pid}/fd"))

    before = descriptors()
    for _ in range(20):
        assert ask(server[0]) is None  # root gets no fork
    until(lambda: descriptors() <= before)


def test_who_takes_other_mounts_after_the_check_is_refused():
    """An account that is root in a user namespace of its own decides what stands in /proc there, and in /etc."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = f"/tmp/art-peer-{os.getpid()}"
    listening.bind(address)
    os.chmod(address, 0o777)
    listening.listen()
    go_read, go_write = os.pipe()

    def jump() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(address)
            os.read(go_read, 1)
            moved = ctypes.CDLL(None).unshare(0x10000000 | 0x20000) == 0
            connection.send(b"moved" if moved else b"no namespaces here")
            connection.recv(1)
        return "done"

    asking = threading.Thread(target=as_ana, args=(jump,))
    asking.start()
    try:
        connection, _ = listening.accept()
        peer = Peer(connection)
        peer.check()
        os.write(go_write, b"x")
        if connection.recv(100) == b"moved":
            pid = os.fork()
            if pid == 0:
                try:
                    peer.adopt()
                except PeerError as error:
                    os._exit(7 if "of another user namespace" in str(error) else 8)
                finally:
                    os._exit(9)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        peer.close()
        connection.close()
    finally:
        asking.join(20)
        listening.close()
        os.unlink(address)


def test_a_fork_that_stays_where_it_is_is_in_no_folder_of_roots(server):
    def stay_there() -> object:
        read, write = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(server[0]))
            connection.recv(1000)
            request = {"id": 1, "target": "machine_targets:report", "args": None, "env": {}, "cwd": ".", "umask": 18}
            socket.send_fds(connection, [json.dumps(request).encode()], [write])
            os.close(write)
            with open(read, encoding="utf-8") as said:
                return json.loads(said.read())

    assert os.readlink(f"/proc/{server[1].pid}/cwd") == "/"
    assert as_ana(stay_there)["cwd"] == "/"


def adopted(before: Callable[[], object], look: Callable[[], object]) -> object:
    """What `look` returns in a process of root's that has called `before` and then become one of Ana's; else the error's text."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = f"/tmp/art-adopt-{os.getpid()}"
    listening.bind(address)
    os.chmod(address, 0o777)
    listening.listen()

    def connect() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(address)
            connection.recv(1)
        return "done"

    asking = threading.Thread(target=as_ana, args=(connect,))
    asking.start()
    try:
        connection, _ = listening.accept()
        peer = Peer(connection)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                before()
                peer.adopt()
                os.write(write, json.dumps(look()).encode())
            except PeerError as error:
                os.write(write, json.dumps(str(error)).encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        with open(read, encoding="utf-8") as said:
            text = said.read()
        peer.close()
        connection.close()
        return json.loads(text)
    finally:
        asking.join(20)
        listening.close()
        os.unlink(address)


def keyctl(*arguments: object) -> int:
    """The kernel's keyrings; -1 where there are none, or none are allowed."""
    call = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
    return ctypes.CDLL(None).syscall(call, *arguments) if call else -1


def test_a_fork_has_none_of_roots_keys():
    """By a session keyring that several processes have, each of them owns the keys of all."""
    name = f"art-{os.getpid()}".encode()

    def roots_session() -> None:
        assert keyctl(1, name) >= 0

    def described() -> str:
        text = ctypes.create_string_buffer(500)
        keyctl(6, -3, text, 500)
        return text.value.decode()

    pid = os.fork()
    if pid == 0:
        os._exit(keyctl(1, name) < 0)
    if os.waitpid(pid, 0)[1]:
        pytest.skip("no keyrings here")
    found = adopted(roots_session, described)
    assert found.startswith(f"keyring;{ANA};{ANA};") and name.decode() not in found


def test_rights_that_root_could_pass_on_end_with_its_account():
    """What the administrator gave the hub: rights that programs may inherit, and secure bits."""

    def inheritable() -> None:
        header, data = (0x20080522).to_bytes(4, "little") + bytes(4), bytearray(24)
        library = ctypes.CDLL(None)
        room = (ctypes.c_char * 24).from_buffer(data)
        assert library.capget(header, room) == 0
        data[8:12], data[20:24] = data[4:8], data[16:20]
        assert library.capset(header, room) == 0

    def rights() -> list[int]:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return [int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")]

    assert adopted(inheritable, rights) == [0, 0, 0, 0]

    def stay_with_the_account() -> None:
        assert ctypes.CDLL(None).prctl(28, 4, 0, 0, 0) == 0  # SECBIT_NO_SETUID_FIXUP

    assert "secure bits" in adopted(stay_with_the_account, rights)


def test_a_fork_ends_with_the_process_that_asked_for_it(server):
    def leave_one() -> object:
        os.environ[machine.SOCKET_ENV] = str(server[0])
        read, write = os.pipe()
        machine.spawn("machine_targets:stay", None, [write])
        os.close(write)
        with open(read, encoding="utf-8") as said:
            return json.loads(said.read())

    pid = as_ana(leave_one)
    deadline = time.monotonic() + 30
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        pytest.fail("it is still there")


def test_who_comes_while_many_wait_gets_in_line(tmp_path, monkeypatch, capfd):
    """The kernel refuses at once to connect to a full queue, if the caller would not wait."""
    path = str(tmp_path / "socket")
    monkeypatch.setenv(machine.SOCKET_ENV, path)
    monkeypatch.setattr(machine, "WAIT_S", 1.0)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(path)
        listening.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)).connect(path)
        began = time.monotonic()
        assert machine.spawn("machine_targets:report", None, []) is None
        assert 0.5 < time.monotonic() - began < 20
    assert "gives no fork" in capfd.readouterr().err


def test_where_there_is_no_such_server_nothing_is_forked(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv(machine.SOCKET_ENV, raising=False)
    assert machine.spawn("machine_targets:report", None, []) is None
    monkeypatch.setenv(machine.SOCKET_ENV, str(tmp_path / "none"))
    assert machine.spawn("machine_targets:report", None, []) is None
    assert "gives no fork" in capfd.readouterr().err
