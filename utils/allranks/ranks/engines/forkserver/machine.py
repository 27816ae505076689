"""Root's fork server for all people of a machine: their Jupyter servers and fork servers share the memory of its imports.

Each person's server and fork server import the same 300 MB. Here one process of root's imports them, without any secret, and forks
for whoever connects to its socket, once a connection. The fork closes what is other people's, becomes a process of that account
(`Peer.adopt`: control group, limits, mounts), and only then reads what it shall run; root's own process never reads a request. JupyterHub starts it (deploy/jupyterhub_config.py):

    env -i PATH=... python -m allranks.ranks.engines.forkserver.machine SOCKET g1001,g1002,u1003

It serves accounts of these groups, and these accounts (by number), no others.

It imports in an environment of nobody's, and a fork looks up anew what modules keep of it (`anew`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import runpy
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from allranks.ranks.engines.credentials import credentials_of
from allranks.ranks.engines.forkserver.anew import NOBODY, environment, look_up_anew
from allranks.ranks.engines.forkserver.loop import Client, ForkLoop
from allranks.ranks.engines.forkserver.mailbox import MAX_FDS, MAX_MESSAGE
from allranks.ranks.engines.forkserver.peer import Peer, PeerError, keep_needed_rights
from allranks.ranks.engines.forkserver.process import die_with_parent, kill_session, preload
from allranks.ranks.engines.forkserver.server import LATER, WARM

SOCKET_ENV = "ALLRANKS_MACHINE_SOCKET"
WAIT_S = 60.0  # in all: the first to connect after the hub's start wait for the imports
ENDS_S = 10.0  # how long a program may take to end after its asker
MOST_CLIENTS = 64  # of one account, with the forks of those that have gone
MOST_IN_ALL = (
    2048  # an account may have thousands of other numbers (/etc/subuid), of which each counts as an account here
)
CLOSING_S = 2  # how long what clients left is kept: a fork that has it too closes its own in less
CLOSER_S = 10.0  # then the process that closes it waits for a file system of somebody's, and another one takes the next
RETRY_S = 1.0  # where no descriptor is left
TITLE_NBYTES = 400  # room for the titles of forks in `ps`
# what a person's Jupyter server imports; what is not installed is left out. Of JupyterHub only that which does not look for its
# server's variables when it is imported: in JupyterHub's `auth` the path of cookies, which the others would have from nobody
JUPYTER = (
    "jupyterhub.orm",
    "jupyterhub.roles",
    "jupyterhub.scopes",
    "jupyterhub.spawner",
    "jupyterhub.log",
    "jupyter_server.serverapp",
    "jupyterlab.labapp",
    "jupyter_server_terminals",
    "jupyter_lsp",
    "jupyterlab_jupytext",
    "notebook",
    "notebook_shim",
    "nbgrader.server_extensions.assignment_list",
    "nbgrader.server_extensions.course_list",
    "nbgrader.server_extensions.validate_assignment",
    # of what notebooks import, that which does not look for a kernel when it is imported, as ipywidgets and matplotlib do
    "psygnal",
    "numpy.ma",
    "PIL.Image",
    "pyparsing",
    "kiwisolver",
    "fontTools.misc.loggingTools",
)


class MachineServer(ForkLoop):
    """Forks for the accounts of `who`: their numbers and those of groups, "u1003" and "g1001"; never for root.

    Only the fork reads the request, after it has given up root's rights.
    """

    trusts = False

    def __init__(
        self, path: Path, who: Collection[str], modules: Sequence[str] = (*WARM, *LATER), more: Sequence[str] = JUPYTER
    ) -> None:
        super().__init__(modules, ())
        self.path, self.who, self.more = path, frozenset(who), more
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.handed: set[Client] = set()  # whose request a fork has taken
        self.hangups = select.epoll()  # tells of their ends only: what else they send is not for this process
        self.left: list[socket.socket] = []  # connections that are over, and not closed yet
        self.closer = -1  # tells of the end of the process that closes them
        self.closer_until = 0.0
        self.full = False  # whether no descriptor was left: then nobody is accepted until some are closed

    def prepare(self) -> None:
        """Listens: whoever connects waits until the imports are done. Ends with the process that started it."""
        die_with_parent()
        keep_needed_rights()
        os.umask(0o022)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        make_own_folder(self.path.with_name(NOBODY))
        listen_at(self.listening, self.path)
        self.listening.setblocking(False)
        os.chdir("/")  # a fork that stays where it is must not be in a folder of root's
        for name in self.more:
            with contextlib.suppress(ImportError):
                preload(name)

    def listen(self) -> None:
        """Accepts clients from now on."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the hub ends its services with it
        signal.signal(signal.SIGALRM, lambda *_: None)  # wakes the loop
        self.on_ready(self.listening, self.accept)
        self.on_ready(self.hangups, self.hung_up)

    def accept(self) -> None:
        """Accepts a process that can have a fork; tells others why not."""
        try:
            connection, _ = self.listening.accept()
        except BlockingIOError:
            return
        except OSError:  # the listening socket would stay ready for ever
            self.full = True
            self.selector.unregister(self.listening)
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
            return
        connection.setblocking(False)
        peer = None
        try:
            peer = Peer(connection)
            if self.who.isdisjoint(peer.names()):
                raise PeerError("it forks for the hub's accounts only")
            peer.check()
            self.check_room(peer.uid)
        except Exception as error:  # whatever it is: nobody ends this process for the others
            with contextlib.suppress(OSError):
                connection.send(json.dumps({"error": str(error)}).encode())
            self.close(connection)
            if peer is not None:
                peer.close()
            return
        self.add_client(connection)
        self.clients[connection.fileno()].peer = peer  # type: ignore[attr-defined]

    def check_room(self, uid: int) -> None:
        """Raises PeerError if an account has too many connections. A fork is one until it has ended: a kill may have to wait."""
        counted = {*self.clients.values(), *self.owners.values()}
        if len(counted) >= MOST_IN_ALL:
            raise PeerError("there are too many connections")
        if sum(client.peer.uid == uid for client in counted) >= MOST_CLIENTS:  # type: ignore[attr-defined]
            raise PeerError("this account has too many connections")

    def read(self, client: Client) -> None:
        """Forks for a request without reading it: what root's process has read, the forks of other people would have too."""
        try:
            if not client.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionError("it has gone")
            client.peer.check()  # type: ignore[attr-defined]
            self.now = client
            pid = self.fork(client, {}, [])
            self.hangups.register(client.connection, 0)
        except Exception as error:
            client.send({"error": str(error)})
            self.drop(client)
            return
        self.unwatch(client)
        self.handed.add(client)
        client.send({"pid": pid})

    def close(self, connection: socket.socket) -> None:
        """Ends a connection, which another process then closes.

        What a client has sent and nobody has received may hold the last reference to any file of theirs. To close that can take
        as long as they like: a TCP connection may linger. A process that ends does not wait for it.
        """
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # nothing more comes
        self.left.append(connection)
        self.close_left()

    def close_left(self) -> None:
        """Starts the process that closes what has been left, unless one is at it."""
        if not self.left or (self.closer >= 0 and time.monotonic() < self.closer_until):
            return
        for connection in self.left:
            connection.set_inheritable(True)
        try:
            # a small program: a fork that can't end would keep all this memory
            pid = os.posix_spawnp("sleep", ["sleep", str(CLOSING_S)], os.environ)
        except OSError:
            return  # with the next one
        while self.left:
            self.left.pop().close()
        self.forget_closer()
        self.closer, self.closer_until = os.pidfd_open(pid), time.monotonic() + CLOSER_S
        self.on_ready(self.closer, self.closed)

    def closed(self) -> None:
        """The process has ended that closed what was left; the next one takes what has been left meanwhile."""
        self.forget_closer()
        self.close_left()

    def forget_closer(self) -> None:
        """Waits no more for the process that closes what was left."""
        if self.closer >= 0:
            self.selector.unregister(self.closer)
            os.close(self.closer)
            self.closer = -1

    def reap(self) -> None:
        """Tells clients that their fork has ended, and forgets them: a connection has one fork. Each signal calls this."""
        super().reap()
        if self.full:
            self.full = False
            self.on_ready(self.listening, self.accept)
        for client in self.handed - set(self.owners.values()):
            self.drop(client)
        self.close_left()

    def hung_up(self) -> None:
        """Drops the clients that have gone after their fork was made."""
        for descriptor, _ in self.hangups.poll(0):
            if descriptor in self.clients:
                self.drop(self.clients[descriptor])

    def unwatch(self, client: Client) -> None:
        """Looks no more at what a client sends, or at its end."""
        if client in self.handed:
            self.hangups.unregister(client.connection)
        else:
            super().unwatch(client)

    def drop(self, client: Client) -> None:
        """Forgets a client that has gone, and ends what was forked for it."""
        if self.clients.get(client.connection.fileno()) is not client:
            return
        super().drop(client)
        self.handed.discard(client)
        client.peer.close()  # type: ignore[attr-defined]
        for pid, owner in list(self.owners.items()):
            if owner is client:
                kill_session(pid)

    def become_child(self, server_pid: int, request: dict[str, Any], fds: list[int]) -> None:
        """Becomes a process of the client's account with nothing of other people's; only then reads the request."""
        client = self.now
        os.setsid()
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(null)
        for closed in (self.listening, self.selector, self.hangups, self.wake, self.wake_write):
            closed.close()
        for connection in self.left:
            connection.close()
        if self.closer >= 0:
            os.close(self.closer)
        for other in self.clients.values():
            if other is not client:
                other.connection.close()
                other.peer.close()  # type: ignore[attr-defined]
        try:
            client.peer.adopt()  # type: ignore[attr-defined]
        except BaseException:
            os._exit(1)  # with no traceback: to write one looks up files, and the mounts may be the peer's by now
        client.peer.close()  # type: ignore[attr-defined]
        data, received, *_ = socket.recv_fds(client.connection, MAX_MESSAGE, MAX_FDS)
        fds += received
        request |= json.loads(data)
        self.detach(request)
        look_up_anew()
        os.umask(int(request["umask"]))
        os.chdir(request["cwd"])


