"""What the course's own web services share: the headers of every answer, what a page may do, and a start and an end."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any
from urllib.parse import urlsplit

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets

from allranks.base.errors import CourseError

log = logging.getLogger(__name__)


class Service(web.RequestHandler):
    """Answers that no browser keeps, takes for another type, or names to other sites."""

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")

    def page_nonce(self, *also: str) -> str:
        """Makes this answer a page whose only scripts have the returned nonce; `also` is what else it may do."""
        nonce = secrets.token_urlsafe(16)
        policy = ("default-src 'none'", "style-src 'unsafe-inline'", f"script-src 'nonce-{nonce}'", *also)
        closed = ("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
        self.set_header("Content-Security-Policy", "; ".join(policy + closed))
        return nonce


def log_faults(handler: web.RequestHandler) -> None:
    """Writes of answers only the faults into the log, without the query, in which somebody may write a token."""
    if handler.get_status() >= 500:
        log.error("%s %s: %d", handler.request.method, handler.request.path, handler.get_status())


class FairServer(HTTPServer):
    """One that no source can take from all others by connections that it opens, by default none of an address.

    Give it `body_timeout` and `idle_connection_timeout` too: a connection that says nothing more is then closed.
    """

    most_of_source = 256

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        super().initialize(*args, **kwargs)
        self.connected: Counter[Hashable] = Counter()
        self._sources: dict[IOStream, Hashable] = {}

    def source(self, stream: IOStream, address: tuple[str, int]) -> Hashable:
        """Who is at the other end; None for one that may have any number."""
        return address[0]

    def handle_stream(self, stream: IOStream, address: tuple[str, int]) -> None:
        """Serves a new connection, or closes it if its source has too many."""
        source = self.source(stream, address)
        if source is not None:
            if self.connected[source] >= self.most_of_source:
                stream.close()
                return
            self.connected[source] += 1
            self._sources[stream] = source
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        """The connection is no longer one of its source's."""
        super().on_close(server_conn)
        source = self._sources.pop(server_conn.stream, None)
        if source is not None:
            self.connected[source] -= 1


async def serve_at(
    host: str,
    port: int,
    pages: web.Application,
    tell: Callable[[int], object],
    most: int,
    error: type[CourseError],
    kind: type[FairServer] = FairServer,
) -> None:
    """Serves until it is cancelled; `tell` gets the port, and no body has more bytes than `most`.

    `kind` says who has how many connections.

    Raises `error` if the port can't be used.
    """
    try:
        sockets = bind_sockets(port, host)
    except OSError as why:
        raise error(f"{host}:{port} can't be used ({why.strerror or why}): give another --port.") from None
    server = kind(pages, max_body_size=most, body_timeout=30.0, idle_connection_timeout=60.0)
    server.add_sockets(sockets)
    tell(sockets[0].getsockname()[1])
    try:
        await asyncio.Event().wait()
    finally:
        server.stop()


async def serve_for_hub(server: HTTPServer) -> None:
    """Serves at the address that the hub, or the pod's configuration, names, until SIGTERM or SIGINT."""
    address = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    server.listen(address.port or 80, address.hostname or "127.0.0.1")
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.stop()
