"""Starts notebook kernels as forks of the fork server: they start at once, and torch is already imported.

`name_to_jupyter` tells Jupyter to start kernels in this way. Kernels that are not the ipykernel of this environment start as
usual. Where no fork server can be reached, ipykernel is launched, with the same sockets as a fork (`kernel_pipe`).
https://jupyter-client.readthedocs.io/en/stable/provisioning.html
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner

from allranks.ranks.engines import ports
from allranks.ranks.engines.forkserver.client import ForkServer, ForkServerError
from allranks.ranks.engines.forkserver.mailbox import Child
from allranks.ranks.engines.forkserver.process import adopt_orphans
from allranks.ranks.engines.unread import leave_modules_unread

NAME = "allranks-warm"  # as in pyproject.toml
# runs ipykernel without its open port; the notebook's folder is not searched while it imports, as in ipykernel_launcher
CLOSED = "import sys; sys.path[:] = filter(None, sys.path); from allranks.ranks.engines import kernel_pipe; kernel_pipe.run()"
# folders of others' work in a course: a file jedi.py there would run when a teacher types in the notebook beside it
HANDED_IN, NO_IMPORTS = frozenset({"submitted", "autograded"}), "--InteractiveShellApp.ignore_cwd=True"
NAME_ENV = "JUPYTER_DEFAULT_PROVISIONER_NAME"
_PR_SET_NAME = 15
_PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
# fork servers by the paths of their sockets; the connections stay open, because kernels end with their connection
_connections: dict[str, ForkServer] = {}


# what our kernels say of their language, and what the course's notebooks hold: without the version of this Python, which
# JupyterLab would write into each notebook that is opened, and ask to save it
LANGUAGE_INFO: dict[str, Any] = {
    "name": "python",
    "version": "3",
    "mimetype": "text/x-python",
    "codemirror_mode": {"name": "ipython", "version": 3},
    "pygments_lexer": "ipython3",
    "nbconvert_exporter": "python",
    "file_extension": ".py",
}


def warm_for_jupyter() -> None:
    """Starts one fork server for the kernels and ranks of all notebooks of this process's Jupyter. It ends with this process.

    Raises ForkServerError if it can't be started.
    """
    os.environ["ALLRANKS_FORKSERVER"] = str(ForkServer.start(lasting=True).path)
    name_to_jupyter()


def name_to_jupyter() -> None:
    """Makes a Jupyter that this process starts use our way of starting kernels, unless the user chose another one."""
    if entry_points(group="jupyter_client.kernel_provisioners", name=NAME):
        os.environ.setdefault(NAME_ENV, NAME)


class WarmProvisioner(LocalProvisioner):
    """Forks the kernel from the fork server that `ALLRANKS_FORKSERVER` names in the kernel's environment."""

    process: Any = None
    _held: tuple[socket.socket, ...] = ()

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Chooses the kernel's ports and holds them until the kernel ends; then does what Jupyter does."""
        manager = self.parent
        if manager and manager.cache_ports and not self.ports_cached:
            with contextlib.suppress(OSError):  # the address is not this machine's: Jupyter reports that
                self._held = tuple(ports.hold(len(_PORTS), manager.ip))
                for name, holder in zip(_PORTS, self._held, strict=True):
                    setattr(manager, name, holder.getsockname()[1])
                self.ports_cached = True
        return await super().pre_launch(**kwargs)

    async def cleanup(self, restart: bool = False) -> None:
        """Frees the ports, unless the kernel restarts."""
        await super().cleanup(restart)
        if not restart:
            for holder in self._held:
                holder.close()
            self._held = ()

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Starts the kernel; returns its connection."""
        env = kwargs.get("env") or dict(os.environ)
        shared = env.get("ALLRANKS_FORKSERVER")
        if not _is_our_ipykernel(cmd):
            return await super().launch_kernel(cmd, **kwargs)
        cwd = Path(kwargs.get("cwd") or ".").absolute()
        arguments = [*cmd[3:], *([] if HANDED_IN.isdisjoint(cwd.parts) else [NO_IMPORTS])]
        launched = [cmd[0], "-c", CLOSED, *arguments]
        if not shared:
            return await super().launch_kernel(launched, **kwargs)
        try:
            child = await asyncio.to_thread(_fork, shared, arguments, env, str(cwd))
        except (OSError, ForkServerError) as error:
            self.log.warning("The kernel is not forked from the fork server but launched: %s", error)
            return await super().launch_kernel(launched, **kwargs)
        self.process = _Process(child)
        self.pid = self.pgid = child.pid  # the kernel leads its own session
        self.cwd = cwd
        return self.connection_info


class _Process:
    """A forked kernel with the methods of Popen that LocalProvisioner calls."""

    stdin = stdout = stderr = None

    def __init__(self, child: Child) -> None:
        self.pid = child.pid
        self.poll, self.wait = child.poll, child.wait
        self.send_signal, self.kill = child.kill, child.kill

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _is_our_ipykernel(cmd: list[str]) -> bool:
    found = shutil.which(cmd[0])
    return cmd[1:3] == ["-m", "ipykernel_launcher"] and found is not None and _same(found, sys.executable)


def _same(a: str, b: str) -> bool:
    """Whether two paths name the Python of one environment.

    Compares folders: all environments link to the same binary.
    """
    return Path(a).parent.resolve() == Path(b).parent.resolve()


def _fork(shared: str, argv: list[str], env: dict[str, str], cwd: str) -> Child:
    forkserver = _connections.get(shared)
    if forkserver is None or not forkserver.alive:
        forkserver = _connections[shared] = ForkServer(Path(shared))
    outputs = [fd for fd in (1, 2) if _is_open(fd)]
    return forkserver.spawn(
        f"{__name__}:kernel", args={"argv": argv, "outputs": outputs}, env=env, fds=outputs, cwd=cwd
    )


def _is_open(fd: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(fd)
        return True
    return False


def kernel(args: dict[str, Any], fds: list[int]) -> None:
    """Runs ipykernel, in the fork, with the arguments `args["argv"]` until it is told to stop."""
    for fd, number in zip(fds, args["outputs"], strict=True):  # what it prints goes where the server's output goes
        os.dup2(fd, number)
        os.close(fd)
    leave_modules_unread()
    with contextlib.suppress(ValueError):
        sys.path.remove("/")  # the fork server's folder; IPython adds the notebook's
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp

    from allranks.ranks.engines import kernel_pipe

    IPythonKernel.language_info = LANGUAGE_INFO
    kernel_pipe.close_to_others()
    kernel_pipe.forget_the_package()

    adopt_orphans()  # else the fork server kills what a cell runs in the background
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"ipykernel")  # the name in `top`; the command line stays the fork server's
    argv = args["argv"]
    if not any("log" in argument for argument in argv):
        argv = [
            *argv,
            "--IPKernelApp.log_level=ERROR",
        ]  # else each notebook warns in the reader's terminal of what is no fault
    sys.argv = ["ipykernel_launcher", *argv]
    IPKernelApp.launch_instance(argv, parent_handle=os.getppid())
