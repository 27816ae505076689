"""The server's side of the fork server: imports what ranks need, and forks for processes of the same user."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allranks.ranks.engines import own_network
from allranks.ranks.engines.credentials import credentials_of
from allranks.ranks.engines.forkserver.loop import Client, ForkLoop
from allranks.ranks.engines.forkserver.process import adopt_orphans, die_with_parent, kill_session

WARM = (
    "numpy.random",
    "torch",
    "torch.distributed",
    "torch.nn",
    "cloudpickle",
    "tornado.platform.asyncio",
    "IPython.core.completerlib",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "ipykernel.inprocess.ipkernel",
    "ipyparallel.engine.app",
    "ipyparallel.controller.app",
    "ipyparallel.controller.heartmonitor",
    "ipyparallel.controller.dictdb",
    "ipyparallel.serialize",
    "allranks.ranks.engines.controller",
    "allranks.ranks.engines.rank",
    "allranks.theory.trace",
    "allranks.ranks.wire.rank",
)
# the first optimizer or DDP of a process imports these, which takes more than a second
LATER = ("sympy", "torch._dynamo")


class Server(ForkLoop):
    """Listens on a socket until the lifeline closes. Kills a client's children when that client's connection ends."""

    def __init__(
        self,
        path: Path,
        lifeline: int | None,
        listening: socket.socket,
        lasting: bool,
        modules: Sequence[str] = WARM,
        later: Sequence[str] = LATER,
    ) -> None:
        super().__init__(modules, later if lasting else ())
        self.path, self.lifeline, self.listening = path, lifeline, listening
        self.listening.setblocking(False)

    def prepare(self) -> None:
        """Makes this process the parent of what its children leave behind, and lets SIGTERM stop the server."""
        own_network.make()  # the process is small and has one thread
        adopt_orphans()
        signal.signal(signal.SIGTERM, lambda *_: self.stop())

    def listen(self) -> None:
        """Starts to accept clients, and to watch the lifeline."""
        self.on_ready(self.listening, self.accept)
        if self.lifeline is not None:
            self.on_ready(self.lifeline, self.stop)

    def accept(self) -> None:
        """Accepts one client, if its process belongs to our user."""
        connection, _ = self.listening.accept()
        if credentials_of(connection).uid == os.getuid():
            self.add_client(connection)
        else:
            connection.close()

    def drop(self, client: Client) -> None:
        """Forgets a client that has gone, and kills every process that was forked for it."""
        super().drop(client)
        for pid, owner in list(self.owners.items()):
            if owner is client:
                kill_session(pid)

    def become_child(self, server_pid: int, request: dict[str, Any], fds: list[int]) -> None:
        """Separates the child from the server: its own session, files and folder. It still dies with the server."""
        die_with_parent()
        if os.getppid() != server_pid:
            os._exit(1)
        self.detach(request)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.lifeline is not None:
            os.close(self.lifeline)
        self.listening.close()
        null = os.open(os.devnull, os.O_RDWR)
        out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if request["log"] else null
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        for fd in {null, out} - {0, 1, 2}:
            os.close(fd)
        os.chdir(request["cwd"])

    def child_ended(self, pid: int) -> None:
        """Kills the other processes of the child's session."""
        kill_session(pid)

    def reap(self) -> None:
        """Tells the clients which of their children have ended, and kills what those left behind."""
        super().reap()
        self.kill_orphans()

    def kill_orphans(self) -> None:
        """Kills the processes that a rank left behind: as the subreaper, we are their parent now."""
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for pid in map(int, listed):
                if pid not in self.owners:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Ends every child, then this process."""
        for pid in list(self.owners):
            kill_session(pid)
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".log").unlink(missing_ok=True)
        os._exit(0)


def main(path: str, lifeline: str, listening: str, lasting: str = "") -> None:
    """Runs the fork server. Both numbers are inherited descriptors: the lifeline and the listening socket."""
    Server(Path(path), int(lifeline), socket.socket(fileno=int(listening)), bool(lasting)).serve()
