"""GPUs that only their holder can open: root's service with pretend device nodes and real accounts. Needs root."""

import asyncio
import contextlib
import ctypes
import json
import mmap
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from pathlib import Path

import pytest
from allranks import RankDied, World, WorldError
from allranks.cli import gpus
from allranks.ranks.engines import gpu_nodes, gpu_socket
from allranks.ranks.engines.devices import DeviceError, Gpu, Inventory
from allranks.ranks.engines.gpu_service import GpuServeError, GpuService
from allranks.ranks.engines.served_leases import ServedLedger, ledger_of
from pretend_nvml import PretendNvml
from waiting import until

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can close device nodes and become another user"
)

SOON_S = 30  # a deadline for what takes well below a second on an idle machine
ANA, BEN, EVE = (pwd.getpwnam(name).pw_uid for name in ("games", "daemon", "nobody"))


class Person:
    """A process of another account, which calls functions on request: what each returned, or its error's name and words."""

    def __init__(self, uid: int) -> None:
        self._mine, its = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._mine.close()
                os.setsid()
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                os.chdir("/")
                self._live(its)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        its.close()
        self._answers = self._mine.makefile("r")

    def _live(self, its: socket.socket) -> None:
        names = {"kept": []}
        for line in its.makefile("r"):
            try:
                value = eval(json.loads(line), {**globals(), **names, "names": names})
                names["last"] = value
                said = value if isinstance(value, (int, float, str, list, type(None))) else repr(value)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            its.sendall(json.dumps(said).encode() + b"\n")

    def begin(self, expression: str) -> None:
        self._mine.sendall(json.dumps(expression).encode() + b"\n")

    def answer(self):
        self._mine.settimeout(SOON_S)
        return json.loads(self._answers.readline())

    def __call__(self, expression: str):
        self.begin(expression)
        return self.answer()

    def opens(self, node: Path):
        """True, or why it can't open the node."""
        said = self(f"kept.append(os.open({str(node)!r}, os.O_RDWR))")
        if said is None:
            self("os.close(kept.pop())")
        return said is None or said

    def lease(self, count=1, **how) -> None:
        """Takes a lease, which it keeps."""
        options = "".join(f", {name}={value!r}" for name, value in how.items())
        said = self(f"names.update(lease=ledger_of(Inventory.of_this_machine().gpus).acquire({count}{options}))")
        assert said is None, said
        self("KEPT.append(lease)")

    def release(self) -> None:
        assert self("lease.release()") is None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._mine.close()

    @property
    def lives(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        return False


# harmless devices of the kernel that hardly any process has open, as stand-ins for those of GPUs: full, zero, random, urandom
STAND_INS = (7, 5, 8, 9)


def make_nodes(folder: Path, names) -> list[Path]:
    """Stand-ins for GPUs' device nodes; skips where none can be made, or opened, or given an ACL."""
    found = [folder / name for name in names]
    for path, minor in zip(found, STAND_INS, strict=False):
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            path.chmod(0o666)
            os.close(os.open(path, os.O_RDWR))
            gpu_nodes.open_to(path, [])
            gpu_nodes.put_back(path, gpu_nodes.Before(0o666, 0, 0))
        except OSError as error:
            pytest.skip(f"no stand-in for a device node can be made in {folder}: {error}")
    return found


class House:
    """A machine with a service and pretend GPUs."""

    def __init__(self, folder: Path, gpus: list[dict]) -> None:
        self.folder, self.socket = folder, folder / "gpus.sock"
        self.inventory = folder / "inventory.json"
        self.inventory.write_text(json.dumps({"gpus": gpus, "cores": 8, "nccl": "2.30.7"}))
        self.env = {"ALLRANKS_INVENTORY": str(self.inventory), gpu_socket.SOCKET_ENV: str(self.socket)}
        self.process: subprocess.Popen | None = None
        self.log = folder / "log"

    def serve(self, *options: str) -> None:
        command = [sys.executable, "-m", "allranks.cli", "gpus", "--serve", *options]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **self.env}, stdout=log, stderr=log)
        until(lambda: self.answers() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def answers(self) -> bool:
        with contextlib.suppress(gpu_socket.GpuServiceError):
            return bool(self.state())
        return False

    def state(self) -> dict:
        return gpu_socket.state(self.socket)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(SOON_S)

    def held(self) -> list[str]:
        """Who has the GPUs, in their order."""
        state = self.state()
        return [
            (state["holders"][gpu["uuid"]] or {}).get("user") or ",".join(h["user"] for h in state["sharers"][gpu["uuid"]])
            for gpu in state["gpus"]
        ]  # fmt: skip


@pytest.fixture
def folder():
    """One that every account can enter, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="allranks-gpus-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def house(folder, monkeypatch):
    gpus = [
        {"uuid": f"GPU-{i}", "name": "Pretend", "memory_bytes": 1 << 30, "nodes": [str(node)], "busy_percent": 40 + i}
        for i, node in enumerate(make_nodes(folder, ["nvidia0", "nvidia1"]))
    ]
    yield from housed(folder, gpus, monkeypatch)


def housed(folder, gpus, monkeypatch):
    house = House(folder, gpus)
    for name, value in house.env.items():
        monkeypatch.setenv(name, value)
    yield house
    if house.process and house.process.poll() is None:
        house.process.kill()
        house.process.wait()


@pytest.fixture
def people():
    there = []

    def arrive(*uids: int):
        mine = [Person(uid) for uid in uids]
        there.extend(mine)
        return mine if len(mine) > 1 else mine[0]

    yield arrive
    for person in there:
        person.kill()


@pytest.fixture
def node(house):
    return house.folder / "nvidia0"


def test_only_the_holder_can_open_a_gpu(house, node, people):
    ana, ben = people(ANA, BEN)
    assert ana.opens(node) is True
    house.serve()
    assert "PermissionError" in ana.opens(node)
    ana.lease()
    assert ana.opens(node) is True and "PermissionError" in ana.opens(house.folder / "nvidia1")
    assert "PermissionError" in ben.opens(node)
    assert house.held() == ["games", ""]
    ben.lease()
    assert house.held() == ["games", "daemon"] and "PermissionError" in ben.opens(node)
    ana.release()
    assert "PermissionError" in ana.opens(node) and house.held() == ["", "daemon"]
    ben.lease(shares=2)
    ana.lease(shares=2)
    assert house.held() == ["daemon,games", "daemon"] and ana.opens(node) is ben.opens(node) is True


def test_the_service_says_how_busy_gpus_are_that_nobody_else_can_look_at(house, people):
    house.serve()
    until(lambda: [use["busy_percent"] for use in house.state()["use"].values()] == [40, 41])


def keep_open(node: str) -> None:
    """In another account's process, as are the next three."""
    KEPT.append(os.open(node, os.O_RDWR))


def keep_mapped(node: str) -> None:
    """Memory that is mapped to a device needs no descriptor."""
    descriptor = os.open(node, os.O_RDWR)
    KEPT.append(mmap.mmap(descriptor, 4096, flags=mmap.MAP_PRIVATE))
    os.close(descriptor)


def keep_in_thread(node: str) -> None:
    """A thread can have descriptors that the process's list does not show."""
    done = threading.Event()

    def work() -> None:
        assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
        os.open(node, os.O_RDWR)
        done.set()
        time.sleep(600)

    threading.Thread(target=work, daemon=True).start()
    assert done.wait(SOON_S)


def keep_forking(node: str, pause_s: float = 0.01) -> None:
    """Each child opens nothing: it inherits, forks, and ends."""
    os.open(node, os.O_RDWR)
    if os.fork() == 0:
        while os.fork() == 0:
            time.sleep(pause_s)
        os._exit(0)


def keep_racing(node: str) -> None:
    """The same as fast as it can."""
    keep_forking(node, 0)


KEPT = []


def test_a_killed_holder_frees_its_gpu_and_what_it_left_behind_ends(house, node, people):
    ana, ben, orphan = people(ANA, BEN, ANA)
    house.serve()
    ana.lease(2)
    assert orphan(f"keep_open({str(node)!r})") is None
    # a child that has inherited the connection must not keep the lease
    assert ana("names.update(child=subprocess.Popen(['sleep', '600'], pass_fds=[lease._connection.fileno()]))") is None
    child = ana("child.pid")
    ben.begin("names.update(lease=ledger_of(Inventory.of_this_machine().gpus).acquire(1))")
    until(lambda: house.state()["waiting"])
    began = time.monotonic()
    ana.kill()
    assert ben.answer() is None
    print(f"the next person had the GPU {time.monotonic() - began:.2f} s after the kill")
    assert not orphan.lives, "it could still use the GPU"
    assert ben.opens(node) is True and house.held() == ["daemon", ""]
    os.kill(child, signal.SIGKILL)


def keep_under_a_false_name(path: str) -> None:
    """Its name looks like a line of /proc/PID/status that says that it is root's."""
    assert ctypes.CDLL(None).prctl(15, b"a\rUid:\t0", 0, 0, 0) == 0
    keep_open(path)


@pytest.mark.parametrize("keep", [keep_open, keep_mapped, keep_in_thread, keep_forking, keep_under_a_false_name])
def test_who_keeps_a_gpu_open_after_the_lease_is_ended(house, people, keep):
    zero = house.folder / "nvidia1"  # /dev/zero, the only one of the stand-ins that can be mapped
    ana, keeper, other, ben = people(ANA, ANA, ANA, BEN)
    house.serve()
    ana.lease(2)
    assert keeper(f"{keep.__name__}({str(zero)!r})") is None
    ana.release()
    until(lambda: not keeper.lives)
    until(lambda: not house.state()["clearing"])
    assert ana.lives and other.lives, "they had nothing open"
    assert gpu_nodes.openers([zero], ANA) == []
    ben.lease(2)


def test_processes_that_begin_faster_than_they_can_be_ended_end_with_all_of_their_account(house, node, people):
    racer = 64000 + os.getpid() % 1000  # an account that nobody else has: everything that it runs will be ended
    ana, keeper, other, ben = people(racer, racer, racer, BEN)
    house.serve()
    ana.lease(2)
    assert keeper(f"keep_racing({str(node)!r})") is None
    ana.kill()
    ben.lease(2)
    assert gpu_nodes.openers([node], racer) == []
    print("all ended" if not other.lives else "caught one by one")
    assert ben.lives


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs util-linux")
def test_all_processes_of_an_account_can_be_ended_at_once_with_the_rights_that_the_unit_leaves(people):
    unit = Path(__file__).parents[3].joinpath("deploy", "allranks-gpus.service").read_text()
    (rights,) = re.findall(r"^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE)
    kept = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in rights.split())])
    uid = 64000 + os.getpid() % 1000
    first, second, ben = people(uid, uid, BEN)
    ends = f"from allranks.ranks.engines import gpu_nodes; gpu_nodes.end_all({uid})"
    command = ["setpriv", f"--bounding-set={kept}", "--no-new-privs", sys.executable, "-c", ends]
    subprocess.run(command, check=True, timeout=SOON_S)
    until(lambda: not first.lives and not second.lives)
    assert ben.lives


