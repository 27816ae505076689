"""Ranks on gloo in a network of their own: no other account, not even root outside, reaches their ports. Needs root, to try it."""

import ctypes
import json
import os
import pwd
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from allranks import World
from allranks.ranks.engines import own_network, strangers

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user"),
]
NOBODY = pwd.getpwnam("nobody")
NO_SPACE = "this machine gives no network namespace"


def listening() -> list[int]:
    """The ports on which this process listens, in the network of the thread that asks."""
    ours, found = strangers.sockets(os.getpid()), []
    for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and int(words[9]) in ours:
            found.append(int(words[1].rpartition(":")[2], 16))
    return found


def answers(port: int) -> bool:
    """Whether somebody listens on a port of this machine's loopback."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def grouped() -> tuple[bool, list[int], list[int], float]:
    """On a rank: whether it is inside, the ports that it opened inside and outside, and a sum over a group made now."""
    from torch.distributed.device_mesh import init_device_mesh

    before = listening()
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group([0, 1]))
    dist.all_reduce(total, group=init_device_mesh("cpu", (2,)).get_group())
    outside = [port for port in listening() if port not in before]
    return own_network._inside, own_network.inside(listening), outside, total.item()


def test_ports_of_ranks_are_where_nobody_else_is():
    with World(ranks=2) as world:
        ranks = world.run(grouped)
        if not ranks[0][0]:
            pytest.skip(NO_SPACE)
        for entered, inside, outside, total in ranks:
            assert entered and inside and outside == [] and total == 4.0
            assert not any(answers(port) for port in inside), "root reaches it from outside"
        # the way in leads through files that only this user may open
        pids = world.pids
        said = in_child(lambda: [entering(pid) for pid in pids])
        assert said == ["PermissionError"] * 2
        assert strangers.strangers(world.pids) == frozenset()


def entering(pid: int) -> str:
    """What an attempt to open the networks of a process and its threads ends in."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.open(f"/proc/{pid}/task/{thread}/ns/net", os.O_RDONLY)
    except OSError as error:
        return type(error).__name__
    return "reached"


def in_child(function):
    """What a function returns in a process of the user nobody, as JSON can say it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(*[NOBODY.pw_gid] * 3)
            os.setresuid(*[NOBODY.pw_uid] * 3)
            ctypes.CDLL(None).prctl(
                4, 1
            )  # as a process of nobody's that was not root before: its files in /proc are its own
            os.write(write, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as said:
        text = said.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None


def unprivileged() -> list[object] | None:
    """As an ordinary user's fork server and two ranks: the second reaches the first's port inside, and outside nobody does."""
    own_network._spaces, own_network._inside = None, False
    os.environ[own_network.WANTED_ENV] = "1"
    own_network.make()
    if own_network._spaces is None:
        return None
    read, write = os.pipe()
    if os.fork() == 0:
        own_network.enter()
        first = own_network.inside(lambda: socket.create_server(("127.0.0.1", 0)))
        os.write(write, str(first.getsockname()[1]).encode())
        first.accept()
        os._exit(0)
    port = int(os.read(read, 16))
    said, saying = os.pipe()
    if os.fork() == 0:
        own_network.enter()
        found = [own_network._inside, answers(port), own_network.inside(lambda: answers(port)), os.getuid()]
        os.write(saying, json.dumps(found).encode())
        os._exit(0)
    return [*json.loads(os.read(said, 1000)), answers(port)]


def test_an_ordinary_user_has_one_too():
    said = in_child(unprivileged)
    if said is None:
        pytest.skip(NO_SPACE)
    assert said == [True, False, True, NOBODY.pw_uid, False]


def test_without_it_ranks_meet_as_before(monkeypatch):
    monkeypatch.setenv(own_network.WANTED_ENV, "0")
    with World(ranks=2) as world:
        ranks = world.run(grouped)
        assert [(entered, total) for entered, _, _, total in ranks] == [(False, 4.0)] * 2
        assert all(outside for _, _, outside, _ in ranks)


def test_what_fails_inside_is_raised_on_the_rank():
    def unequal():
        """Each rank names other members, which torch refuses where it makes the group."""
        try:
            dist.new_group([5, 6])
        except ValueError as error:
            return str(error)

    with World(ranks=2) as world:
        assert all("larger than the world size" in said or "rank" in said for said in world.run(unequal))
        with pytest.raises(ZeroDivisionError):
            own_network.inside(lambda: 1 // 0)
