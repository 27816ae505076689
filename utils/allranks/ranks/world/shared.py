"""A world that several notebooks of one user share by its name: one notebook owns it, the others borrow it.

The owner is the process that holds the lock on the name; it publishes how the ranks can be reached. Each call holds a
second lock, the turn, so that collectives of two notebooks never mix. The kernel frees both locks however a process
ends. A borrower whose call hangs kills the ranks, and the owner starts new ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from allranks.base.rundir import RunDirError, run_dir
from allranks.base.whole import write_whole
from allranks.ranks.world.cluster import START_TIMEOUT_S, Engines, WorldError, end_in_peace

_NAME = re.compile(r"[A-Za-z0-9_]{1,32}")
LOOK_S = 0.2


class Shared:
    """The files of one name in this user's run directory."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise WorldError(f"name={name!r}: a shared world's name is 1 to 32 letters, digits or underscores.")
        try:
            directory = run_dir()
        except RunDirError as error:
            raise WorldError(str(error)) from None
        self.name = name
        self.notice = directory / f"shared_{name}.json"
        self._owner, self._turn = directory / f"shared_{name}.owner", directory / f"shared_{name}.turn"
        self._owned: int | None = None
        self._seen = 0

    def used(self) -> bool:
        """Whether a notebook took or gave back the turn since the last call of `used`."""
        before = self._seen
        with contextlib.suppress(OSError):
            self._seen = self._turn.stat().st_mtime_ns
        return before != self._seen

    def taken(self) -> bool:
        """Whether a notebook has the turn now."""
        return _held(self._turn)

    def forget(self) -> None:
        """Closes the lock in a forked process, which would otherwise also own the name until it ends."""
        if self._owned is not None:
            descriptor, self._owned = self._owned, None
            os.close(descriptor)

    def claim(self) -> bool:
        """Takes the name, if it is free; returns whether this process owns it."""
        if self._owned is None:
            self._owned = _lock(self._owner)
        return self._owned is not None

    def has_owner(self) -> bool:
        """Whether some process owns the name."""
        return self._owned is not None or _held(self._owner)

    def publish(self, engines: Engines) -> None:
        """Writes for borrowers how to reach the ranks."""
        told = {
            "owner": os.getpid(),
            "directory": str(engines.directory),
            "backend": engines.placement.backend,
            "described": engines.described,
            "settings": engines.settings,
        }
        write_whole(self.notice, json.dumps(told), 0o600)

    def read(self) -> dict | None:
        """What the owner published; None if it published nothing, or has ended."""
        if not self.has_owner():
            return None
        with contextlib.suppress(OSError, ValueError):
            return json.loads(self.notice.read_text(encoding="utf-8"))
        return None

    def wait_for_notice(self) -> dict | None:
        """Waits for what the owner publishes.

        Returns None if the owner ends before that; then this process owns the name.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while (told := self.read()) is None:
            if self.claim():
                return None
            if time.monotonic() > deadline:
                raise WorldError(f"The notebook that owns the world {self.name!r} has no ranks; start them there.")
            time.sleep(0.05)
        return told

    def give_up(self) -> None:
        """Gives up the name, if this process owns it."""
        if self._owned is not None:
            for path in (self.notice, self._turn, self._owner):
                path.unlink(missing_ok=True)
            self.forget()

    @contextlib.contextmanager
    def turn(self, timeout_s: float, waiting: Callable[[], None]) -> Iterator[None]:
        """Holds the turn; calls `waiting` once if another notebook has it.

        Raises WorldError after `timeout_s` seconds.
        """
        if not self.has_owner():  # the call will report that the ranks have ended
            yield
            return
        deadline, told = time.monotonic() + timeout_s, False
        while (descriptor := _lock(self._turn)) is None:
            if not told:
                waiting()
                told = True
            if time.monotonic() > deadline:
                raise WorldError(
                    f"Another notebook has used the world {self.name!r} for {timeout_s:g} s without an end; try again, or "
                    "start a world of your own without a name."
                )
            time.sleep(0.02)
        try:
            os.utime(descriptor)  # `used` looks at this time
            yield
        finally:
            os.utime(descriptor)
            os.close(descriptor)


class Borrowed(Engines):
    """The engines of a world that another notebook owns.

    This class connects to them; it neither starts nor ends them.
    """

    ours = False

    def __init__(self, placement, shared: Shared) -> None:
        super().__init__(placement, "borrowed")
        self.shared = shared
        self._gone: Path | None = None  # the directory of ranks that we have killed

    def _start(self, progress: Callable[[str], None]) -> None:
        import ipyparallel as ipp

        deadline = time.monotonic() + START_TIMEOUT_S
        progress(f"looking for the world {self.shared.name!r}")
        while self._client is None:
            told = self._told(deadline)
            self.directory = Path(told["directory"])
            try:
                self._client = ipp.Client(str(self.directory / "security" / "ipcontroller-client.json"), timeout=30)
            except OSError as error:  # the file was removed: the owner will publish new ranks soon
                if time.monotonic() > deadline:
                    raise WorldError(f"The owner of the world {self.shared.name!r} did not answer: {error}") from None
                time.sleep(0.05)
        while len(self._client.ids) < self.placement.ranks:
            if time.monotonic() > deadline:
                raise WorldError(f"Not all ranks of the world {self.shared.name!r} answer.")
            time.sleep(0.02)
        self._views = [self._client[i] for i in sorted(self._client.ids)]
        self.described, self.settings = told["described"], told["settings"]

    def _told(self, deadline: float) -> dict:
        """Waits until the owner has published ranks that we have not killed, and returns that.

        Raises WorldError after the deadline.
        """
        while (told := self.shared.read()) is None or Path(told["directory"]) == self._gone:
            if not self.shared.has_owner():
                raise WorldError(
                    f"The notebook that owned the world {self.shared.name!r} has ended, and its ranks with it. Start it "
                    f"again:  World(ranks={self.placement.ranks}, name={self.shared.name!r})"
                )
            if self._cancelled or time.monotonic() > deadline:
                raise WorldError(f"The owner of the world {self.shared.name!r} did not answer.")
            time.sleep(0.05)
        return told

    def _stop(self) -> None:
        self._let_go()

    def dead(self) -> dict[int, str]:
        """The ranks that have ended."""
        return {d["rank"]: "has ended" for d in self.described if not _alive(d["pid"])}

    def renew(self) -> None:
        """Kills the ranks, and connects to the new ones that their owner then starts."""
        if self.placement.mps:
            end_in_peace(self.pids)
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._gone = self.directory
        self.stop()
        self.start(lambda _: None)

    def refresh(self) -> bool:
        """Connects to new ranks, if the owner has started some; returns whether it has."""
        told = self.shared.read()
        if told is None or Path(told["directory"]) == self.directory:
            return False
        self.stop()
        self.start(lambda _: None)
        return True


class Keeper:
    """A thread of the owner: starts new ranks when the old ones have ended and the owner runs no call."""

    def __init__(self, shared: Shared, engines: Engines, busy: threading.Lock) -> None:
        self._shared, self._engines, self._busy = shared, engines, busy
        self._over, self._works = threading.Event(), threading.Lock()
        threading.Thread(target=self._watch, name="allranks-keeper", daemon=True).start()

    def end(self) -> None:
        """Stops watching."""
        self._over.set()

    def wait(self) -> None:
        """Waits until the new ranks are there that it starts now, if it does."""
        with self._works:
            pass

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            if not self._engines.dead():
                continue
            with self._works:
                if not self._busy.acquire(blocking=False):
                    continue
                try:
                    with self._engines.changing:  # what stops the world comes before this or after it
                        if self._engines.dead() and not self._over.is_set():
                            self._engines.renew()
                            self._shared.publish(self._engines)
                except WorldError:
                    self._shared.give_up()  # borrowers then learn that the world has ended
                    return
                finally:
                    self._busy.release()


def _lock(path: Path, make: bool = True) -> int | None:
    """A descriptor that locks a file; None if another process has the lock, or the file is missing and not made."""
    try:
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if make else 0) | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.fstat(descriptor).st_ino == os.stat(path).st_ino  # else the last owner has removed the file
    except OSError:
        held = False
    if not held:
        os.close(descriptor)
        return None
    return descriptor


def _held(path: Path) -> bool:
    """Whether the file exists and a process holds its lock."""
    if not path.exists():
        return False
    descriptor = _lock(path, make=False)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None and path.exists()


def _alive(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
