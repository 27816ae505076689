"""Who is at the other end of a connection on this machine: gloo and NCCL's rendezvous know no key, so another account could take a
rank's place. Linux's table of TCP connections tells the account of *both* ends to everybody.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from allranks.base.errors import CourseError, capital, listed

_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")  # of this process's network namespace
_ESTABLISHED, _LISTENS = "01", "0A"
_V4_IN_V6 = "0000000000000000FFFF0000"  # an IPv4 address in the table of IPv6, as the table writes it
# linux/netlink.h, sock_diag.h and inet_diag.h
_SOCK_DIAG, _ERROR, _REQUEST = 20, 2, 1
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, b"\xff" * 8


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
    near, far = connection.getsockname()[:2], connection.getpeername()[:2]
    try:
        return _owner(far, near)
    except OSError:  # no such answers here: the whole table, which is slow where there are many connections
        mine, others = _written(*near), _written(*far)
        found = [one.uid for one in connections() if (one.local, one.remote) == (others, mine) and one.inode]
        return found[0] if found else None


def listener(port: int) -> int | None:
    """The account (uid) whose process listens on a TCP port of this machine's loopback; None if nobody does.

    Example:
        >>> with socket.create_server(("127.0.0.1", 0)) as here:
        ...     listener(here.getsockname()[1]) == os.getuid()
        True
    """
    try:
        return _owner(("127.0.0.1", port), ("0.0.0.0", 0))
    except OSError:
        found = [one.uid for one in connections(_LISTENS) if one.local.endswith(f":{port:04X}")]
        return found[0] if found else None


def _owner(near: tuple[str, int], far: tuple[str, int]) -> int | None:
    """Whose the socket with these two ends is; None if nobody has it open. Asks for this one only, however many there are.

    Raises OSError if the kernel does not answer such questions.
    """
    if not _kernel_answers():
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    return _ask(near, far)


@functools.cache
def _kernel_answers() -> bool:
    """Whether the kernel knows a socket that is there: without its module it says of each that there is none."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 0)) as here:
        return _ask(here.getsockname(), ("0.0.0.0", 0)) is not None
    return False


def _ask(near: tuple[str, int], far: tuple[str, int]) -> int | None:
    (here, there), family = [_bytes(address.partition("%")[0]) for address, _ in (near, far)], socket.AF_INET6
    if len(here) == len(there) == 4:
        family = socket.AF_INET
    ends = struct.pack("!HH16s16s", near[1], far[1], here, there) + bytes(4) + _NO_COOKIE
    asked = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, _ANY_STATE) + ends
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:  # NETLINK_SOCK_DIAG
        kernel.settimeout(1)
        kernel.send(struct.pack("=IHHII", 16 + len(asked), _SOCK_DIAG, _REQUEST, 1, 0) + asked)
        told = kernel.recv(8192)
    kind = struct.unpack_from("=IH", told)[1]
    if kind == _ERROR:
        number = -struct.unpack_from("=i", told, 16)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, os.strerror(number))
    uid, inode = struct.unpack_from("=II", told, 16 + 4 + 48 + 12)
    return uid if inode else None  # an end without a socket has not been accepted yet, or is closed


def _bytes(address: str) -> bytes:
    """An address for the kernel; one of IPv4 in IPv6's form as IPv4."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return packed[12:] if packed.startswith(bytes(10) + b"\xff\xff") else packed


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


def connections(state: str = _ESTABLISHED) -> list[Connection]:
    """Every end of an established connection on this machine, or socket in another state, of all accounts."""
    return [one for path in _TABLES for one in _read(path, state)]


def _read(path: str, state: str) -> Iterator[Connection]:
    with contextlib.suppress(OSError), open(path, encoding="ascii") as table:
        next(table)  # the headings
        for line in table:
            words = line.split()
            if words[3] == state:
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
