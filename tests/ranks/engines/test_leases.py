"""Leases of pretend GPUs by real processes: never two owners, never one lost, whoever is killed and when."""

import errno
import fcntl
import heapq
import json
import os
import pwd
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from allranks.ranks.engines.devices import DeviceError, Gpu, Inventory
from allranks.ranks.engines.leases import Holder, LeaseError, Ledger, Waiter, in_turn, waits
from waiting import until, until_files_are_newer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases are kept on GPU servers, which run Linux")

GPUS = tuple(Gpu(i, f"GPU-{i}", "Pretend", 1 << 30) for i in range(3))

# takes leases for ever, of whole GPUs and of halves; says "cycle" for each on stdout, and keeps witness files to catch a
# second owner: GPU/PID while a process has all of it, GPU/PID.half while it has a half
GREEDY = """
import os, random, sys, time
from allranks.ranks.engines.devices import Gpu
from allranks.ranks.engines.leases import Ledger
directory, seed, witness = sys.argv[1], int(sys.argv[2]), sys.argv[3]
draw = random.Random(seed)
ledger = Ledger(tuple(Gpu(i, f"GPU-{i}", "Pretend", 1 << 30) for i in range(3)), directory)
import allranks.ranks.engines.leases as leases
leases.POLL_S = 0.001
ME = str(os.getpid())

def lives(pid):
    "Whether it has its files, and so its locks: one that is just being killed loses all files before the first lock."
    try:
        return bool(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False

def others(folder):
    "Who else has a GPU, by the witness files."
    return [name for name in os.listdir(folder) if name.split(".")[0] != ME and lives(name.split(".")[0])]

while True:
    shares = draw.choice([None, None, 2])
    with ledger.acquire(draw.randint(1, 2), shares=shares) as lease:
        mine = [f"{witness}/{gpu.index}/{ME}" + (".half" if shares else "") for gpu in lease.gpus]
        for path in mine:
            open(path, "w").close()
            there = others(os.path.dirname(path))
            if there and (not shares or len(there) > 1 or not there[0].endswith(".half")):
                print("DOUBLE", path, *there, flush=True)
        time.sleep(draw.uniform(0, 0.002))
        for path in mine:
            os.unlink(path)
    print("cycle", flush=True)
"""


@pytest.fixture
def ledger(tmp_path):
    return Ledger(GPUS, tmp_path / "leases")


def test_a_lease_is_exclusive_and_given_back(ledger):
    with ledger.acquire(2) as lease:
        assert [g.index for g in lease.gpus] == [0, 1]
        held = ledger.holders()
        assert held["GPU-0"].pid == held["GPU-1"].pid == os.getpid() and held["GPU-2"] is None
        with ledger.acquire(1) as other:
            assert other.gpus[0].index == 2
        with pytest.raises(LeaseError, match=r"No 2 GPUs were free after 0\.1 s \(place 1 in the queue\)"):
            ledger.acquire(2, timeout_s=0.1)
    assert set(ledger.holders().values()) == {None}
    assert ledger.waiting() == []
    lease.release()


@pytest.mark.parametrize("count", [0, -1, 4])
def test_more_than_there_are_is_refused(ledger, count):
    with pytest.raises(LeaseError, match="this machine has 3"):
        ledger.acquire(count)


def test_a_directory_that_can_not_be_used_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LeaseError, match=r"leases .* can't be used"):
        Ledger(GPUS, tmp_path / "file")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(LeaseError, match="not a directory"):
        Ledger(GPUS, tmp_path / "link")


def test_a_file_that_is_there_is_not_created_again(ledger, monkeypatch):
    """With fs.protected_regular Linux refuses that, where it is another user's file in a sticky directory."""

    def open_as_that_kernel(path, flags, *mode):
        if flags & os.O_CREAT and not flags & os.O_EXCL and os.path.exists(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *mode)

    def everything():
        with ledger.acquire(1, shares=2), ledger.acquire(2):
            pass

    real = os.open
    everything()
    monkeypatch.setattr(os, "open", open_as_that_kernel)
    everything()


