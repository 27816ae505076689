"""Leases from the service that opens GPUs (`allranks gpus --serve`), with the same methods as leases by locks.

A lease lasts as long as its connection: the kernel closes that however the process ends.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.ranks.engines import gpu_socket
from allranks.ranks.engines.devices import Gpu
from allranks.ranks.engines.gpu_socket import GpuServiceError
from allranks.ranks.engines.leases import SLICE_S, Holder, Lease, LeaseError, Ledger, Waiter, check_count, none_free

RELEASE_S = 10.0  # how long the service may take to end what still has a GPU open
GONE = "the GPU service has ended"


def ledger_of(gpus: tuple[Gpu, ...]) -> Ledger | ServedLedger:
    """Where leases of these GPUs are taken: from the service where there is one, else by locks of the kernel."""
    path = gpu_socket.where()
    return Ledger(gpus) if path is None else ServedLedger(gpus, path)


class ServedLease(Lease):
    """GPUs that only this user's processes can open, until `release`, the end of this process, or that of the service."""

    def __init__(self, gpus: tuple[Gpu, ...], connection: socket.socket, until: float, unread: bytes) -> None:
        self.gpus, self.until = gpus, until
        self._connection: socket.socket | None = connection
        self._unread, self._over, self._lost = unread, False, None
        self._reading = threading.Lock()
        connection.setblocking(False)

    _lost: str | None

    @property
    def over(self) -> bool:
        """Whether the time is over and another process waits, or the lease is lost: then it should be released."""
        self._read()
        return self._over or self._lost is not None

    @property
    def lost(self) -> str | None:
        """Why the GPUs are not ours any more; None while they are."""
        self._read()
        return self._lost

    def _read(self) -> None:
        """Takes in what the service has said since."""
        with self._reading:
            while self._connection is not None and self._lost is None:
                try:
                    said = self._connection.recv(4096)
                except BlockingIOError:
                    break
                except OSError:
                    said = b""
                if not said:
                    self._lost = GONE
                self._unread += said
                *lines, self._unread = self._unread.split(b"\n")
                for line in map(json.loads, lines):
                    self._over = line.get("over", self._over)
                    self._lost = line.get("ended", self._lost)

    def release(self) -> None:
        """Gives the GPUs back, and waits until no process of this user has them open. A second call does nothing."""
        with self._reading:
            connection, self._connection = self._connection, None
        if connection is None:
            return
        with connection, contextlib.suppress(OSError):  # the service may have ended
            connection.settimeout(RELEASE_S)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    def forget(self) -> None:
        """Closes the connection in a forked process, where it would otherwise stay open until that ends."""
        connection, self._connection, self._reading = self._connection, None, threading.Lock()
        if connection is not None:
            connection.close()


class ServedLedger:
    """The leases of one machine's GPUs, which a service of root's keeps. `gpus` are those that this process may use."""

    def __init__(self, gpus: tuple[Gpu, ...], path: Path) -> None:
        self.gpus, self._path = tuple(gpus), path

    def acquire(
        self,
        count: int,
        *,
        slice_s: float = SLICE_S,
        timeout_s: float | None = None,
        told: Callable[[int, float | None], None] | None = None,
        shares: int | None = None,
    ) -> Lease:
        """Waits for `count` GPUs and returns their lease; everything is as in `Ledger.acquire`.

        The service opens the GPUs to this user's account, and takes them back after the lease.
        """
        check_count(count, len(self.gpus))
        began, place, answered = time.monotonic(), 1, False
        uuids = [gpu.uuid for gpu in self.gpus]
        question = {"ask": "lease", "count": count, "shares": shares, "slice_s": slice_s, "gpus": uuids}
        with contextlib.ExitStack() as undo, _as_lease_errors():
            connection = gpu_socket.call(self._path, question)
            undo.callback(connection.close)
            unread = b""
            while True:
                left = None if timeout_s is None else timeout_s - (time.monotonic() - began)
                if not answered:  # whoever can't wait asks whether a GPU is free now
                    left = max(left or 0.0, gpu_socket.ANSWER_S)
                ready, _, _ = select.select([connection], [], [], None if left is None else max(0.0, left))
                answered = True
                if not ready:
                    raise none_free(count, timeout_s or 0.0, place)
                said = connection.recv(4096)
                if not said:
                    raise LeaseError(f"No GPU can be had: {GONE}. Its administrator can start it again.")
                *lines, unread = (unread + said).split(b"\n")
                for number, line in enumerate(map(json.loads, lines)):
                    if "error" in line:
                        raise LeaseError(line["error"])
                    if "granted" in line:
                        mine = tuple(gpu for uuid in line["granted"] for gpu in self.gpus if gpu.uuid == uuid)
                        unread = b"".join(rest + b"\n" for rest in lines[number + 1 :]) + unread
                        lease = ServedLease(mine, connection, line["until"], unread)
                        undo.pop_all()
                        return lease
                    place = line["place"]
                    if told is not None:
                        told(place, line["seconds"])

    def state(self) -> dict[str, Any]:
        """What the service says of all GPUs: also "unleased", who uses one without a lease, and "warnings"."""
        with _as_lease_errors():
            return gpu_socket.state(self._path)

    def holders(self) -> dict[str, Holder | None]:
        """Who has each GPU for themselves, by its UUID; None for a GPU that is free or shared."""
        found = self.state()["holders"]
        return {gpu.uuid: Holder(**found[gpu.uuid]) if found.get(gpu.uuid) else None for gpu in self.gpus}

    def sharers(self) -> dict[str, list[Holder]]:
        """Who has shares of each GPU, by its UUID."""
        found = self.state()["sharers"]
        return {gpu.uuid: [Holder(**each) for each in found.get(gpu.uuid, ())] for gpu in self.gpus}

    def waiting(self) -> list[Waiter]:
        """The processes that wait; the one whose turn is next comes first."""
        return [Waiter(**each) for each in self.state()["waiting"]]


@contextlib.contextmanager
def _as_lease_errors() -> Any:
    try:
        yield
    except GpuServiceError as error:
        raise LeaseError(str(error)) from None
