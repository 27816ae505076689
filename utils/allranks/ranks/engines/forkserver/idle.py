"""Asks a fork server that no process owns (`idle_server`): it serves all commands of one user, and ends after a time without requests.

`allranks check` asks it: its first use starts it, and later ones find torch and the judge imported. It listens in the run
directory, which only this user can enter. Its name has a key: another environment, or a changed file of this package, gets
another server, so that an answer never comes from old code.

    code = ask("package.module:function", {"any": "JSON"}, fds=[1, 2], modules=("package.module",))
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allranks.base.rundir import RunDirError, run_dir
from allranks.ranks.engines.forkserver.client import ForkServer, ForkServerError, start_process
from allranks.ranks.engines.forkserver.process import forking_is_safe

IDLE_S = 600.0
IDLE_ENV = "ALLRANKS_IDLE_S"  # other seconds in its place; 0: no such server
PACKAGE = Path(__file__).resolve().parents[3]


def ask(
    target: str, args: dict[str, Any], *, fds: Sequence[int], modules: Sequence[str], later: Sequence[str] = ()
) -> int | None:
    """The exit code of `target(args, fds)` in a fork of this user's idle server, which is started if there is none.

    None if there can be no such server, or if it ended before it took the request: then do the work here.
    """
    idle_s = _idle_s()
    if idle_s <= 0 or not forking_is_safe():
        return None
    with contextlib.suppress(ForkServerError, RunDirError, OSError):
        server = _connect(run_dir() / f"idle-k{_key(modules)}.sock", idle_s, modules, later)
        try:
            child = server.spawn(target, args=args, fds=list(fds))
            return child.wait()
        finally:
            server.close()
    return None


def _idle_s() -> float:
    try:
        return float(os.environ.get(IDLE_ENV, IDLE_S))
    except ValueError:
        return IDLE_S


def _connect(path: Path, idle_s: float, modules: Sequence[str], later: Sequence[str]) -> ForkServer:
    """A connection to the server at `path`, which is started if nobody listens there; by one process only."""
    with contextlib.suppress(OSError):
        return ForkServer(path)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            return ForkServer(path)  # another process was quicker
        _start(path, idle_s, modules, later)
        return ForkServer(path)
    finally:
        path.with_suffix(".lock").unlink(missing_ok=True)
        os.close(lock)


def _start(path: Path, idle_s: float, modules: Sequence[str], later: Sequence[str]) -> None:
    path.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(str(path))
        listening.listen(64)
        log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, log)
        told = (path, listening.fileno(), idle_s, ",".join(modules), ",".join(later))
        start_process("allranks.ranks.engines.forkserver.idle_server", told, [listening.fileno()], log)


def _key(modules: Sequence[str]) -> str:
    """Differs for another environment, for other modules, and after any file of this package has changed."""
    newest, count = 0, 0
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = [name for name in folders if name not in ("__pycache__", "given", "teacher", "static")]
        for name in names:
            if name.endswith(".py"):
                newest = max(newest, os.stat(os.path.join(folder, name)).st_mtime_ns)
                count += 1
    # Python puts a script's folder, or the current one, first: the first differs between commands, the second with each saved answer
    lasting = sys.path if sys.flags.safe_path else sys.path[1:]
    folders_of_packages = {path for path in lasting if path and os.path.isdir(path)} - {os.getcwd()}
    installed = max((os.stat(path).st_mtime_ns for path in folders_of_packages), default=0)
    said = (sys.prefix, sys.version, str(PACKAGE), newest, count, installed, os.environ.get("PYTHONPATH"), *modules)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12]