def test_another_lease_of_the_same_account_keeps_its_processes(house, node, people):
    first, second, worker = people(ANA, ANA, ANA)
    house.serve()
    first.lease(shares=2)
    second.lease(2, shares=2)
    assert worker(f"keep_open({str(node)!r})") is None
    first.release()
    assert worker.lives and worker.opens(node) is True
    second.release()
    until(lambda: not worker.lives)


def test_an_account_without_a_lease_that_got_in_is_shown_and_ended_on_request(house, node, people):
    eve, monitor = people(EVE, BEN)
    for person in (eve, monitor):
        assert person(f"keep_open({str(node)!r})") is None  # before the service came
    house.serve("--allow", "daemon")
    until(lambda: house.state()["unleased"])
    assert house.state()["unleased"] == [{"user": "nobody", "pid": eve.pid, "gpus": ["GPU-0"]}]
    shown = subprocess.run([sys.executable, "-m", "allranks.cli", "gpus"], capture_output=True, text=True).stdout
    assert f"without a lease: nobody (pid {eve.pid}) has GPU 0 open" in shown
    assert eve.lives and monitor.opens(node) is True
    house.stop()
    house.serve("--allow", "daemon", "--end-unleased")
    until(lambda: not eve.lives)
    assert monitor.lives


def test_the_nodes_are_closed_again_when_somebody_opens_them_and_put_back_at_the_end(house, node, people):
    eve = people(EVE)
    before = node.stat()
    house.serve()
    node.chmod(0o666)  # as the driver's own program does
    until(lambda: eve.opens(node) is not True)
    node.unlink()
    make_nodes(house.folder, ["nvidia0"])
    until(lambda: eve.opens(node) is not True)
    house.stop(signal.SIGKILL)
    assert eve.opens(node) is not True, "a killed service opens nothing"
    house.serve()
    ana = people(ANA)
    ana.lease()
    assert ana(f"keep_open({str(node)!r})") is None
    house.stop()
    assert ana.lives, "its lease ended with the service, and everybody may open the GPU now"
    after = node.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert eve.opens(node) is True and not house.socket.exists()


