"""Who is at the other end of a Unix socket, by the kernel's word, and how a fork of root's becomes a process of theirs."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import socket
import struct
from pathlib import Path

from allranks.base.errors import CourseError
from allranks.ranks.engines.credentials import credentials_of
from allranks.ranks.engines.forkserver.process import leave_keyring

_SO_PEERGROUPS, _SO_PEERPIDFD = 59, 77
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_GET_SECUREBITS = 4, 38, 24, 27
_CAPABILITY_VERSION = 0x20080522
# what `adopt` needs, by the numbers of linux/capability.h: to write control groups' files and scores, to end forks, to take the
# account, bounds, mounts, limits and priority of another process, and to look at it
_NEEDED = (1, 5, 6, 7, 8, 18, 19, 21, 23, 24)
_CLONE_NEWNS = 0x20000
_NS_GET_USERNS = 0xB701
_MOST_GROUPS = 256  # Python's getsockopt takes 1024 bytes
# a process that is confined in one of these must not get a fork that is outside of it
_SAME = ("ns/user", "ns/pid", "ns/net", "ns/ipc", "ns/uts", "attr/current")
_LIMITS = {
    "Max cpu time": resource.RLIMIT_CPU,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max data size": resource.RLIMIT_DATA,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max address space": resource.RLIMIT_AS,
    "Max pending signals": resource.RLIMIT_SIGPENDING,
    "Max msgqueue size": resource.RLIMIT_MSGQUEUE,
    "Max nice priority": resource.RLIMIT_NICE,
    "Max realtime priority": resource.RLIMIT_RTPRIO,
    "Max realtime timeout": resource.RLIMIT_RTTIME,
}
_CGROUPS = Path("/sys/fs/cgroup")
_READINGS = 20


class PeerError(CourseError):
    """The process at the other end can't have a fork; the message says why."""


