"""ipyparallel's controller, made to be ready at once, with ports that many who start together don't take from each other."""

from __future__ import annotations

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

from allranks.engines import ports
from allranks.engines.forkserver import die_with_parent
from allranks.engines.launchers import RANKS_ENV

EAGER_MS = 25
EAGER_S = 60
_held: list[socket.socket] = []  # for as long as this process lives


def hold_ports(n: int) -> list[int]:
    """`n` free ports that nobody else is given, in place of ipyparallel's, which it lets go of until it listens."""
    held = ports.hold(n)
    _held.extend(held)
    return [holder.getsockname()[1] for holder in held]


class EagerHeartMonitor(heartmonitor.HeartMonitor):  # type: ignore[misc]  # ipyparallel has no types
    """Beats every 25 ms until all engines are known, for a registration waits for the next beat; then in its own time."""

    def start(self) -> None:
        """Begins to beat fast."""
        super().start()
        self.expected = int(os.environ.get(RANKS_ENV, "0"))
        self.began = time.monotonic()
        self.caller.stop()
        self.caller.callback_time = EAGER_MS
        self.caller.start()

    def beat(self) -> None:
        """One beat; the last fast one sets the configured period."""
        super().beat()
        if len(self.hearts) >= self.expected or time.monotonic() - self.began > EAGER_S:
            self.caller.callback_time = self.period


def run(args: dict[str, Any], fds: list[int]) -> None:
    """Runs the controller with the arguments in `args["argv"]`; its children die with it."""
    os.register_at_fork(after_in_child=die_with_parent)
    multiprocessing.set_start_method("fork", force=True)
    sys.argv = ["ipcontroller", *args["argv"]]
    heartmonitor.HeartMonitor = EagerHeartMonitor
    util.select_random_ports = hold_ports
    app = IPController.instance()
    # ipyparallel sleeps 0.25 s so that schedulers in processes of their own can bind; ours are threads
    with mock.patch.object(time, "sleep"):
        app.initialize(args["argv"])
    app.start()