def listen_at(listening: socket.socket, path: Path) -> None:
    """Listens at this path for everybody. It has its name once it answers: nobody who sees it is refused."""
    fresh = path.with_name(f"{path.name}~")
    fresh.unlink(missing_ok=True)
    listening.bind(str(fresh))
    fresh.chmod(0o666)
    listening.listen(256)
    fresh.rename(path)


def make_own_folder(path: Path) -> None:
    """Makes a folder that only this account can open. Raises PeerError if somebody else has made something there."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PeerError(f"{path} is not this account's own: the socket needs a folder that only root can write")


class Fork:
    """A process of this account that the machine's fork server has forked for us. It ends with this object's connection."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid, self._connection = pid, connection
        self._pidfd = os.pidfd_open(pid)
        os.register_at_fork(after_in_child=connection.close)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; returns 0, for only its parent knows the exit code. Raises subprocess.TimeoutExpired."""
        ended = select.poll()  # select() takes no descriptor above 1023
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired("fork", timeout or 0.0)
        return 0

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)


def spawn(target: str, args: Any, fds: Sequence[int], more_env: dict[str, str] | None = None) -> Fork | None:
    """Has the machine's fork server run `target(args, fds)` as a process of this account.

    None if there is no such server (`ALLRANKS_MACHINE_SOCKET` names its socket), or if it refuses: then do it here.
    """
    path = os.environ.get(SOCKET_ENV)
    if not path:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    umask = os.umask(0o077)
    os.umask(umask)
    env = {**os.environ, **(more_env or {})}
    request = {"id": 1, "target": target, "args": args, "env": env, "cwd": os.getcwd(), "umask": umask}
    until = time.monotonic() + WAIT_S
    try:
        # a place in its queue: with `settimeout` there would be an error at once where the queue is full
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(WAIT_S), 0))
        connection.connect(path)
        if credentials_of(connection).uid != 0:
            raise OSError("it is not root's")
        if "warm" not in (said := _said(connection, until)):
            raise OSError(said.get("error", "it ended"))
        socket.send_fds(connection, [json.dumps(request).encode()], fds)
        if "pid" not in (said := _said(connection, until)):
            raise OSError(said.get("error", "it ended"))
        connection.settimeout(None)
        return Fork(connection, said["pid"])
    except (OSError, ValueError) as error:
        connection.close()
        print(f"The machine's fork server ({path}) gives no fork: {error}", file=sys.stderr)
        return None


def _said(connection: socket.socket, until: float) -> dict[str, Any]:
    """The next message; empty if there is none any more. Raises TimeoutError if none comes before `until`."""
    connection.settimeout(max(0.1, until - time.monotonic()))
    said: dict[str, Any] = json.loads(connection.recv(MAX_MESSAGE) or b"{}")
    return said


# ---------------------------------------------------------------------------------------------- what a fork can be told


def program(args: dict[str, Any], fds: list[int]) -> None:
    """Runs a Python file as `__main__`, until the process that asked for it has gone: the other end of `fds[0]` is then closed.

    `fds[1]` and `fds[2]` are its stdout and stderr.
    """
    lifeline, out, err = fds
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    set_title(args["title"])
    threading.Thread(target=_end_with, args=(lifeline,), name="allranks-lifeline", daemon=True).start()
    sys.argv = args["argv"]
    sys.path.insert(0, os.path.dirname(args["argv"][0]))
    runpy.run_path(args["argv"][0], run_name="__main__")


def _end_with(lifeline: int) -> None:
    with contextlib.suppress(OSError):
        os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ENDS_S)
    kill_session(os.getpid())


def fork_server(args: dict[str, Any], fds: list[int]) -> None:
    """Serves as a person's fork server; `fds` are its lifeline, its listening socket and its log."""
    from allranks.ranks.engines.forkserver.server import Server

    lifeline, listening, log = fds
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    set_title(f"python -m allranks.ranks.engines.forkserver {args['path']}")
    server = Server(Path(args["path"]), lifeline, socket.socket(fileno=listening), lasting=False)
    server.large = True  # its pages are shared with others': to move them would copy them
    server.serve()


def set_title(text: str) -> None:
    """What `ps` shows as this process's command line. It lies where the old one was, so it can't be longer."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        room = end - begin - 2
        # a last byte that is not 0 tells the kernel that the line ends at the first 0
        if begin and room > 0:
            ctypes.memmove(begin, text.encode()[:room].ljust(room + 1, b"\0") + b"x", end - begin)


def main(path: str, who: str, padding: str = "") -> None:
    """Runs the server; with no padding it first executes itself anew: with one, in which forks write their titles, and as nobody.

    Nothing of the process that started it goes along, but three descriptors, of which forks get none.
    """
    if not padding:
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        command = [sys.executable, "-I", "-m", __spec__.name, path, who, "-" * TITLE_NBYTES]
        os.execve(sys.executable, command, environment(Path(path).parent))
    set_title(f"python -m {__spec__.name} {path} {who}")
    MachineServer(Path(path), who.split(",")).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
