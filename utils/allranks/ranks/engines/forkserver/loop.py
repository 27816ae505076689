"""The loop of a process that forks others on request: the fork server's, and that of the grader's sandbox."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from allranks.ranks.engines.forkserver.mailbox import MAX_FDS, MAX_MESSAGE
from allranks.ranks.engines.forkserver.process import preload, reseed_random_generators, use_large_pages

QUIET_S = 1.0  # a module of `later` is imported after so many seconds without a request


class Client:
    """A client, and the connection over which its requests come."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message; does nothing if the client has gone."""
        with contextlib.suppress(OSError):
            self.connection.send(json.dumps(message).encode())


class ForkLoop:
    """Imports `modules`, then forks on request and reports how each child ended. One thread makes forking safe.

    Messages are JSON over Unix sockets that keep message boundaries (SOCK_SEQPACKET):

        {"warm": seconds, "pid": server's}                      to each client, once the imports are done
        {"id": n, "target": "module:function", "args": ...}     a request, with the descriptors for the child
        {"id": n, "pid": p}  or  {"id": n, "error": text}       its reply
        {"exit": p, "code": c}                                  the end of a child; a negative code is a signal

    The child calls `function(args, fds)`; its return value is the exit code. The modules in `later` are imported while
    no requests come. Subclasses define which clients may connect, and how a child is set up.
    """

    gpus = True  # whether the children may use GPUs
    trusts = True  # whether clients are this process's own user: then it imports a target itself, for all later forks

    def __init__(self, modules: Sequence[str], later: Sequence[str] = ()) -> None:
        self.modules, self.later = modules, list(later)
        self.selector = selectors.DefaultSelector()
        self.clients: dict[int, Client] = {}  # by descriptor
        self.owners: dict[int, Client] = {}  # by the process id of each child that lives
        self.wake, self.wake_write = socket.socketpair()
        for end in (self.wake, self.wake_write):
            end.setblocking(False)
        self.warm_s = 0.0
        self.large = False  # whether the memory has been moved into large pages

    def serve(self) -> None:
        """Imports the modules, then answers requests until the process ends."""
        self.prepare()
        signal.set_wakeup_fd(self.wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        began = time.monotonic()
        preload(*self.modules)
        self.warm_s = time.monotonic() - began
        self.on_ready(self.wake, self.reap)
        self.listen()
        while True:
            # children would keep the small pages
            waits = self.later or not (self.large or self.owners)
            ready = self.selector.select(QUIET_S if waits else None)
            for key, _ in ready:
                key.data()
            if not ready:
                self.quiet()

    def quiet(self) -> None:
        """Does what can wait, one thing after each quiet second: imports a module of `later`, at last moves the memory into large pages."""
        if self.later:
            try:
                preload(self.later.pop(0))
            except Exception:  # written to the log; a child that needs the module imports it itself
                traceback.print_exc()
        elif not self.large and not self.owners:
            use_large_pages()
            self.large = True

    def on_ready(self, readable: Any, function: Callable[[], None]) -> None:
        """Calls `function` whenever there is something to read on `readable`."""
        self.selector.register(readable, selectors.EVENT_READ, function)

    # ------------------------------------------------------------------------------------- what subclasses differ in

    def prepare(self) -> None:
        """Called before anything is imported."""

    def listen(self) -> None:
        """Called after the imports: lets clients connect from now on."""
        raise NotImplementedError

    def fork_process(self) -> int:
        """Calls `os.fork()`. A subclass can override it to do something before or after the fork."""
        return os.fork()

    def become_child(self, server_pid: int, request: dict[str, Any], fds: list[int]) -> None:
        """Called in the child, to set it up for the request; it must call `detach`."""
        raise NotImplementedError

    def child_ended(self, pid: int) -> None:
        """Called when a child has ended, before its client gets the report."""

    # ----------------------------------------------------------------------------------------------------- requests

    def add_client(self, connection: socket.socket) -> None:
        """Starts to take requests from this connection."""
        client = self.clients[connection.fileno()] = Client(connection)
        self.on_ready(connection, lambda: self.read(client))
        client.send({"warm": self.warm_s, "pid": os.getpid()})

    def read(self, client: Client) -> None:
        """Reads one request and answers it, or drops the client if the connection has ended."""
        try:
            data, fds, _, _ = socket.recv_fds(client.connection, MAX_MESSAGE, MAX_FDS)
        except OSError:
            data, fds = b"", []
        if not data:
            self.drop(client)
            return
        try:
            self.answer(client, json.loads(data), fds)
        finally:
            for fd in fds:
                os.close(fd)

    def answer(self, client: Client, request: dict[str, Any], fds: list[int]) -> None:
        """Forks, and replies."""
        try:
            reply: dict[str, Any] = {"pid": self.fork(client, request, fds)}
        except Exception as error:
            reply = {"error": f"{request.get('target')} could not be started: {type(error).__name__}: {error}"}
        client.send({"id": request["id"], **reply})

    def unwatch(self, client: Client) -> None:
        """Takes no more requests from a client."""
        self.selector.unregister(client.connection)

    def drop(self, client: Client) -> None:
        """Forgets a client that has gone."""
        self.unwatch(client)
        self.clients.pop(client.connection.fileno(), None)
        self.close(client.connection)

    def close(self, connection: socket.socket) -> None:
        """Closes a client's connection. A subclass whose clients may be anybody's lets another process do it."""
        connection.close()

    # ----------------------------------------------------------------------------------------------------- children

    def fork(self, client: Client, request: dict[str, Any], fds: list[int]) -> int:
        """Forks a child that calls the request's target and then ends; returns its process id."""
        target = _load(request) if self.trusts else None
        server_pid = os.getpid()
        pid = self.fork_process()
        if pid:
            self.owners[pid] = client
            return pid
        code = 1
        try:
            self.become_child(server_pid, request, fds)
            code = int((target or _load(request))(request["args"], fds) or 0)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code & 0xFF)  # a larger one would raise an error, and this process go on as the server

    def detach(self, request: dict[str, Any]) -> None:
        """Gives the child its own session, signals, environment and random numbers; closes the server's files."""
        if os.getsid(0) != os.getpid():
            os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        for end in (self.wake, self.wake_write, *(client.connection for client in self.clients.values())):
            end.close()
        self.selector.close()
        os.environ.clear()
        os.environ.update(request["env"])
        reseed_random_generators(self.gpus)

    def reap(self) -> None:
        """Tells the clients which of their children have ended."""
        with contextlib.suppress(BlockingIOError):
            while self.wake.recv(4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                client = self.owners.pop(pid, None)
                if client is not None:
                    self.child_ended(pid)
                    client.send({"exit": pid, "code": os.waitstatus_to_exitcode(status)})


def _load(request: dict[str, Any]) -> Callable[[Any, list[int]], int | None]:
    module, _, function = request["target"].partition(":")
    loaded: Callable[[Any, list[int]], int | None] = getattr(importlib.import_module(module), function)
    return loaded
