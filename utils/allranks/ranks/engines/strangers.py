"""Who is at the other end of a connection on this machine: gloo and NCCL's rendezvous know no key, so another account could take a
rank's place. Linux's table of TCP connections tells the account of *both* ends to everybody.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from allranks.base.errors import CourseError, capital, listed

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")  # of this process's network namespace
_ESTABLISHED = "01"
_V4_IN_V6 = "0000000000000000FFFF0000"  # an IPv4 address in the table of IPv6, as the table writes it


class StrangerError(CourseError):
    """A process of another account is connected to a rank; the message says whose."""


@dataclass(frozen=True)
class Connection:
    """One end of an established TCP connection: addresses as the kernel writes them, its account and its socket."""

    local: str
    remote: str
    uid: int
    inode: int


def strangers(pids: Iterable[int], known: frozenset[int] = frozenset()) -> frozenset[int]:
    """The accounts (uids) other than our own that are connected to one of these processes from this machine.

    Sockets whose inode is in `known` are not looked at. Of other machines' ends the kernel knows no account. Empty where
    the tables can't be read (not Linux).

    Example:
        >>> from allranks.ranks.engines.strangers import strangers
        >>> strangers([os.getpid()])
        frozenset()
    """
    ours = frozenset().union(*map(sockets, pids)) - known
    table = connections()
    if not any(one.inode in ours for one in table):
        return frozenset()
    ends = {(one.local, one.remote): one for one in table}
    found = set()
    for one in table:
        other = ends.get((one.remote, one.local))
        # an end without a socket has not been accepted yet, and belongs to nobody
        if one.inode in ours and other is not None and other.inode and other.uid != os.getuid():
            found.add(other.uid)
    return frozenset(found)


def other_end(connection: socket.socket) -> int | None:
    """The account (uid) of the process at the other end of a TCP connection; None if it is on another machine, or has closed it.

    Example:
        >>> here, there = socket.create_server(("127.0.0.1", 0)), socket.socket()
        >>> there.connect(here.getsockname())
        >>> other_end(here.accept()[0]) == os.getuid()
        True
    """
    near, far = (_written(*end[:2]) for end in (connection.getsockname(), connection.getpeername()))
    found = [one.uid for one in connections() if (one.local, one.remote) == (far, near) and one.inode]
    return found[0] if found else None


def _written(address: str, port: int) -> str:
    """An address as the kernel's tables write it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address.partition("%")[0])
    words = [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4)]
    return _plain("".join(f"{word:08X}" for word in words) + f":{port:04X}")


def sockets(pid: int) -> frozenset[int]:
    """The inodes of the sockets that a process has open; empty if it has gone, or is another account's."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                kind, _, inode = os.readlink(f"/proc/{pid}/fd/{name}").partition(":")
                if kind == "socket":
                    found.add(int(inode.strip("[]")))
    return frozenset(found)


def connections() -> list[Connection]:
    """Every end of an established connection on this machine, of all accounts."""
    return [one for path in _TABLES for one in _read(path)]


def _read(path: str) -> Iterator[Connection]:
    with contextlib.suppress(OSError), open(path, encoding="ascii") as table:
        next(table)  # the headings
        for line in table:
            words = line.split()
            if words[3] == _ESTABLISHED:
                yield Connection(_plain(words[1]), _plain(words[2]), int(words[7]), int(words[9]))


def _plain(address: str) -> str:
    """The address with its port; one of IPv4 in the table of IPv6 as in the other table."""
    return address.removeprefix(_V4_IN_V6)


def in_words(uids: Iterable[int]) -> str:
    """The accounts by name: "the account ada", "the accounts ada and 1003"."""
    import pwd

    names = []
    for uid in sorted(uids):
        try:
            names.append(pwd.getpwuid(uid).pw_name)
        except KeyError:
            names.append(str(uid))
    return f"the account{'s' if len(names) > 1 else ''} {listed(names)}"


def watch_groups(known: frozenset[int]) -> None:
    """Makes this rank look at its new connections after each group that it makes from now on. Runs on a rank.

    Then `dist.new_group` raises StrangerError if another account has taken a rank's place.
    """
    import torch.distributed.distributed_c10d as c10d

    make: Any = c10d._new_process_group_helper
    if getattr(make, "looks", None) is not None:  # this engine has joined before
        make = make.looks

    def helper(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        refuse(known)
        return made

    helper.looks = make  # type: ignore[attr-defined]
    c10d._new_process_group_helper = helper


def refuse(known: frozenset[int], pids: Callable[[], Iterable[int]] = lambda: [os.getpid()]) -> None:
    """Raises StrangerError if another account is connected to one of these processes (this one)."""
    if found := strangers(pids(), known):
        raise StrangerError(
            f"{capital(in_words(found))} of this machine had connected to a rank, in another rank's place."
        )