def test_the_directory_is_named_or_the_hubs_or_one_in_tmp(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("allranks.ranks.engines.leases.HUB_DIRECTORY", tmp_path / "hub")
    monkeypatch.delenv("ALLRANKS_LEASES", raising=False)
    assert Ledger(GPUS).directory == tmp_path / "allranks-leases"
    (tmp_path / "hub").mkdir()
    assert Ledger(GPUS).directory == tmp_path / "hub"
    monkeypatch.setenv("ALLRANKS_LEASES", str(tmp_path / "named"))
    assert Ledger(GPUS).directory == tmp_path / "named"


def test_what_an_unlocked_file_says_counts_for_nothing(ledger):
    (ledger.directory / "gpu-GPU-0").write_text(json.dumps({"user": "mallory", "pid": 1, "since": 0, "until": 9e9}))
    (ledger.directory / "ticket-1-1").write_text("not even JSON")
    assert set(ledger.holders().values()) == {None}
    assert ledger.waiting() == []
    with ledger.acquire(3) as lease:
        assert len(lease.gpus) == 3


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[" * 3000,
        '{"user": {"a": 1}, "pid": 1, "since": 0, "until": 1, "gpus": 1}',
        '{"user": "mallory", "pid": "<b>", "since": NaN, "until": 1e999}',
        '{"user": "mallory", "pid": 1, "gpus": -5, "since": 1}',
        "x" * 10_000_000,
    ],
)
def test_what_a_locked_file_says_is_read_with_care(ledger, text):
    """Anybody may write it: who has the lock is named by the kernel, and what can't be true counts as zero."""
    me = pwd.getpwuid(os.getuid()).pw_name
    with ledger.acquire(1), ledger._ticket(1) as ticket:
        for name in ("gpu-GPU-0", ticket):
            (ledger.directory / name).write_text(text)
        assert ledger.holders()["GPU-0"] == Holder(me, 0, 0, 0)
        assert ledger.waiting() == [Waiter(me, 0, 0, 0)]


def test_nobody_waits_or_holds_under_another_name(ledger, monkeypatch):
    monkeypatch.setenv("LOGNAME", "mallory")
    with ledger.acquire(1), ledger._ticket(1):
        assert "mallory" in (ledger.directory / "gpu-GPU-0").read_text()
        me = pwd.getpwuid(os.getuid()).pw_name
        assert ledger.holders()["GPU-0"].user == me and ledger.waiting()[0].user == me
        monkeypatch.setattr("allranks.ranks.engines.leases._owner", lambda path: -1)  # a kernel that does not tell
        held = json.loads((ledger.directory / "gpu-GPU-0").read_text())
        (ledger.directory / "gpu-GPU-0").write_text(json.dumps({**held, "user": "\x1b[2J" + "m" * 500}))
        assert ledger.holders()["GPU-0"].user == "[2J" + "m" * 61


def test_a_pipe_or_a_strange_name_in_the_folder_stops_nobody(ledger):
    os.mkfifo(ledger.directory / "ticket-1-1")
    os.mkfifo(ledger.directory / "gpu-GPU-2")
    (ledger.directory / "ticket-²-1").touch()
    with open(ledger.directory / "ticket-²-1") as strange:
        fcntl.flock(strange, fcntl.LOCK_EX)
        assert len(ledger.waiting()) == 1 and ledger.holders()["GPU-2"] is None


