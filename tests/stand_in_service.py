"""A stand-in for the GPU service, which says what a test wants, and what a real one says of pretend GPUs."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any


class StandInService:
    """A GPU service's socket, which answers `says` to every question: JSON of it, bytes as they are, or nothing
    (None).
    """

    def __init__(self, path: Path, says: Any) -> None:
        self.path, self.says = path, says
        self.answers = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                if self.says is None:
                    self._kept.append(connection)
                    continue
                with connection, contextlib.suppress(OSError):
                    connection.recv(4096)
                    says = self.says if isinstance(self.says, bytes) else json.dumps(self.says).encode()
                    connection.sendall(says + b"\n")
                    self.answers += 1

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink(missing_ok=True)
        for connection in self._kept:
            connection.close()


def gpu(number: int, **more: Any) -> dict[str, Any]:
    """A GPU as the service names it."""
    about = {"index": number, "uuid": f"GPU-{number}", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}
    return {**about, "parent": None, "mode": "shared", "capability": [9, 0], **more}


def holder(user: str, since_min: float, left_min: float, pid: int = 4242) -> dict[str, Any]:
    now = time.time()
    return {"user": user, "pid": pid, "since": now - 60 * since_min, "until": now + 60 * left_min}


def waiter(user: str, gpus: int, since_min: float, shares: int | None = None, pid: int = 4300) -> dict[str, Any]:
    return {"user": user, "pid": pid, "gpus": gpus, "since": time.time() - 60 * since_min, "shares": shares}


def state(gpus: list[dict[str, Any]], holders=None, sharers=None, waiting=(), **more: Any) -> dict[str, Any]:
    """What a GPU service says of these GPUs; holders and sharers by the GPU's UUID."""
    return {
        "gpus": gpus,
        "holders": {one["uuid"]: (holders or {}).get(one["uuid"]) for one in gpus},
        "sharers": {one["uuid"]: (sharers or {}).get(one["uuid"], []) for one in gpus},
        "waiting": list(waiting),
        "unleased": [],
        "clearing": [],
        "warnings": [],
        "slice_s": 1200.0,
        "use": {},
        **more,
    }
