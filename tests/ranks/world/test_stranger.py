"""Another account that takes a rank's place in gloo's mesh: it is found, and the ranks are started anew. Needs root, to become it."""

import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from allranks import RanksError, World, WorldError
from allranks.ranks.engines import own_network, strangers
from allranks.ranks.world.cluster import Engines, NotMetError

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user"),
]


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """As where the kernel gives ranks no network of their own: then other accounts reach gloo's ports, and must be found."""
    monkeypatch.setenv(own_network.WANTED_ENV, "0")


# connects to each port of loopback that it is told, and says gloo's first word (the number of the pair)
INTRUDER = """
import socket, struct, sys
held = []
print("ready", flush=True)
for line in sys.stdin:
    for number in range(4):
        s = socket.socket()
        s.settimeout(1)
        try:
            s.connect(("127.0.0.1", int(line)))
            s.sendall(struct.pack("=q", number))
            held.append(s)
        except OSError:
            pass
    print(line, end="", flush=True)
"""


def listening() -> set[int]:
    """The ports that this process and its children listen on: worlds of other tests, which run beside it, stay in peace."""
    pids = [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]
    ours = frozenset().union(*map(strangers.sockets, pids))
    lines = [line for path in strangers._TABLES for line in Path(path).read_text().splitlines()[1:]]
    return {
        int(words[1].rpartition(":")[2], 16)
        for words in map(str.split, lines)
        if words[3] == "0A" and int(words[9]) in ours
    }


class Intruder:
    """A process of the user nobody that runs INTRUDER on every port that this test opens from now on."""

    def __init__(self) -> None:
        nobody = pwd.getpwnam("nobody")
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-c", INTRUDER],
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        self.met, self.visited, self._over = listening(), set(), threading.Event()
        assert self.process.stdout.readline() == "ready\n"
        self._threads = [threading.Thread(target=work) for work in (self._tell, self._hear)]
        for thread in self._threads:
            thread.start()

    def _tell(self) -> None:
        while not self._over.is_set():
            for port in listening() - self.met:
                self.met.add(port)
                with suppress(OSError):  # it has been killed
                    self.process.stdin.write(f"{port}\n")
                    self.process.stdin.flush()

    def _hear(self) -> None:
        for line in self.process.stdout:
            self.visited.add(int(line))

    def end(self) -> None:
        self._over.set()
        self.process.kill()
        for thread in self._threads:
            thread.join()
        self.process.wait()


@contextmanager
def intruder():
    one = Intruder()
    try:
        yield one
    finally:
        one.end()


def test_the_accounts_at_both_ends_are_known():
    listener = socket.create_server(("127.0.0.1", 0))
    nobody = pwd.getpwnam("nobody").pw_uid
    with subprocess.Popen(
        [
            "/usr/bin/python3",
            "-c",
            f"import socket, time; s = socket.create_connection(('127.0.0.1', {listener.getsockname()[1]})); time.sleep(60)",
        ],
        user=nobody,
    ) as other:
        mine, _ = listener.accept()
        assert strangers.strangers([os.getpid()]) == {nobody}
        assert strangers.strangers([os.getpid()], strangers.sockets(os.getpid())) == frozenset()
        with pytest.raises(strangers.StrangerError, match="The account nobody of this machine had connected to a rank"):
            strangers.refuse(frozenset())
        other.kill()
        mine.close()
    own = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    assert strangers.strangers([os.getpid()]) == frozenset()
    for one in (own, accepted, listener):
        one.close()


def test_ranks_whose_place_was_taken_are_started_anew(monkeypatch):
    join, begun = Engines._join, []

    def late(self, deadline):
        """The last rank stands still until the intruder has been at the ports of the others."""
        begun.append(self)
        if len(begun) > 1:
            other.end()
            return join(self, deadline)
        before, pid = listening(), self._processes()[-1]
        os.kill(pid, signal.SIGSTOP)

        def go_on():
            until = time.monotonic() + 60
            while len(other.visited - before) < 2 and time.monotonic() < until:
                time.sleep(0.01)
            os.kill(pid, signal.SIGCONT)

        waiting = threading.Thread(target=go_on)
        waiting.start()
        try:
            return join(self, deadline)
        finally:
            waiting.join()

    monkeypatch.setattr(Engines, "_join", late)
    with intruder() as other, World(ranks=3) as world:
        assert world.run(dist.get_world_size) == [3, 3, 3]
        assert len(begun) == 2
        assert "The account nobody" in world._ready and "started anew" in world._ready