def test_shares_of_a_gpu_exclude_its_whole_and_the_other_way_round(ledger):
    with ledger.acquire(1, shares=2) as half, ledger.acquire(1, shares=2) as other:
        assert half.gpus[0].index == 0 and other.gpus[0].index == 1, "the second share goes where nobody is"
        assert {uuid: len(those) for uuid, those in ledger.sharers().items()} == {"GPU-0": 1, "GPU-1": 1, "GPU-2": 0}
        assert set(ledger.holders().values()) == {None}
        with ledger.acquire(1) as whole:
            assert whole.gpus[0].index == 2
            with pytest.raises(LeaseError, match="No 1 GPUs were free"):
                ledger.acquire(1, timeout_s=0.1)
            with ledger.acquire(2, shares=2) as both:
                assert {g.index for g in both.gpus} == {0, 1}
                with pytest.raises(LeaseError, match="No 1 GPUs were free"):
                    ledger.acquire(1, shares=2, timeout_s=0.1)
    assert not any(ledger.sharers().values()) and ledger.waiting() == []
    with ledger.acquire(3) as lease:
        assert len(lease.gpus) == 3


def test_a_crash_frees_a_share(ledger):
    code = HOLD.replace("int(sys.argv[2])", "int(sys.argv[2]), shares=2")
    with ledger.acquire(3, shares=2), start(ledger.directory, code, 3) as holder:
        assert holder.stdout.readline() == "have 0 1 2\n"
        assert all(holder.pid in {h.pid for h in those} for those in ledger.sharers().values())
        with pytest.raises(LeaseError, match="No 1 GPUs were free"):
            ledger.acquire(1, shares=2, timeout_s=0.1)
        holder.kill()
        holder.wait()
        with ledger.acquire(3, shares=2, timeout_s=30):
            pass