def test_a_slice_ends_when_somebody_waits_and_after_a_grace_by_force(house, node, people):
    ana, eve = people(ANA, EVE)
    house.serve("--slice", "0", "--grace", "0.5")
    ana.lease(2, slice_s=1e9)
    time.sleep(1.2)  # longer than the grace, and several of the service's looks, which leave no trace
    assert ana("lease.over") is False and ana.opens(node) is True, "nobody waits"
    eve.begin("names.update(lease=ledger_of(Inventory.of_this_machine().gpus).acquire(2))")
    until(lambda: ana("lease.over"))
    assert eve.answer() is None
    assert ana("lease.lost") == "the time was over and others wait" and "PermissionError" in ana.opens(node)
    ana.release()
    assert ana.lives and house.held() == ["nobody", "nobody"]


def test_people_take_turns_however_many_processes_each_has(house, people):
    greedy = people(ANA, ANA, ANA)
    ben = people(BEN)
    house.serve()
    holder = people(EVE)
    holder.lease(2)
    ask = "names.update(lease=ledger_of(Inventory.of_this_machine().gpus).acquire(1))"
    for number, one in enumerate(greedy):
        one.begin(ask)
        until(lambda wanted=number + 1: len(house.state()["waiting"]) == wanted)
    ben.begin(ask)
    until(lambda: len(house.state()["waiting"]) == 4)
    assert [w["user"] for w in house.state()["waiting"]] == ["games", "daemon", "games", "games"]
    holder.release()
    assert greedy[0].answer() is None and ben.answer() is None
    assert sorted(house.held()) == ["daemon", "games"]