class Peer:
    """The process that connected: its account from the socket, the rest from /proc while it lives."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid, self.uid, self.gid = credentials_of(connection)
        groups = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST_GROUPS)
        self.groups = list(struct.unpack(f"{len(groups) // 4}I", groups))
        try:
            pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
        except OSError as error:
            # never by its number instead, which another process of the account may have by now
            old = error.errno == errno.ENOPROTOOPT
            raise PeerError("this needs Linux 6.5 or newer" if old else "the process has ended") from None
        self.pidfd = struct.unpack("i", pidfd)[0]

    def names(self) -> set[str]:
        """Its account and groups: "u1003", "g1001", as the kernel told them when it connected."""
        return {f"u{self.uid}", *(f"g{number}" for number in (self.gid, *self.groups))}

    def close(self) -> None:
        """Forgets the process."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def check(self) -> None:
        """Raises PeerError if it is root, has ended, or is confined in a way that its fork would not be."""
        if self.uid == 0 or self.pid <= 0:
            raise PeerError("it forks for ordinary accounts of this machine only")
        status = self._status()
        # who connected may have been a program with a group's rights (set-gid) that has given them up
        if status["Uid"].split() != [str(self.uid)] * 4 or status["Gid"].split() != [str(self.gid)] * 4:
            raise PeerError("the process has changed its account")
        if set(map(int, status["Groups"].split())) != set(self.groups):
            raise PeerError("the process has changed its groups")
        if status.get("Seccomp", "0").strip() != "0":
            raise PeerError("system calls of the process are filtered, and those of a fork would not be")
        for name in _SAME:
            if _link(f"/proc/{self.pid}/{name}", name) != _link(f"/proc/self/{name}", name):
                raise PeerError(f"the process is confined: its {name} is not this service's")
        if os.readlink(f"/proc/{self.pid}/root") != "/":
            raise PeerError("the process is confined to a directory")
        self._lives()  # else all of the above could be another process's

    def adopt(self) -> None:
        """Makes this process, a fork of root's with one thread, one of the peer's: its control group, mounts, limits and account.

        Between the change of mounts and that of the account no path is looked up: the files there may be anybody's.
        Raises OSError or PeerError; the caller must then end.
        """
        own = Path(f"/proc/{self.pid}")
        groups, limits = _lines(own / "cgroup"), _limits(_lines(own / "limits"))
        score = (own / "oom_score_adj").read_bytes()
        cores, nice = os.sched_getaffinity(self.pid), os.getpriority(os.PRIO_PROCESS, self.pid)
        mounts = os.open(own / "ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        _of_the_machine(mounts)
        foreign = not os.path.samestat(os.fstat(mounts), os.stat("/proc/self/ns/mnt"))
        status = self._status()
        self.check()  # it lives: all that was read is its own
        _check_groups(groups, self.pid)
        _join_groups(groups)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_bytes(score)
        if foreign:
            _call("setns", mounts, _CLONE_NEWNS)
        os.close(mounts)
        self._lives()
        for kind, both in limits.items():
            most = resource.getrlimit(kind)[1]  # may be lower than the peer's: only some roots can raise it
            resource.setrlimit(kind, (_lower(both[0], most), _lower(both[1], most)))
        os.sched_setaffinity(0, cores)
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        bound = int(status["CapBnd"], 16)
        for number in range(64):
            if not bound >> number & 1:
                with contextlib.suppress(OSError):  # a number beyond the kernel's last
                    _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
        if status["NoNewPrivs"].strip() == "1":
            _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if ctypes.CDLL(None).prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0):
            raise PeerError("this service has secure bits: its rights might stay")
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if os.getresuid() != (self.uid,) * 3 or os.getresgid() != (self.gid,) * 3:
            raise PeerError("the account could not be changed")
        # an inheritable right would stay, for the programs that allow it
        _call("capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))
        leave_keyring()
        _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self is root's, and it could make no namespace

    def _lives(self) -> None:
        ended = select.poll()  # select() takes no descriptor above 1023
        ended.register(self.pidfd, select.POLLIN)
        if ended.poll(0):
            raise PeerError("the process has ended")

    def _status(self) -> dict[str, str]:
        try:
            lines = _lines(Path(f"/proc/{self.pid}/status"))
        except OSError:
            raise PeerError("the process has ended") from None
        return dict(line.split(":", 1) for line in lines if ":" in line)


def _lines(path: Path) -> list[str]:
    """The lines of a file of /proc.

    The kernel ends a line with a line feed only. People choose the names of their processes and control groups, and a name
    may have each other character at which Python's `splitlines` and text files end a line.
    """
    return os.fsdecode(path.read_bytes()).split("\n")


def _limits(lines: list[str]) -> dict[int, tuple[int, int]]:
    """Soft and hard limits by kind, from /proc/PID/limits: only some roots may ask for another account's by prlimit."""
    found = {}
    for name, kind in _LIMITS.items():
        for line in lines:
            if line.startswith(name):
                soft, hard = line[len(name) :].split()[:2]
                found[kind] = (_number(soft), _number(hard))
    return found


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def _lower(one: int, other: int) -> int:
    return min((one, other), key=lambda limit: float("inf") if limit == resource.RLIM_INFINITY else limit)


def keep_needed_rights() -> None:
    """Gives up the rights of root's that this process and its forks do not need. Raises OSError."""
    status = dict(line.split(":", 1) for line in _lines(Path("/proc/self/status")) if ":" in line)
    kept = int(status["CapPrm"], 16) & sum(1 << number for number in _NEEDED)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    _call("capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), struct.pack("6I", low, low, 0, high, high, 0))


def _check_groups(lines: list[str], pid: int) -> None:
    """Raises PeerError if the process is in other control groups than /proc/PID/cgroup said.

    With version 1 it says "/", the group without limits, of a process whose first thread is just ending; the others may live on.
    """
    for line in filter(None, lines):
        _, controllers, path = line.split(":", 2)
        if controllers and not _lists(_group(controllers, path) / "cgroup.procs", pid):
            raise PeerError(f"its control group is not {path}, of {controllers}")


def _lists(members: Path, pid: int) -> bool:
    """Whether one of some readings of this cgroup.procs has the process.

    With version 1 a reading leaves out a process if others start during it (Linux, pidlist_array_load in
    kernel/cgroup/cgroup-v1.c): while two loops forked, 520 of 103,257 readings did, and never three in a row.
    """
    return any(str(pid) in _lines(members) for _ in range(_READINGS))


def _group(controllers: str, path: str) -> Path:
    """The folder of a control group."""
    root = _CGROUPS / controllers.removeprefix("name=") if controllers else _CGROUPS
    if not controllers and not (root / "cgroup.procs").exists():
        root = _CGROUPS / "unified"  # beside version 1
    return root / path.lstrip("/")


def _join_groups(lines: list[str]) -> None:
    """Moves this process into the control groups that /proc/PID/cgroup names. Raises PeerError if it is then in others."""
    ours = Path("/proc/self/cgroup")
    for line in set(lines) - set(_lines(ours)):
        _, controllers, path = line.split(":", 2)
        # never makes a file, or empties one
        members = os.open(_group(controllers, path) / "cgroup.procs", os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(members, str(os.getpid()).encode())
        finally:
            os.close(members)
    if _lines(ours) != lines:
        raise PeerError("its control groups could not be joined")


def _link(path: str, name: str) -> str:
    """Where a link of /proc leads, or the text of a file. Raises PeerError where a namespace is not told."""
    try:
        return os.readlink(path)
    except OSError:
        with contextlib.suppress(OSError):
            return Path(path).read_text(encoding="utf-8", errors="replace")
    if name.startswith("ns/"):
        raise PeerError(f"its {name} is not told")
    return ""


def _of_the_machine(mounts: int) -> None:
    """Raises PeerError if these mounts belong to a user namespace in which an ordinary account may be root.

    The descriptor is asked, not a path: who owns a namespace never changes.
    """
    owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
    try:
        if not os.path.samestat(os.fstat(owner), os.stat("/proc/self/ns/user")):
            raise PeerError("the process is confined: its mounts are of another user namespace")
    finally:
        os.close(owner)


def _call(name: str, *arguments: int | bytes) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)  # no words: to look them up may open files
