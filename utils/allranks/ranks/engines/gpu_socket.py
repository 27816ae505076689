"""Questions to the service that opens GPUs (`allranks gpus --serve`), where an administrator runs it: one JSON line each way."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from allranks.base.errors import CourseError
from allranks.ranks.engines.credentials import credentials_of

SOCKET_ENV = "ALLRANKS_GPU_SOCKET"
SOCKET = Path("/run/allranks/gpus.sock")  # only root can make it there
ANSWER_S = 10.0


class GpuServiceError(CourseError):
    """The service that opens GPUs does not answer, or refuses; the message says why."""


def where() -> Path | None:
    """The service's socket; None where there is no service, and for pretend GPUs that name none."""
    named = os.environ.get(SOCKET_ENV)
    if named:
        return Path(named)
    return SOCKET if SOCKET.exists() and not os.environ.get("ALLRANKS_INVENTORY") else None


def call(path: Path, question: dict[str, Any]) -> socket.socket:
    """A connection on which the question was asked.

    Raises GpuServiceError if nobody listens, or somebody who is neither root nor this user.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_S)
        connection.connect(str(path))
        uid = credentials_of(connection).uid
        if uid not in (0, os.getuid()):
            raise GpuServiceError(f"The GPU service at {path} is not root's but that of account {uid}: it is not used.")
        connection.sendall(json.dumps(question).encode() + b"\n")
    except OSError as error:
        connection.close()
        raise GpuServiceError(
            f"The GPU service of this machine ({path}) does not answer: {error.strerror or error}. "
            "Its administrator can look at it: systemctl status allranks-gpus"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def state(path: Path) -> dict[str, Any]:
    """Everything that the service tells everybody: GPUs, holders, sharers, who waits, and use without a lease."""
    with call(path, {"ask": "state"}) as connection, connection.makefile("rb") as answer:
        try:
            found = json.loads(answer.readline())
        except (OSError, ValueError, RecursionError) as error:
            raise GpuServiceError(f"The GPU service at {path} gives no answer: {error}.") from None
    if not isinstance(found, dict):
        raise GpuServiceError(f"The GPU service at {path} gives no answer that can be read.")
    if "error" in found:
        raise GpuServiceError(str(found["error"]))
    return found
