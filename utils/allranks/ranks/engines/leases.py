"""Leases of GPUs: which user has which GPU, for one user alone or in shares.

A lease is a lock of the kernel on a file, so that the kernel frees the GPU however the process ends. All users of the
machine share one directory, with one file for each GPU. An exclusive lease is an exclusive flock on that file. A share
is a shared flock on that file and an exclusive flock on a second file, one for each share; so a GPU is either leased to
one user or in shares.

A process that waits holds a ticket, which is also a locked file. The next ticket is the one whose user has the fewest
GPUs and earlier tickets; among equals, that of the user who has had none for the longest time. So people take turns,
however many notebooks each of them opens. No process runs in the background. What another user wrote into a
file is not trusted: a file without a lock counts as free, whatever its text says.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import itertools
import json
import os
import pwd
import re
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from allranks.ranks.engines.devices import MAX_SHARES, DeviceError, Gpu, default_shares

HUB_DIRECTORY = Path(
    "/var/lib/allranks/leases"
)  # the hub makes it, for all users; with a hub, each user may have a /tmp of their own
SLICE_S = 20 * 60.0
POLL_S = 0.25
OVER_S = 60.0  # who has had their time gives back between two calls, by then in most cases
MAX_TEXT = 4096  # bytes of a file of the ledger
MAX_NAME = 64
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


class LeaseError(DeviceError):
    """A lease can't be given; the message says why."""


@dataclass(frozen=True)
class Holder:
    """Who has a GPU, since when, and until when it is theirs (seconds since the epoch)."""

    user: str
    pid: int
    since: float
    until: float


@dataclass(frozen=True)
class Waiter:
    """Who waits, for how many GPUs, and since when (seconds since the epoch).

    `shares`: into how many parts each GPU is divided, if one part of it is enough; None for whole GPUs.
    """

    user: str
    pid: int
    gpus: int
    since: float
    shares: int | None = None


Written = TypeVar("Written", Holder, Waiter)  # what a file of the ledger holds
Taken = TypeVar("Taken")


