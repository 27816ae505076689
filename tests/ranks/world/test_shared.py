"""Two notebooks, one world: the second joins by the name, they take turns, and neither outlives the owner."""

import errno
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
from allranks import World
from allranks.ranks.engines.devices import DeviceError
from allranks.ranks.engines.forkserver.client import ForkServer
from allranks.ranks.world import WorldError, current
from allranks.ranks.world import idle as idleness
from allranks.ranks.world.shared import Borrowed, Shared
from waiting import until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux", reason="worlds are shared through Linux locks"),
]

PRELUDE = """
import os, time
import torch, torch.distributed as dist
from allranks import World
from allranks.ranks.world import RanksStuck, WorldError

def add(value):
    tensor = torch.full((2,), float(value + dist.get_rank()))
    dist.all_reduce(tensor)
    return tensor[0].item()
"""


class Other:
    """Another notebook: a Python process that runs code piece by piece and says what each piece printed."""

    LOOP = """
import sys, traceback
names = {}
for line in sys.stdin:
    try:
        exec(compile(eval(line), "cell", "exec"), names)
    except BaseException:
        print(traceback.format_exc())
    print("<done>", flush=True)
"""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", self.LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.does(PRELUDE)

    def begin(self, code: str) -> None:
        self.process.stdin.write(repr(textwrap.dedent(code)) + "\n")
        self.process.stdin.flush()

    def end(self) -> str:
        lines = []
        while (line := self.process.stdout.readline()) != "<done>\n":
            assert line, "the other notebook has ended"
            lines.append(line)
        return "".join(lines).strip()

    def __call__(self, code: str) -> str:
        self.begin(code)
        return self.end()

    def does(self, code: str) -> None:
        said = self(code)
        assert not said, said

    def close(self):
        self.process.stdin.close()
        self.process.wait(90)
        self.process.stdout.close()


@pytest.fixture
def other(no_ghosts):
    before, ForkServer._current = ForkServer._current, None
    notebook = Other()
    yield notebook
    notebook.close()
    if ForkServer._current is not None:
        ForkServer._current.close()
    ForkServer._current = before


def add(value):
    import torch
    import torch.distributed as dist

    tensor = torch.full((2,), float(value + dist.get_rank()))
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_the_second_joins_uses_and_leaves_the_same_ranks(other):
    with World(ranks=2, name="team") as world:
        assert other("w = World(name='team'); print(w.pids, w.run(add, 1))") == f"{world.pids} [3.0, 3.0]"
        assert other("print(World(ranks=2, name='team') is w)") == "True"
        world.cell("kept = 7 + rank")
        assert other("print(w['kept'])") == "[7, 8]"
        assert "has 2 ranks, not 3" in other("w.stop(); World(ranks=3, name='team')")
        assert world.run(add, 0) == [1.0, 1.0], "the borrower's stop ended the owner's ranks"
        other.does("w = World(name='team')")
    said = other("w.run(add, 1)")
    assert "has ended, and its ranks with it" in said


def test_a_world_that_can_not_be_placed_leaves_its_name_free(other):
    with pytest.raises(DeviceError, match="at most 64"):
        World(ranks=65, name="team")
    assert other("w = World(ranks=2, name='team'); print(w.run(add, 1)); w.stop()") == "[3.0, 3.0]"


def test_calls_of_two_notebooks_never_mix(other):
    with World(ranks=2, name="team") as world:
        other.does("w = World(name='team')")
        other.begin("print({w.run(add, 100 * i)[0] - 200 * i for i in range(40)})")
        assert {world.run(add, 1000 * i)[1] - 2000 * i for i in range(40)} == {1.0}
        assert other.end() == "{1.0}"


def test_a_call_waits_for_its_turn_no_longer_than_its_deadline(other, tmp_path):
    inside, go_on = tmp_path / "inside", tmp_path / "go_on"
    with World(ranks=2, name="team") as world:
        other.does("w = World(name='team')")
        other.begin(
            f"""
            def stay():
                if dist.get_rank() == 0:
                    open({str(inside)!r}, "w").close()
                while not os.path.exists({str(go_on)!r}):
                    time.sleep(0.02)
            w.run(stay)
            print("stayed")
            """
        )
        until(inside.exists)
        with pytest.raises(WorldError, match="Another notebook has used the world 'team' for"):
            world.run(add, 0, deadline=0.2)
        go_on.touch()
        assert other.end() == "stayed"
        assert world.run(add, 0) == [1.0, 1.0]


def test_a_borrower_that_hangs_the_ranks_gets_fresh_ones_and_so_does_the_owner(other):
    with World(ranks=2, name="team") as world:
        before = world.pids
        other.does("w = World(name='team')")
        said = other(
            """
            def hang():
                if dist.get_rank() == 0:
                    dist.recv(torch.ones(1), 1)
            try:
                w.run(hang, deadline=5)
            except RanksStuck as error:
                print("rank 0: in dist.recv from rank 1" in str(error), w.run(add, 2))
            """
        )
        assert said == "True [5.0, 5.0]"
        assert world.run(add, 0) == [1.0, 1.0]
        assert set(before).isdisjoint(world.pids)
        world.reset()
        assert other("print(w.run(add, 3))") == "[7.0, 7.0]"
        assert other("w.reset(); print(w.run(add, 4))") == "[9.0, 9.0]"
        assert world.run(add, 0) == [1.0, 1.0]


