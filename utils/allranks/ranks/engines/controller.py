"""Runs ipyparallel's controller with two changes: it registers engines faster, and it listens on Unix sockets.

Any account of the machine can connect to a TCP port. It gets nowhere without the keys, but libzmq keeps what it sends before it
asks for them: a message of a gigabyte takes a gigabyte. A Unix socket in a closed folder refuses the connection. A controller of
engines on other machines needs ports; it holds those that it chose, so that another one that starts can't take them.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import sys
import time
from typing import Any
from unittest import mock

from ipyparallel import util
from ipyparallel.controller import heartmonitor
from ipyparallel.controller.app import IPController

from allranks.ranks.engines import ports
from allranks.ranks.engines.forkserver.process import die_with_parent
from allranks.ranks.engines.launchers import RANKS_ENV

FAST_BEAT_MS = 25
FAST_BEATS_S = 60  # how long the fast beats last at most
_held: list[socket.socket] = []  # these sockets hold the ports until this process ends


def hold_ports(n: int) -> list[int]:
    """`n` free ports that no other process is given.

    It replaces ipyparallel's function, which frees its ports until it listens.
    """
    held = ports.hold(n)
    _held.extend(held)
    return [holder.getsockname()[1] for holder in held]


class Controller(IPController):  # type: ignore[misc]  # ipyparallel has no types
    """ipyparallel's controller, with the names of Unix sockets that its engines and clients look for: PATH:NUMBER."""

    def construct_url(self, kind: str, channel: str, index: int | None = None) -> str:
        """The address of a channel."""
        url: str = super().construct_url(kind, channel, index)
        return ":".join(url.rsplit("-", 1)) if url.startswith("ipc://") else url


class EagerHeartMonitor(heartmonitor.HeartMonitor):  # type: ignore[misc]  # ipyparallel has no types
    """Beats every 25 ms until all engines are known: a registration waits for the next beat. Then beats as configured."""

    def start(self) -> None:
        """Starts the fast beats."""
        super().start()
        self.expected = int(os.environ.get(RANKS_ENV, "0"))
        self.began = time.monotonic()
        self.caller.stop()
        self.caller.callback_time = FAST_BEAT_MS
        self.caller.start()

    def beat(self) -> None:
        """One beat. Sets the configured period once all engines are known, or after 60 s."""
        super().beat()
        if len(self.hearts) >= self.expected or time.monotonic() - self.began > FAST_BEATS_S:
            self.caller.callback_time = self.period


def run(args: dict[str, Any], fds: list[int]) -> None:
    """Runs the controller with the arguments in `args["argv"]`; its children die with it."""
    os.register_at_fork(after_in_child=die_with_parent)
    multiprocessing.set_start_method("fork", force=True)
    sys.argv = ["ipcontroller", *args["argv"]]
    heartmonitor.HeartMonitor = EagerHeartMonitor
    numbers = itertools.count(1)
    on_files = any(argument.endswith("transport=ipc") for argument in args["argv"])
    util.select_random_ports = (lambda n: [next(numbers) for _ in range(n)]) if on_files else hold_ports
    app = Controller.instance()
    # ipyparallel sleeps 0.25 s to give scheduler processes time to bind; our schedulers are threads
    with mock.patch.object(time, "sleep"):
        app.initialize(args["argv"])
    app.start()
