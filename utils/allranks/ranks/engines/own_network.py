"""A network of their own for the ranks of one user on gloo, where the kernel gives one: nobody else reaches their ports.

gloo knows no key, and whoever may connect to loopback may speak to it. A network namespace has a loopback of its own. The fork
server makes one; a rank stays outside of it, so that its controller, downloads and the user's own sockets are as always. Only a
thread that makes groups goes in: a socket belongs to the namespace of the thread that made it.
Without root's rights this takes a user namespace, which a process can enter only while it has one thread: after its fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

WANTED_ENV = "ALLRANKS_OWN_NETWORK"  # "1": a rank may enter; an administrator's or user's "0" keeps the ranks outside
LOOPBACK = "lo"
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1

_spaces: tuple[int | None, int] | None = (
    None  # descriptors of the user and the network namespace, in the fork server and its forks
)
_inside = False  # whether this process may send threads into the network


def make() -> None:
    """Makes the namespaces, for this process's forks; does nothing where they can't be had. For a process with one thread."""
    global _spaces
    if sys.platform != "linux" or os.environ.get(WANTED_ENV) == "0" or not hasattr(ctypes.CDLL(None), "setns"):
        return
    said, saying = os.pipe()
    asked, asking = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _become_first()
            os.write(saying, b"x")
            os.close(asking)
            os.read(asked, 1)  # until the parent has opened the namespaces, or has ended
        finally:
            os._exit(0)
    os.close(saying)
    os.close(asked)
    with contextlib.suppress(OSError):
        if os.read(said, 1):
            user = None if os.geteuid() == 0 else os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            _spaces = user, os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    os.close(said)
    os.close(asking)
    os.waitpid(pid, 0)


def _become_first() -> None:
    """Moves this process into a new network whose loopback is up. Raises OSError where that is not allowed."""
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _NEW_NET if uid == 0 else _NEW_USER | _NEW_NET)
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", LOOPBACK.encode(), _IFF_UP))


def enter() -> None:
    """Lets this process, a fork that has one thread still, send threads into the network, if it is wanted and there is one."""
    global _inside
    if _spaces is None or os.environ.get(WANTED_ENV) != "1":
        return
    user, _ = _spaces
    with contextlib.suppress(OSError):
        if user is not None:
            _call("setns", user, _NEW_USER)
        _inside = True


def keep_groups() -> bool:
    """Makes the groups of this rank from now on inside the network; returns whether they are.

    All of torch's ways to make one end in the same function. Outside they stay if gloo shall use another interface than loopback.
    """
    if not _inside or os.environ.get("GLOO_SOCKET_IFNAME") != LOOPBACK:
        return False
    import torch.distributed.distributed_c10d as c10d

    make: Any = c10d._new_process_group_helper
    if not getattr(make, "kept", False) and not getattr(getattr(make, "looks", None), "kept", False):

        def helper(*arguments: Any, **options: Any) -> Any:
            return inside(lambda: make(*arguments, **options))

        helper.kept = True  # type: ignore[attr-defined]
        c10d._new_process_group_helper = helper
    return True


def inside(function: Callable[[], Any]) -> Any:
    """What `function` returns in a thread that is in the network; raises what it raises."""
    if _spaces is None:
        return function()
    _, network = _spaces
    outcome: list[Any] = []

    def work() -> None:
        try:
            _call("setns", network, _NEW_NET)
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work, name="allranks-group", daemon=True)
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
