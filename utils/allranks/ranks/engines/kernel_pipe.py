"""Runs ipykernel with its last open port closed: that for what a cell's own subprocesses print.

A kernel with `transport=ipc` still listens on one TCP port (`IOPubThread(pipe=True)`, ipykernel 7.4), without a key. Any account of
the machine can connect there, and the kernel keeps in memory whatever it sends. Here that socket lies beside the kernel's others.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import zmq
from ipykernel.iostream import IOPubThread
from zmq.eventloop.zmqstream import ZMQStream

_LINGER_MS = 3000  # as in ipykernel: how long a subprocess that ends waits until its output is read


def _address(thread: IOPubThread) -> str | None:
    """The address beside that of the kernel's iopub socket; None if that is no Unix socket."""
    at = thread.socket.getsockopt(zmq.LAST_ENDPOINT) if hasattr(thread.socket, "getsockopt") else b""
    address = at.rstrip(b"\0").decode()
    return f"{address}p" if address.startswith("ipc://") else None


def close_to_others() -> None:
    """From now on a new kernel of this process listens for its subprocesses on a Unix socket, if it uses these otherwise.

    Example:
        >>> from allranks.ranks.engines import kernel_pipe
        >>> kernel_pipe.close_to_others()
    """
    thread: Any = IOPubThread
    setup_in, setup_out = thread._setup_pipe_in, thread._setup_pipe_out
    if getattr(setup_in, "closed", False):
        return

    def pipe_in(self: Any) -> None:
        self._pipe_address = _address(self)
        if self._pipe_address is None:
            setup_in(self)
            return
        self._pipe_uuid = os.urandom(16)
        socket = self.socket.context.socket(zmq.PULL)
        socket.linger = 0
        socket.bind(self._pipe_address)
        self._pipe_in = ZMQStream(socket, self.io_loop)
        self._pipe_in.on_recv(self._handle_pipe_msg)

    def pipe_out(self: Any) -> Any:
        if self._pipe_address is None:
            return setup_out(self)
        context = zmq.Context()  # a fork can't use its parent's
        socket = context.socket(zmq.PUSH)
        socket.linger = _LINGER_MS
        socket.connect(self._pipe_address)
        return context, socket

    pipe_in.closed = True  # type: ignore[attr-defined]
    thread._setup_pipe_in, thread._setup_pipe_out = pipe_in, pipe_out


def forget_the_package() -> None:
    """Unloads this package: the notebook's own import then defines the magics, and sees files edited since."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "allranks"]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "allranks"]


def run() -> None:
    """Runs ipykernel with this program's arguments (`-f CONNECTION_FILE`) until it is told to stop."""
    from ipykernel.kernelapp import launch_new_instance

    close_to_others()
    forget_the_package()
    sys.argv[0] = "ipykernel_launcher"
    launch_new_instance()
