"""A hub's service, from its start to its end."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tornado.httpserver import HTTPServer


async def serve_for_hub(server: HTTPServer) -> None:
    """Serves at the address that the hub, or the pod's configuration, names, until SIGTERM or SIGINT."""
    address = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    server.listen(address.port or 80, address.hostname or "127.0.0.1")
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.stop()