class Lease:
    """GPUs that this process has until `release`, its end, or an exec of another program."""

    def __init__(self, gpus: tuple[Gpu, ...], descriptors: list[int], until: float, ledger: Ledger) -> None:
        self.gpus, self.until = gpus, until
        self._descriptors, self._ledger = descriptors, ledger

    @property
    def lost(self) -> str | None:
        """Why the GPUs are not ours any more; None while they are. A lock of ours lasts until we release it."""
        return None

    @property
    def over(self) -> bool:
        """Whether the time is over and another process waits: then the lease should be released."""
        return time.time() > self.until and bool(self._ledger.waiting())

    def release(self) -> None:
        """Gives the GPUs back. A second call does nothing."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)
        if descriptors:
            self._ledger.note_use()

    def forget(self) -> None:
        """Closes the lock files in a forked process, which would otherwise also hold the GPUs until it ends."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class Ledger:
    """The leases of one machine's GPUs.

    All users share `directory`: by default `ALLRANKS_LEASES`, else the hub's directory, else one in /tmp.
    """

    def __init__(self, gpus: tuple[Gpu, ...], directory: str | Path | None = None) -> None:
        self.gpus = tuple(gpus)
        usual = HUB_DIRECTORY if os.path.isdir(HUB_DIRECTORY) else Path(tempfile.gettempdir(), "allranks-leases")
        self.directory = Path(directory or os.environ.get("ALLRANKS_LEASES") or usual)
        self._make_directory()

    def _make_directory(self) -> None:
        try:
            self.directory.mkdir(exist_ok=True)
            found = self.directory.lstat()
            if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
                raise LeaseError(
                    f"{self.directory} is not a directory; remove it, or set ALLRANKS_LEASES to another one."
                )
            if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) != 0o1777:
                # as for /tmp: everyone may add files, only their owners may remove them
                os.chmod(self.directory, 0o1777)
        except OSError as error:
            raise LeaseError(f"The directory of GPU leases {self.directory} can't be used: {error.strerror}.") from None

    def acquire(
        self,
        count: int,
        *,
        slice_s: float = SLICE_S,
        timeout_s: float | None = None,
        told: Callable[[int, float | None], None] | None = None,
        shares: int | None = None,
    ) -> Lease:
        """Waits for `count` GPUs and returns their lease.

        Without `shares`, the GPUs are for this user alone. With it, each GPU is divided into `shares` parts, and the
        lease has one part of each; all users must use the same number. While it waits, it calls `told(place, seconds)`
        with the place in the queue and an estimate of the time left (None: unknown).

        Raises LeaseError if the machine has fewer GPUs, or if `timeout_s` seconds have passed.
        """
        check_count(count, len(self.gpus))
        began = time.monotonic()
        with self._ticket(count, shares) as name:
            while True:
                queue, lease = self._try(name, count, slice_s, shares)
                if lease is not None:
                    return lease
                if told is not None:
                    told(len(queue), self._estimate(queue, shares))
                if timeout_s is not None and time.monotonic() - began > timeout_s:
                    raise none_free(count, timeout_s, len(queue))
                time.sleep(POLL_S)

    def _try(self, name: str, count: int, slice_s: float, shares: int | None) -> tuple[list[str], Lease | None]:
        """(the tickets up to ours, lease); the lease is None unless it is our turn and enough GPUs are free."""
        with self._mutex():
            order = self._order(sweep=True)
            queue = [*order[: order.index(name) if name in order else None], name]
            if len(queue) > 1:
                return queue, None
            gpus = self.gpus
            if shares:  # those with the fewest users first
                crowd = {uuid: len(those) for uuid, those in self.sharers().items()}
                gpus = tuple(sorted(gpus, key=lambda gpu: crowd[gpu.uuid]))
            with contextlib.ExitStack() as undo:  # frees the locks when a full disk or the stop button interrupts

                def take(gpu: Gpu) -> list[int]:
                    descriptors = self._take(gpu, shares)
                    for descriptor in descriptors:
                        undo.callback(os.close, descriptor)
                    return descriptors

                taken = gather(gpus, count, take)
                if len(taken) < count:
                    return queue, None
                now = time.time()
                holder = Holder(_user(), os.getpid(), now, now + slice_s)
                for _, descriptors in taken:
                    _write(descriptors[-1], asdict(holder))
                undo.pop_all()
            self.note_use()
            held = [descriptor for _, descriptors in taken for descriptor in descriptors]
            return queue, Lease(tuple(gpu for gpu, _ in taken), held, holder.until, self)

    def _take(self, gpu: Gpu, shares: int | None) -> list[int]:
        """The descriptors that lock a GPU, or a share of it; an empty list if it is not free."""
        whole = self._lock(self._file(gpu), shared=bool(shares))
        if whole is None or not shares:
            return [] if whole is None else [whole]
        for number in range(shares):
            part = self._lock(self._share(gpu, number))
            if part is not None:
                return [whole, part]
        os.close(whole)
        return []

    def holders(self) -> dict[str, Holder | None]:
        """Who has each GPU for themselves, by its UUID; None for a GPU that is free or shared."""
        return {gpu.uuid: self._read(self._file(gpu), Holder) for gpu in self.gpus}

    def sharers(self) -> dict[str, list[Holder]]:
        """Who has shares of each GPU, by its UUID."""
        return {
            gpu.uuid: [h for path in self._shares_of(gpu) if (h := self._read(path, Holder)) is not None]
            for gpu in self.gpus
        }

    def waiting(self) -> list[Waiter]:
        """The processes that wait; the one whose turn is next comes first."""
        found = (self._read(self.directory / name, Waiter) for name in self._order())
        return [waiter for waiter in found if waiter is not None]

    def _estimate(self, queue: Iterable[str], shares: int | None) -> float | None:
        """The seconds that the last one of these tickets has to wait."""
        waiting = [w for name in queue if (w := self._read(self.directory / name, Waiter)) is not None]
        leases = uses(self.holders(), self.sharers(), shares or default_shares())
        return waits([(w.gpus, w.shares) for w in waiting], leases, SLICE_S)[-1] if waiting else None

    def _order(self, sweep: bool = False) -> list[str]:
        """The names of the locked tickets; the next one comes first.

        With `sweep`, under the mutex, removes all others.
        """
        locked = [
            path for gpu in self.gpus for path in (self._file(gpu), *self._shares_of(gpu)) if self._is_locked(path)
        ]
        held = Counter(map(_owner, locked))
        tickets = []
        for path in self.directory.glob("*ticket-*"):
            if path.name.startswith("ticket-") and self._is_locked(path):
                with contextlib.suppress(OSError):
                    tickets.append((path.stat().st_uid, _number(path.name), path.name))
            elif sweep:
                with contextlib.suppress(OSError):
                    path.unlink()  # its process has ended; we can't remove another user's, which counts for nothing
        return in_turn(tickets, held, {uid: self._last_use(uid) for uid, _, _ in tickets})

    def note_use(self) -> None:
        """Notes that this user has had a GPU until now: the kernel's time of a change (ctime), which nobody can set."""
        with contextlib.suppress(OSError):  # a full disk: then this user waits less than is fair
            path = self.directory / f"last-{os.getuid()}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            os.utime(descriptor)
            os.close(descriptor)

    def _last_use(self, uid: int) -> int:
        """When this user last got a GPU or gave one back, in nanoseconds since the epoch; 0: never."""
        with contextlib.suppress(OSError):
            found = (self.directory / f"last-{uid}").lstat()
            if found.st_uid == uid:  # else another user wrote it
                return found.st_ctime_ns
        return 0

    @contextlib.contextmanager
    def _ticket(self, count: int, shares: int | None = None) -> Iterator[str]:
        with self._mutex():  # other processes must not find the ticket before it is locked and complete
            path = self.directory / f"ticket-{time.time_ns()}-{os.getpid()}"
            unready = path.with_name(f"new-{path.name}")
            descriptor = os.open(unready, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _write(descriptor, asdict(Waiter(_user(), os.getpid(), count, time.time(), shares)))
            unready.rename(path)
        try:
            yield path.name
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(descriptor)

    @contextlib.contextmanager
    def _mutex(self) -> Iterator[None]:
        descriptor = self._open(self.directory / "mutex")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _file(self, gpu: Gpu) -> Path:
        return self.directory / f"gpu-{_SAFE.sub('_', gpu.uuid)}"

    def _share(self, gpu: Gpu, number: int) -> Path:
        return self.directory / f"share-{_SAFE.sub('_', gpu.uuid)}-{number}"

    def _shares_of(self, gpu: Gpu) -> list[Path]:
        found = (self._share(gpu, number) for number in range(MAX_SHARES))
        return list(itertools.takewhile(Path.exists, found))

    def _open(self, path: Path) -> int:
        """The file, open for reading and writing; makes it for all users if it is missing. Never follows a link.

        It first tries to open the file without O_CREAT: in a sticky directory Linux may refuse O_CREAT for a file of
        another user that exists already, even if it can be opened (fs.protected_regular).
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            try:
                descriptor = os.open(path, flags)
            except FileNotFoundError:
                descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        except OSError as error:
            raise LeaseError(f"The lease file {path} can't be opened: {error.strerror}.") from None
        if os.fstat(descriptor).st_uid == os.getuid():
            os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor

    def _lock(self, path: Path, shared: bool = False) -> int | None:
        descriptor = self._open(path)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def _is_locked(self, path: Path) -> bool:
        descriptor = _open_to_read(path)
        if descriptor is None:
            return False
        try:
            return _locked(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, path: Path, kind: type[Written]) -> Written | None:
        """What a locked file says; None if the file is missing or not locked.

        Any user may have written it. So the name is that of the account which the kernel names, and a text that is no
        `kind` counts as one of zeros.
        """
        descriptor = _open_to_read(path)
        if descriptor is None:
            return None
        try:
            if not _locked(descriptor):
                return None
            about = os.fstat(descriptor)
            text = os.pread(descriptor, MAX_TEXT, 0)
        except OSError:
            text = b""
        finally:
            os.close(descriptor)
        found = _parsed(text, kind)
        # a ticket is the file of the user who waits; a GPU's file is of the user who was first
        name = account_name(about.st_uid if kind is Waiter else _owner(path))
        return found if name is None else replace(found, user=name)


def gather(gpus: Iterable[Gpu], count: int, take: Callable[[Gpu], Taken]) -> list[tuple[Gpu, Taken]]:
    """Up to `count` GPUs that `take` could take, each with what it returned for it; it returns nothing for one that is not free.

    MIG devices of different GPUs come first: NCCL promises nothing for those of one.
    """
    gpus, tried = list(gpus), set[Gpu]()
    taken: list[tuple[Gpu, Taken]] = []
    for apart in (True, False):
        for gpu in gpus:
            cards = {other.physical for other, _ in taken}
            if len(taken) == count or gpu in tried or (apart and gpu.physical in cards):
                continue
            tried.add(gpu)
            if got := take(gpu):
                taken.append((gpu, got))
    return taken


def in_turn(tickets: Iterable[tuple[int, int, str]], held: Mapping[int, int], last: Mapping[int, int]) -> list[str]:
    """The names of tickets (user, number, name) in the order in which they are served.

    `held` is how many GPUs a user has now, and `last` when the user last had one. People are ranked, not tickets: who opens
    more notebooks gets no more turns.

    Example:
        >>> from allranks.ranks.engines.leases import in_turn
        >>> in_turn([(7, 1, "ada's first"), (7, 2, "ada's second"), (8, 3, "bob's")], {7: 0}, {7: 500})
        ["bob's", "ada's first", "ada's second"]
    """
    before: Counter[int] = Counter()
    ranked = []
    for uid, number, name in sorted(tickets, key=lambda ticket: ticket[1]):
        ranked.append((held.get(uid, 0) + before[uid], last.get(uid, 0), number, name))
        before[uid] += 1
    return [name for *_, name in sorted(ranked)]


def check_count(count: int, there: int) -> None:
    """Raises LeaseError if a machine with so many GPUs can't lease `count`."""
    if count < 1 or count > there:
        raise LeaseError(f"{count} GPUs were asked for; this machine has {there}.")


def none_free(count: int, timeout_s: float, place: int) -> LeaseError:
    """The error of one who does not want to wait any longer."""
    return LeaseError(
        f"No {count} GPUs were free after {timeout_s:g} s (place {place} in the queue); `allranks gpus` shows "
        "who has them. World(backend='gloo') works without one."
    )


def uses(
    alone: Mapping[str, Holder | None], sharers: Mapping[str, Iterable[Holder]], shares: int
) -> list[list[tuple[float, float]]]:
    """The leases of each GPU, for `waits`: (end, part of the GPU); a GPU that is shared is divided into `shares` parts."""
    return [
        [(holder.until, 1.0)] if holder else [(each.until, 1 / shares) for each in sharers.get(uuid, ())]
        for uuid, holder in alone.items()
    ]


def waits(
    wanted: Iterable[tuple[int, int | None]], leases: Iterable[Iterable[tuple[float, float]]], slice_s: float
) -> list[float]:
    """The seconds until each one in a queue has its GPUs, if everybody keeps them for their whole time.

    `wanted` are the numbers of GPUs and shares in the queue's order, and `leases` those of each GPU, (end in seconds since the
    epoch, part of the GPU). Who is over their time is expected to give back within OVER_S.

    Example:
        >>> import time
        >>> from allranks.ranks.engines.leases import waits
        >>> held = [[(time.time() + 300, 1.0)], [(time.time() + 600, 1.0)], []]
        >>> [round(seconds) for seconds in waits([(2, None), (1, None)], held, 1200)]
        [300, 600]
    """
    now = turn = time.time()
    gpus = [[(max(end, now + OVER_S), part) for end, part in each] for each in leases]
    found = []
    for count, shares in wanted:
        part = 1 / (shares or 1)
        first = sorted((_free_at(each, part, now), number) for number, each in enumerate(gpus))[:count]
        turn = max([turn, *(when for when, _ in first)])  # nobody overtakes
        for _, number in first:
            gpus[number] = [(end, p) for end, p in gpus[number] if end > turn] + [(turn + slice_s, part)]
        found.append(turn - now)
    return found


def _free_at(leases: Iterable[tuple[float, float]], part: float, now: float) -> float:
    """When this part of a GPU is free."""
    taken = part
    for end, its in sorted(leases, reverse=True):  # those that end last may stay
        taken += its
        if taken > 1 + 1e-6:
            return end
    return now


def _write(descriptor: int, data: dict[str, Any]) -> None:
    text = json.dumps(data).encode()
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
    except OSError as error:
        raise LeaseError(
            f"A lease can't be written: {error.strerror}. Make room there, or set ALLRANKS_LEASES to another directory."
        ) from None


def _open_to_read(path: Path) -> int | None:
    """A descriptor of a file; None if it is missing, or no plain file: another user's pipe would let the reader wait for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _locked(descriptor: int) -> bool:
    """Whether another process has locked a file for itself."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _parsed(text: bytes, kind: type[Written]) -> Written:
    """What a file's text says; zeros if it is not of this kind: then another program, or another user, has written it."""
    with contextlib.suppress(ValueError, RecursionError):
        return from_json(json.loads(text), kind)
    return kind("?", 0, 0, 0)


def from_json(data: Any, kind: type[Written]) -> Written:
    """The holder or waiter of which `dataclasses.asdict` was written as JSON. Raises ValueError if it can be none."""
    try:
        found = kind(**data)
    except TypeError as error:
        raise ValueError(str(error)) from None
    said = asdict(found)
    user = said.pop("user")
    if not isinstance(user, str) or not all(_sensible(name, value) for name, value in said.items()):
        raise ValueError(f"{data!r:.200} is no {kind.__name__}")
    return replace(found, user="".join(c for c in user if c.isprintable())[:MAX_NAME] or "?")


def _sensible(name: str, value: object) -> bool:
    """Whether a value could be what the ledger writes under this name; not one that JSON or a page could not show."""
    if name in ("since", "until"):
        return type(value) in (int, float) and 0 <= value < 1e11  # type: ignore[operator]  # so it is no NaN
    return (type(value) is int and 0 <= value < 1 << 31) or (name == "shares" and value is None)


def account_name(uid: int) -> str | None:
    """The name of an account; its number if it has none, and None for -1, an account that is not known."""
    try:
        return None if uid < 0 else pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _owner(path: Path) -> int:
    """The uid of the user who holds the lock on a file, from the kernel, not from its text; -1 if it is unknown."""
    with contextlib.suppress(OSError, ValueError):
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return Path(f"/proc/{fields[4]}").stat().st_uid
    return -1


def _number(name: str) -> int:
    digits = name.split("-")[1]
    return int(digits) if digits.isdecimal() else 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