def test_a_reset_makes_new_ranks_once_whoever_sees_the_old_ones_end(monkeypatch):
    with World(ranks=2, name="team") as world:
        renew, renewed, seen = world._engines.renew, [], []
        dead, ours = world._engines.dead, threading.current_thread()

        def looked():
            found = dead()
            if threading.current_thread() is not ours:
                seen.append(bool(found))
            return found

        def slowly():
            renewed.append(threading.current_thread().name)
            for pid in world.pids:
                os.kill(pid, 9)
            until(lambda: sum(seen) >= 3, says="the keeper has not looked three times at dead ranks")
            renew()

        monkeypatch.setattr(world._engines, "dead", looked)
        monkeypatch.setattr(world._engines, "renew", slowly)
        world.reset()
        assert world.run(add, 0) == [1.0, 1.0]
    assert renewed == [threading.current_thread().name]


def keeper() -> threading.Thread:
    """The thread of this notebook's world that starts new ranks."""
    [found] = [thread for thread in threading.enumerate() if thread.name == "allranks-keeper"]
    return found


def test_a_call_while_the_keeper_makes_new_ranks_waits_for_them(monkeypatch):
    """Borrowers see what is published; a call of the owner was then told of another cell, which nobody ran."""
    with World(ranks=2, name="team") as world:
        publish, published = world._shared.publish, threading.Event()

        def slowly(engines):
            publish(engines)
            published.set()
            time.sleep(1)

        monkeypatch.setattr(world._shared, "publish", slowly)
        for pid in world.pids:
            os.kill(pid, 9)
        assert published.wait(60)
        assert world.run(add, 0) == [1.0, 1.0]


def test_a_world_that_is_stopped_while_the_keeper_makes_new_ranks_has_none_afterwards(no_ghosts, monkeypatch):
    world = World(ranks=2, name="team")
    start, stopping, watching = world._engines.start, threading.Thread(target=world.stop), keeper()

    def started(progress):
        stopping.start()
        stopping.join(1)  # it ends nothing, for there is nothing: or it waits for these
        start(progress)

    monkeypatch.setattr(world._engines, "start", started)
    notice = world._shared.notice
    for pid in world.pids:
        os.kill(pid, 9)
    watching.join(60)
    stopping.join(60)
    assert not world.running and not notice.exists()


def test_a_borrower_that_comes_while_the_ranks_are_made_anew_waits_for_where_they_are(monkeypatch):
    with World(ranks=2, name="team") as world:
        borrower = Borrowed(world._engines.placement, Shared("team"))
        shared = borrower.shared
        stale = [{"directory": "/nowhere"}] * 3
        monkeypatch.setattr(shared, "has_owner", lambda: True)
        monkeypatch.setattr(shared, "read", lambda: stale.pop() if stale else json.loads(shared.notice.read_text()))
        borrower.start(lambda _: None)
        assert borrower.pids == world.pids and not stale
        borrower.stop()
        assert world.run(add, 0) == [1.0, 1.0]


def test_when_the_owner_is_killed_the_ranks_go_and_the_name_is_free(other):
    other.does("w = World(ranks=2, name='team')")
    pids = [int(p) for p in other("print(*w.pids)").split()]
    world = World(name="team")
    assert world.run(add, 1) == [3.0, 3.0]
    os.kill(other.process.pid, 9)
    other.process.wait()
    until(lambda: not any(map(psutil.pid_exists, pids)))
    with pytest.raises(WorldError, match="has ended, and its ranks with it"):
        world.run(add, 1)
    with World(ranks=2, name="team") as again:
        assert again.run(add, 1) == [3.0, 3.0]
    other.__init__()


@pytest.mark.parametrize("name", ["", "a b", "../up", 7, "x" * 40])
def test_a_name_that_can_not_be_is_refused(name):
    with pytest.raises(WorldError, match="1 to 32 letters"):
        World(ranks=2, name=name)


def test_the_use_of_another_notebook_is_use(other, monkeypatch, tmp_path):
    """By a clock of the test: the other notebook is as slow as the machine is."""
    inside, go_on = tmp_path / "inside", tmp_path / "go_on"
    now = [0.0]
    monkeypatch.setattr(idleness, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(idleness, "LOOK_S", 0.02)
    with World(ranks=2, name="team", idle_minutes=10) as world:

        def seen() -> bool:
            return not world.running or world._idle._used == now[0]

        other.does("w = World(name='team')")
        for _ in range(3):
            now[0] += 500
            other.does("w.run(add, 1)")
            until(seen, says="the owner has not seen that the other notebook used the ranks")
        other.begin(
            f"""
            def stay():
                if dist.get_rank() == 0:
                    open({str(inside)!r}, "w").close()
                while not os.path.exists({str(go_on)!r}):
                    time.sleep(0.02)
            w.run(stay)
            """
        )
        until(inside.exists)
        for _ in range(2):
            now[0] += 700
            until(seen, says="the owner has not put the end off")
        assert world.running, "the owner's idle limit ended ranks that another notebook uses"
        go_on.touch()
        assert other.end() == ""


def test_a_notice_that_can_not_be_written_leaves_no_ranks(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    started = []
    monkeypatch.setattr(Shared, "publish", lambda _, engines: started.extend(engines.pids) or full())
    with pytest.raises(OSError, match="No space left"):
        World(ranks=2, name="full")
    with pytest.raises(WorldError, match="did not start"):
        current().run(os.getpid)
    assert len(started) == 2
    assert not any(psutil.pid_exists(pid) for pid in started)