def test_waiting_tells_the_place_and_ends_after_the_time(house, people):
    ana, ben = people(ANA, BEN)
    house.serve()
    ana.lease(2)
    said = ben("(told := []) or names.update(told=told)")
    said = ben(
        "ledger_of(Inventory.of_this_machine().gpus).acquire(1, timeout_s=0.3, told=lambda *p: told.append(list(p)))"
    )
    assert said.startswith("LeaseError: No 1 GPUs were free after 0.3 s (place 1 in the queue); `allranks gpus` shows")
    told = ben("told")  # the time goes down in steps
    assert told and all(place == 1 and 1100 < seconds <= 1200 for place, seconds in told)
    assert house.state()["waiting"] == []
    assert ben("ledger_of(Inventory.of_this_machine().gpus).acquire(3)").endswith("this machine has 2.")
    ana.release()
    assert ben("ledger_of(Inventory.of_this_machine().gpus).acquire(1, timeout_s=0).release()") is None


def test_a_lease_ends_with_the_service(house, people):
    ana = people(ANA)
    house.serve()
    ana.lease()
    assert ana("lease.lost") is None
    house.stop(signal.SIGKILL)
    until(lambda: ana("lease.lost") == "the GPU service has ended")
    assert ana("lease.over") is True
    ana.release()
    said = ana("ledger_of(Inventory.of_this_machine().gpus).acquire(1)")
    assert said.startswith("LeaseError: The GPU service of this machine (") and "systemctl status allranks-gpus" in said