def start(directory: Path, code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", code, str(directory), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


HOLD = """
import sys, time
from allranks.ranks.engines.devices import Gpu
from allranks.ranks.engines.leases import Ledger
ledger = Ledger(tuple(Gpu(i, f"GPU-{i}", "Pretend", 1 << 30) for i in range(3)), sys.argv[1])
lease = ledger.acquire(int(sys.argv[2]))
print("have", *[g.index for g in lease.gpus], flush=True)
time.sleep(600)
"""


def test_a_crash_frees_the_gpus_and_the_place_in_the_queue(ledger):
    with start(ledger.directory, HOLD, 3) as holder:
        assert holder.stdout.readline() == "have 0 1 2\n"
        with start(ledger.directory, HOLD, 1) as waiter:
            (waiting,) = until(ledger.waiting)
            assert waiting.pid == waiter.pid and waiting.gpus == 1
            waiter.kill()
            waiter.wait()
        assert ledger.waiting() == []
        holder.kill()
        holder.wait()
    with ledger.acquire(3, timeout_s=30):
        pass


def test_the_queue_is_served_in_order_and_says_the_place(ledger):
    told = []
    first = ledger.acquire(3, slice_s=60)
    with start(ledger.directory, HOLD, 2) as earlier:
        until(ledger.waiting)

        def hear(place, seconds):
            told.append((place, seconds))
            if len(told) == 2:
                first.release()

        with ledger.acquire(1, told=hear, timeout_s=30):
            assert earlier.stdout.readline() == "have 0 1\n"
        earlier.kill()
    assert told[0][0] == 2 and 0 < told[0][1] <= 60


def test_how_long_a_wait_is_follows_from_the_leases_and_the_queue():
    now = time.time()

    def seconds(wanted, *leases):
        return [
            round(wait, -1)
            for wait in waits(wanted, [[(now + end, part) for end, part in one] for one in leases], 1000)
        ]

    one, two, all_three = (1, None), (2, None), (3, None)
    held = [(300, 1.0)], [(600, 1.0)], []
    assert seconds([one], *held) == [0] and seconds([two], *held) == [300] and seconds([all_three], *held) == [600]
    assert seconds([two, one, two], *held) == [300, 600, 1300], (
        "nobody overtakes, and each keeps a GPU for the whole time"
    )
    assert seconds([one], [(-500, 1.0)]) == [60], "over the time: back soon"
    quarter, halves = (1, 4), [(100, 0.25), (200, 0.25), (300, 0.25), (400, 0.25)]
    assert seconds([quarter, quarter, one], halves) == [100, 200, 1200]
    assert seconds([quarter], halves[:3]) == [0] and seconds([one], halves[:3]) == [300]
    assert seconds([(9, None), (0, None)], *held) == [600, 600] and seconds([one]) == [0] and seconds([], *held) == []


@pytest.mark.parametrize("gpus", [1, 2, 5])
def test_who_opens_more_notebooks_gets_no_more_turns(gpus):
    """10,000 leases of six people who always want one more, one of them with nine notebooks."""
    draw, numbers = random.Random(gpus), iter(range(10**6))
    people = dict.fromkeys(range(6), 1) | {5: 9}
    tickets = [(uid, next(numbers), f"{uid}") for uid, notebooks in people.items() for _ in range(notebooks)]
    held, last, busy, got, now = dict.fromkeys(people, 0), {}, [], dict.fromkeys(people, 0), 0.0
    for _ in range(10_000):
        while len(busy) >= gpus:
            now, uid = heapq.heappop(busy)
            held[uid] -= 1
            last[uid] = now
            tickets.append((uid, next(numbers), f"{uid}"))
        uid = int(in_turn(tickets, held, last)[0])
        tickets.remove(next(ticket for ticket in sorted(tickets, key=lambda t: t[1]) if ticket[0] == uid))
        held[uid] += 1
        last[uid] = now
        got[uid] += 1
        heapq.heappush(busy, (now + draw.uniform(1, 20), uid))
    assert all(0.9 * 10_000 / 6 < turns < 1.1 * 10_000 / 6 for turns in got.values()), got


def test_a_person_who_had_a_gpu_waits_behind_one_who_had_none(ledger, tmp_path):
    assert ledger._last_use(os.getuid()) == 0
    with ledger.acquire(1):
        began = ledger._last_use(os.getuid())
        assert began > 0
        until_files_are_newer(tmp_path)
    assert ledger._last_use(os.getuid()) > began
    (ledger.directory / "last-4242").write_text("")  # not that user's: says nothing
    assert ledger._last_use(4242) == 0


def test_mig_devices_of_different_gpus_come_first(tmp_path):
    """NCCL promises nothing for those of one GPU, so a lease has them only if no others are free."""
    parts = tuple(Gpu(i // 2, f"MIG-{i}", "Pretend", 1 << 30, f"GPU-{i // 2}") for i in range(4))
    ledger = Ledger(parts, tmp_path)
    with ledger.acquire(2) as first:
        assert [gpu.uuid for gpu in first.gpus] == ["MIG-0", "MIG-2"]
        with ledger.acquire(1) as second:
            assert [gpu.uuid for gpu in second.gpus] == ["MIG-1"]
    with ledger.acquire(3) as third:
        assert [gpu.uuid for gpu in third.gpus] == ["MIG-0", "MIG-2", "MIG-1"]


def test_a_slice_is_over_only_when_somebody_waits(ledger):
    with ledger.acquire(3, slice_s=0.0) as lease:
        until(lambda: time.time() > lease.until)
        assert not lease.over
        with start(ledger.directory, HOLD, 1) as waiter:
            until(lambda: lease.over)
            waiter.kill()


def test_a_storm_of_processes_and_kills_never_shares_and_never_loses_a_gpu(tmp_path, capsys):
    wanted = int(os.environ.get("ALLRANKS_LEASE_CYCLES", "400"))
    directory, witness, draw = tmp_path / "leases", tmp_path / "witness", random.Random(7)
    for gpu in GPUS:
        (witness / str(gpu.index)).mkdir(parents=True)
    Ledger(GPUS, directory)
    log = open(tmp_path / "out", "w+")
    seeds, kills, running = iter(range(10**6)), 0, []

    def more():
        command = [sys.executable, "-c", GREEDY, str(directory), str(next(seeds)), str(witness)]
        running.append(subprocess.Popen(command, stdout=log))

    def said(word) -> int:
        return (tmp_path / "out").read_text().split().count(word)

    try:
        for _ in range(5):
            more()
        while (cycles := said("cycle")) < wanted:
            goal = cycles + draw.randint(1, 8)  # not after a time: a busy machine would start processes and kill them
            until(lambda goal=goal: said("cycle") >= goal)
            victim = running.pop(draw.randrange(len(running)))
            victim.send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
            victim.wait()
            for left in witness.glob(f"*/{victim.pid}*"):  # another process may get its number
                left.unlink()
            kills += 1
            more()
            assert said("DOUBLE") == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
        log.close()
    assert said("DOUBLE") == 0
    with Ledger(GPUS, directory).acquire(3, timeout_s=30) as lease:
        assert len(lease.gpus) == 3, "a GPU was lost"
    with capsys.disabled():
        print(
            f"\n{cycles} leases of GPUs and halves by 5 processes, {kills} times one killed: no double lease, none lost"
        )


def test_pretend_gpus_come_from_a_file_and_the_command_shows_them(tmp_path):
    path = tmp_path / "inventory.json"
    gpus = [{"uuid": f"GPU-{i}", "name": "Pretend", "memory_bytes": 1 << 30} for i in range(2)]
    path.write_text(json.dumps({"gpus": gpus, "cores": 8, "nccl": "2.30.7"}))
    env = {**os.environ, "ALLRANKS_INVENTORY": str(path), "ALLRANKS_LEASES": str(tmp_path / "leases")}
    command = [sys.executable, "-m", "allranks.cli", "gpus"]
    with Ledger(Inventory.from_file(str(path)).gpus, tmp_path / "leases").acquire(1):
        shown = json.loads(subprocess.run([*command, "--json"], env=env, capture_output=True, text=True).stdout)
        lines = subprocess.run(command, env=env, capture_output=True, text=True).stdout.splitlines()
    assert [bool(g["holder"]) for g in shown["gpus"]] == [True, False] and shown["waiting"] == []
    assert f"(pid {os.getpid()})" in lines[0] and lines[1].endswith("free")
    ledger = Ledger(Inventory.from_file(str(path)).gpus, tmp_path / "leases")
    with ledger.acquire(1, shares=4), ledger.acquire(2, shares=4):
        shown = json.loads(subprocess.run([*command, "--json"], env=env, capture_output=True, text=True).stdout)
        lines = subprocess.run(command, env=env, capture_output=True, text=True).stdout.splitlines()
    assert [(g["holder"], len(g["sharers"])) for g in shown["gpus"]] == [(None, 2), (None, 1)]
    assert "shared by " in lines[0] and lines[0].count("(pid ") == 2 and lines[1].count("(pid ") == 1
    old = {"driver": "550.54.15", "driver_cuda": "12.4", "torch_cuda": "13.2"}
    path.write_text(json.dumps({"gpus": gpus, "cores": 8, "nccl": "2.30.7"} | old))
    lines = subprocess.run(command, env=env, capture_output=True, text=True).stdout.splitlines()
    assert "needs driver 580 or newer" in lines[0] and lines[1].startswith("Worlds run on the CPU") and len(lines) == 2
    path.write_text("{}")
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "can't be used" in done.stderr and "Traceback" not in done.stderr
    with pytest.raises(DeviceError, match="can't be used"):
        Inventory.from_file(str(tmp_path / "none.json"))


def test_a_lease_that_can_not_be_written_is_one_sentence_and_holds_nothing(tmp_path, monkeypatch):
    pwrite = os.pwrite

    def full(descriptor, text, offset):
        if b"until" in text:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, text, offset)

    ledger = Ledger(GPUS, tmp_path)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(LeaseError, match="No space left"):
        ledger.acquire(1)
    monkeypatch.undo()
    ledger.acquire(3, timeout_s=30).release()


def test_a_lease_is_not_held_by_a_process_that_was_forked_meanwhile(tmp_path):
    ledger = Ledger(GPUS, tmp_path)
    lease = ledger.acquire(3)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        lease.forget()
        os.write(write, b"x")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(read, 1)
        lease.release()
        ledger.acquire(3, timeout_s=30).release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