def test_who_takes_places_for_ever_is_named(monkeypatch):
    def refuse(known, pids=None):
        raise strangers.StrangerError("The account nobody had connected to a rank.")

    monkeypatch.setattr(strangers, "refuse", refuse)
    with pytest.raises(WorldError, match=r"The account nobody .* 3 times, so the ranks were not started. Tell who"):
        World(ranks=2)


@pytest.mark.parametrize(("times", "words"), [(1, "started anew"), (9, "could not join the gloo group")])
def test_a_connection_that_breaks_while_ranks_meet_is_made_anew(monkeypatch, times, words):
    """Who knocks at a port and goes away can't be named any more; a start that it broke must not be the learner's."""
    join, left = Engines._join, list(range(times))

    def breaking(self, deadline):
        if left:
            left.pop()
            raise NotMetError("Rank 1 could not join the gloo group: Read error: Connection reset by peer.")
        return join(self, deadline)

    monkeypatch.setattr(Engines, "_join", breaking)
    if times > 3:
        with pytest.raises(WorldError, match=words):
            World(ranks=2)
    else:
        with World(ranks=2) as world:
            assert world.run(dist.get_world_size) == [2, 2]
            assert words in world._ready


def test_a_later_group_is_looked_at_too():
    def grouped(meets):
        if meets and dist.get_rank() == 1:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                kept.append(listener.accept())
        return dist.get_world_size(dist.new_group([0, 1]))

    kept: list = []
    with World(ranks=2) as world:
        assert world.run(grouped, False) == [2, 2]
        with intruder(), pytest.raises(RanksError, match="The account nobody of this machine"):
            world.run(grouped, True)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_nobody_is_in_a_world_that_has_started():
    """The intruder wins some of these races, and none of the worlds. (gloo's ports stay open: it may knock there later.)"""

    def added():
        total = torch.full((1,), float(dist.get_rank()))
        dist.all_reduce(total)
        return total.item()

    anew = 0
    with intruder():
        for _ in range(10):
            began = time.monotonic()
            try:
                with World(ranks=4) as world:
                    assert world.run(added) == [6.0] * 4  # who sat in a rank's place could not add
                    anew += bool(world._engines.notes)
            except WorldError as error:
                assert "The account nobody" in str(error)
                anew += 1
            assert time.monotonic() - began < 80
    assert anew


# connects as another account to the port that it is told, and listens on one of its own
OTHER = """
import os, socket, sys
"x".encode("idna")  # read now: that account may not enter the interpreter's folder
os.setgid(65534), os.setuid(65534)
here = socket.create_server(("127.0.0.1", 0))
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print(here.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::"])
@pytest.mark.parametrize("table", [False, True])
def test_whose_a_socket_is_costs_no_more_however_many_others_have(monkeypatch, host, table):
    """The table grows with everybody's connections: who opened 9000 made each answer half a second later, in others' servers."""
    if table:
        monkeypatch.setattr(strangers, "_kernel_answers", lambda: False)
    elif strangers._kernel_answers():
        monkeypatch.setattr(strangers, "connections", lambda *_: pytest.fail("the whole table was read"))
    else:
        pytest.skip("this kernel does not say whose one socket is")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::") as here:
        at = ["127.0.0.1" if host == "::" else host, str(here.getsockname()[1])]
        with subprocess.Popen(
            [sys.executable, "-c", OTHER, *at], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            port = int(other.stdout.readline())
            near, _ = here.accept()
            with near:
                assert strangers.other_end(near) == strangers.listener(port) == 65534
                other.stdin.close()
                other.wait()
                assert strangers.other_end(near) is strangers.listener(port) is None