GARBAGE = [
    b"\n",
    b"no json\n",
    b"[]\n",
    b"7\n",
    b"\xff\xfe\n",
    b"[" * 10_000 + b"\n",
    b"x" * 100_000,
    b'{"ask": "everything"}\n',
    b'{"ask": "lease"}\n',
    b'{"ask": "lease", "count": 1, "gpus": "GPU-0"}\n',
    b'{"ask": "lease", "count": true, "gpus": ["GPU-0"]}\n',
    b'{"ask": "lease", "count": -1, "gpus": ["GPU-0"]}\n',
    b'{"ask": "lease", "count": 1, "gpus": ["../../sda"]}\n',
    b'{"ask": "lease", "count": 1, "gpus": [{}]}\n',
    b'{"ask": "lease", "count": 1, "gpus": ["GPU-0"], "shares": 65}\n',
    b'{"ask": "lease", "count": 1, "gpus": ["GPU-0"], "shares": 0.5}\n',
    b'{"ask": "lease", "count": 1, "gpus": ["GPU-0"], "slice_s": NaN}\n',
    b'{"ask": "lease", "count": 1' + b"0" * 5000 + b', "gpus": ["GPU-0"]}\n',
]


def send(path: str, words: bytes) -> str:
    """What the service answers, when it has closed the connection."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(SOON_S)
        asking.connect(path)
        with contextlib.suppress(BrokenPipeError):
            asking.sendall(words)
        with contextlib.suppress(ConnectionResetError):
            return asking.makefile().read()
    return ""


def flood(path: str, count: int) -> int:
    """Opens so many connections and says nothing; how many were opened."""
    for _ in range(count):
        KEPT.append(socket.socket(socket.AF_UNIX))
        KEPT[-1].settimeout(SOON_S)
        KEPT[-1].connect(path)
    return count


def test_garbage_slow_clients_and_a_thousand_connections_stop_nobody(house, node, people):
    eve, ana = people(EVE, ANA)
    house.serve()
    for words in GARBAGE:
        said = eve(f"send({str(house.socket)!r}, {words!r})")
        assert said == "" or set(json.loads(said)) == {"error"}, (words[:60], said)
    # a request can't name an account or process: only the kernel's word counts
    forged = {"ask": "lease", "count": 1, "gpus": ["GPU-0"], "uid": ANA, "pid": 1, "user": "games"}
    assert eve(f"KEPT.append(gpu_socket.call(Path({str(house.socket)!r}), {forged!r}))") is None
    until(lambda: house.held() == ["nobody", ""])
    assert "PermissionError" in ana.opens(node)
    assert eve("KEPT.pop().close()") is None
    until(lambda: house.held() == ["", ""])
    assert eve(f"flood({str(house.socket)!r}, 1000)") == 1000
    ana.lease(2)
    assert ana.opens(node) is True

    def refused() -> bool:  # the time to ask of some may end between the two
        assert eve(f"flood({str(house.socket)!r}, 64)") == 64  # in place of those whose time to ask was over
        return "connections to the GPU service already" in eve(f"send({str(house.socket)!r}, b'')")

    until(refused)
    # one that asks and asks but reads nothing
    slow = people(BEN)
    assert slow(f"flood({str(house.socket)!r}, 20)") == 20
    assert slow('[one.sendall(b\'{"ask": "state"}\\n\') for one in KEPT] and None') is None
    assert house.held() == ["games", "games"] and house.process.poll() is None
    ana.release()


def serve() -> None:
    asyncio.run(GpuService((), {}).run(Path("/tmp/none.sock")))


def test_only_root_serves_once_and_only_device_nodes(house, folder, people):
    house.serve()
    command = [sys.executable, "-m", "allranks.cli", "gpus", "--serve"]
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2 and second.stderr.startswith("A GPU service runs already")
    assert house.answers(), "the first goes on"
    house.stop()
    said = people(EVE)("serve()")
    assert said.startswith("GpuServeError: Only root can open and close device nodes")
    (folder / "nvidia0").unlink()
    (folder / "nvidia0").write_text("")
    wrong = subprocess.run(command, capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.strip().endswith("nvidia0 is not a device node.")
    nobody = subprocess.run([*command, "--allow", "no-such-account"], capture_output=True, text=True)
    assert nobody.returncode == 2 and "no account 'no-such-account'" in nobody.stderr


@pytest.fixture
def parts(folder, monkeypatch):
    """A house whose GPU 0 is cut into two MIG devices."""
    card, first, second, _ = map(str, make_nodes(folder, ["nvidia0", "nvidia-cap3", "nvidia-cap4", "nvidia1"]))
    gpus = [
        {"uuid": f"MIG-{i}", "name": "Part", "memory_bytes": 1 << 30, "parent": "GPU-0", "nodes": [card, cap]}
        for i, cap in enumerate((first, second))
    ]
    gpus.append({"uuid": "GPU-1", "name": "Pretend", "memory_bytes": 1 << 30, "nodes": [str(folder / "nvidia1")]})
    yield from housed(folder, gpus, monkeypatch)


def test_a_mig_devices_holder_has_its_nodes_and_its_cards(parts, people):
    card, first, second = (parts.folder / name for name in ("nvidia0", "nvidia-cap3", "nvidia-cap4"))
    ana, ben, worker = people(ANA, BEN, ANA)
    parts.serve()
    ana.lease(2)
    assert parts.held() == ["games", "", "games"], "devices of different cards come first"
    ben.lease()
    assert [ana.opens(node) is True for node in (card, first, second)] == [True, True, False]
    assert [ben.opens(node) is True for node in (card, first, second)] == [True, False, True]
    assert worker(f"keep_open({str(first)!r})") is None
    ana.release()
    until(lambda: not worker.lives)
    assert [ana.opens(node) is True for node in (card, first, second)] == [False, False, False]
    assert ben.opens(card) is True and ben.lives, "the card is still the other's"
    ben.lease()
    other = people(BEN)
    assert other(f"keep_open({str(card)!r})") is None
    ben.release()  # one of two: the card stays open
    assert other.lives and ben.opens(card) is True and ben.opens(second) is True and ben.opens(first) is not True


def driver_tree(root: Path) -> None:
    """What the NVIDIA driver shows of a machine with two GPUs, of which the second has two MIG devices."""
    for minor, bus in ((0, "1b"), (1, "43")):
        about = root / f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information"
        about.parent.mkdir(parents=True)
        about.write_text(f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 34\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n")
    mig = root / "proc/driver/nvidia/capabilities/gpu1/mig"
    for minor, place in ((30, "gi1/access"), (31, "gi1/ci0/access"), (39, "gi2/access"), (40, "gi2/ci0/access")):
        (mig / place).parent.mkdir(parents=True, exist_ok=True)
        (mig / place).write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    (root / "proc/devices").write_text(
        "Character devices:\n  1 mem\n195 nvidia\n237 nvidia-caps\n507 nvidia-uvm\n\nBlock devices:\n259 blkext\n"
    )
    (root / "dev").mkdir()


def test_the_nodes_of_gpus_and_mig_devices_are_read_from_the_drivers_files(tmp_path):
    driver_tree(tmp_path)
    dev = tmp_path / "dev"
    assert gpu_nodes.paths(0, root=tmp_path) == (dev / "nvidia0",)
    caps = dev / "nvidia-caps"
    assert gpu_nodes.paths(1, (2, 0), tmp_path) == (dev / "nvidia1", caps / "nvidia-cap39", caps / "nvidia-cap40")
    with pytest.raises(DeviceError, match="gi7/access can't be read: No such file"):
        gpu_nodes.paths(1, (7, 0), tmp_path)
    (tmp_path / "proc/driver/nvidia/capabilities/gpu1/mig/gi1/access").write_text("DeviceFileMode: 292\n")
    with pytest.raises(DeviceError, match="gi1/access names no device node"):
        gpu_nodes.paths(1, (1, 0), tmp_path)


def test_missing_nodes_are_made_and_gpus_are_closed_from_the_start(tmp_path):
    driver_tree(tmp_path)
    try:
        made = gpu_nodes.make_missing(tmp_path)
    except PermissionError as error:
        pytest.skip(f"no device node can be made here: {error}")
    found = {p.relative_to(tmp_path / "dev").as_posix(): p.stat() for p in made}
    assert {name: (os.major(s.st_rdev), os.minor(s.st_rdev), stat.S_IMODE(s.st_mode)) for name, s in found.items()} == {
        "nvidia0": (195, 0, 0o600),
        "nvidia1": (195, 1, 0o600),
        "nvidiactl": (195, 255, 0o666),
        "nvidia-uvm": (507, 0, 0o666),
        "nvidia-uvm-tools": (507, 1, 0o666),
        **{f"nvidia-caps/nvidia-cap{n}": (237, n, 0o600) for n in (30, 31, 39, 40)},
    }
    assert gpu_nodes.make_missing(tmp_path) == []
    assert gpu_nodes.make_missing(tmp_path / "none") == []


def test_a_driver_that_opens_its_nodes_again_is_warned_of(tmp_path):
    assert not gpu_nodes.driver_opens(tmp_path)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/params").write_text("ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\n")
    assert gpu_nodes.driver_opens(tmp_path)
    (tmp_path / "proc/driver/nvidia/params").write_text("ModifyDeviceFiles: 0\n")
    assert not gpu_nodes.driver_opens(tmp_path)


def test_the_nodes_of_real_gpus_are_asked_of_nvml(monkeypatch):
    nvml = PretendNvml()
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: (uuid.split("-")[0], int(uuid.split("-")[2]))
    nvml.nvmlDeviceGetMinorNumber = lambda handle: 4 + handle[1]
    nvml.nvmlDeviceGetGpuInstanceId = lambda handle: 7
    nvml.nvmlDeviceGetComputeInstanceId = lambda handle: handle[1]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.setattr(
        gpu_nodes, "_number_in", lambda path: ["gi7/access", "ci3/access"].index("/".join(path.parts[-2:]))
    )
    gpus = [Gpu(0, "MIG-0000-3", "Part", 1, "GPU-0000-0"), Gpu(1, "GPU-0000-1", "Whole", 1)]
    caps = Path("/dev/nvidia-caps")
    assert gpu_nodes.nodes_of(gpus) == {
        "MIG-0000-3": (Path("/dev/nvidia4"), caps / "nvidia-cap0", caps / "nvidia-cap1"),
        "GPU-0000-1": (Path("/dev/nvidia5"),),
    }
    assert nvml.open == 0


def test_a_service_without_gpus_says_why_nvml_names_none(monkeypatch):
    class Updated(PretendNvml):
        def nvmlInit(self):
            raise self.NVMLError("RM has detected an NVML/RM version mismatch.")

    monkeypatch.setitem(sys.modules, "pynvml", Updated())
    monkeypatch.setattr(gpu_nodes, "make_missing", list)
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    with pytest.raises(GpuServeError, match=r"version mismatch.*restart the machine"):
        gpus._serve(None, None, (), False, None)


def test_gpus_that_nvml_can_not_open_are_asked_of_the_service(house, monkeypatch):
    house.serve()
    nvml = PretendNvml()
    nvml.nvmlDeviceGetHandleByIndex = lambda index: pytest.fail("that opens the GPU for a moment")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("ALLRANKS_INVENTORY")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = Inventory.of_this_machine()
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0", "GPU-1"] and found.driver.version == "580.65.06"
    assert isinstance(ledger_of(found.gpus), ServedLedger)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.uuid for gpu in Inventory.of_this_machine().gpus] == ["GPU-1"]
    house.stop(signal.SIGKILL)
    dead = Inventory.of_this_machine()
    assert dead.gpus == () and "does not answer: Connection refused" in dead.refused[0]


def test_a_service_that_is_not_roots_is_not_believed(folder, people):
    eve = people(EVE)
    path = folder / "forged.sock"
    folder.chmod(0o777)
    assert eve(f"KEPT.append(socket.socket(socket.AF_UNIX)) or KEPT[0].bind({str(path)!r}) or KEPT[0].listen()") is None
    path.chmod(0o666)
    with pytest.raises(gpu_socket.GpuServiceError, match=f"is not root's but that of account {EVE}"):
        gpu_socket.state(path)


def test_figures_for_prometheus(house, people):
    pytest.importorskip("prometheus_client", reason="JupyterHub brings it")
    ana = people(ANA)
    house.serve("--metrics", "0")
    ana.lease(1)
    address = until(lambda: [w for w in house.log.read_text().split() if w.startswith("http://127.0.0.1:")])[0]

    def figures() -> dict[str, float]:
        text = urllib.request.urlopen(address).read().decode()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}

    until(lambda: figures().get('allranks_gpu_leases{gpu="0",uuid="GPU-0"}') == 1)
    found = figures()
    assert found['allranks_gpu_leases{gpu="1",uuid="GPU-1"}'] == found["allranks_gpu_waiting"] == 0
    assert found["allranks_gpu_wait_seconds_count"] == 1 and found["allranks_gpu_unleased_processes"] == 0
    assert "games" not in str(found)


def test_a_program_runs_on_gpus_of_its_own(house):
    house.serve()
    program = [sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES']); raise SystemExit(3)"]
    command = [sys.executable, "-m", "allranks.cli", "gpus", "--take"]
    done = subprocess.run([*command, "2", "--", *program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("GPU-0,GPU-1\n", 3)
    until(lambda: house.held() == ["", ""])
    for wrong, says in (
        (["3", "true"], "this machine has 2"),
        (["1"], "needs a command"),
        (["1", "no-such-program"], "can't be run"),
    ):
        done = subprocess.run([*command, *wrong], capture_output=True, text=True)
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert house.held() == ["", ""]


@pytest.mark.live
def test_a_world_takes_its_gpus_from_the_service_and_gives_them_back(house):
    """On pretend GPUs NCCL can't start; until then the GPUs were this world's."""
    house.serve()
    seen, over = set(), threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.add(tuple(house.held()))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with pytest.raises(WorldError, match=r"Rank \d could not join the nccl group"):
            World(ranks=2)
    finally:
        over.set()
        watching.join()
    assert ("root", "root") in seen and house.held() == ["", ""]


@pytest.mark.live
def test_a_world_ends_when_its_time_is_over_and_when_its_gpus_were_taken_back(house, people):
    house.serve()
    ana = people(ANA)
    ask = "names.update(lease=ledger_of(Inventory.of_this_machine().gpus).acquire(2))"

    def gpus():
        return ledger_of(Inventory.of_this_machine().gpus).acquire(2, slice_s=0)

    with World(ranks=2, backend="gloo") as world:  # there is no NCCL here; its ranks have nothing open
        world._lease = gpus()
        ana.begin(ask)
        assert ana.answer() is None
        until(lambda: not world.running)
        assert world.why_stopped.startswith("The world gave its GPUs back: its time was over and others wait.")
        ana.release()
    house.stop()
    house.serve("--grace", "0.5")
    with World(ranks=2, backend="gloo") as world:
        world._lease = gpus()
        ana.begin(ask)

        def work() -> None:
            time.sleep(600)

        def taken_back() -> None:
            ana.answer()
            os.kill(world.pids[1], signal.SIGKILL)  # as the service does with a rank that has the GPU open

        ending = threading.Thread(target=taken_back)
        ending.start()
        with pytest.raises(RankDied):
            world.run(work)
        ending.join()
        assert not world.running
        with pytest.raises(WorldError, match="lost its GPUs: the time was over and others wait"):
            world.run(work)
