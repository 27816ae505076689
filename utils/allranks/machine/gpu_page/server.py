"""The server of the hub's page of GPUs (docs/gpus.md). It shows whoever is logged in what `allranks gpus` prints to every account.

    python -m allranks.machine.gpu_page.server

The hub starts it with its address, and with a token that can only ask who a visitor is. It needs no rights, and writes nothing.
"""

from __future__ import annotations

import asyncio
import html
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from tornado import web

from allranks.base.errors import CourseError
from allranks.base.theme import style
from allranks.base.web_service import Service, log_faults, serve_for_hub
from allranks.machine.accounts_server import AccountsServer
from allranks.ranks.engines.gpu_state import gpu_state

PAGE = Path(__file__).with_name("static") / "gpus.html"
READ_S = 1.0  # the GPUs are read at most so often, however many people look
PAUSE = 4  # where reading them takes long, with pauses so many times as long, up to
PAUSE_S = 10.0
WAIT_S = 1.5  # a visitor waits so long for a new reading, and then gets the last one
REMEMBER_S = 60  # how long the hub's word on who a visitor is counts
log = logging.getLogger("allranks.machine.gpu_page")


class Reading:
    """The last reading of the GPUs. `read` takes it, in a thread: it may take long, or never end."""

    def __init__(self, read: Callable[[], dict[str, Any]] = gpu_state) -> None:
        self._read = read
        self._task: asyncio.Task[None] | None = None
        self._next = 0.0  # when the next reading may begin
        self._at: float | None = None  # when the last good one ended
        self._state: dict[str, Any] | None = None
        self._error: str | None = None

    async def latest(self) -> dict[str, Any]:
        """The state, a new one if it is there in time; how old it is; and why there is no newer one ("error", or None)."""
        if self._task is None or (self._task.done() and time.monotonic() >= self._next):
            self._task = asyncio.create_task(self._take())
        await asyncio.wait({self._task}, timeout=WAIT_S)
        age_s = None if self._at is None else round(time.monotonic() - self._at, 1)
        return {"now": time.time(), "age_s": age_s, "error": self._error, "state": self._state}

    async def _take(self) -> None:
        began = time.monotonic()
        try:
            state = await asyncio.to_thread(self._read)
            json.dumps(state, allow_nan=False)
            self._state, self._error, self._at = state, None, time.monotonic()
        except CourseError as error:
            self._error = str(error)
        except Exception as error:  # one bad answer must not end the page for everybody
            log.exception("the GPUs could not be read")
            self._error = f"The GPUs could not be read ({type(error).__name__}). The hub's log says more."
        self._next = time.monotonic() + max(READ_S, min(PAUSE_S, PAUSE * (time.monotonic() - began)))


class _Handler(HubOAuthenticated, Service):  # type: ignore[misc]
    def initialize(self, reading: Reading) -> None:
        self.reading = reading

    async def prepare(self) -> None:
        await self.hub_auth.get_user(self, sync=False)  # kept for `current_user`, which else would hold up everybody


class _Page(_Handler):
    @web.authenticated
    def get(self) -> None:
        texts = {
            "style": style(),
            "nonce": self.page_nonce(),
            "xsrf": html.escape(self.xsrf_token.decode("ascii")),
            "hub": html.escape(f"{self.hub_auth.hub_host}{self.hub_auth.hub_prefix}home"),
        }
        page = PAGE.read_text(encoding="utf-8")
        for name, text in texts.items():
            page = page.replace("{{" + name + "}}", text)
        self.finish(page)


class _State(_Handler):
    """The state as JSON, and who asks: the page marks their own leases. Answers 403 to who is not logged in."""

    async def get(self) -> None:
        user = self.current_user
        if user is None:
            self.set_status(403)
            self.finish({"error": "You are logged out. Load the page again to log in."})
            return
        self.finish({"you": user["name"], **await self.reading.latest()})


def application(prefix: str, reading: Reading, **settings: Any) -> web.Application:
    """The pages below `prefix`, which ends in a slash, for tornado."""
    shared = {"reading": reading}
    below = re.escape(prefix)
    routes: list[Any] = [
        (below.rstrip("/"), web.RedirectHandler, {"url": prefix}),
        (below, _Page, shared),
        (f"{below}state", _State, shared),
        (f"{below}oauth_callback", HubOAuthCallbackHandler),
    ]
    # a visitor asks every few seconds: the log has faults only
    settings = {"log_function": log_faults, "cookie_secret": secrets.token_bytes(32), **settings}
    return web.Application(routes, **settings)


async def serve() -> None:
    """Serves at the address that the hub names, until SIGTERM or SIGINT."""
    HubOAuth.instance(cache_max_age=REMEMBER_S)
    pages = application(os.environ["JUPYTERHUB_SERVICE_PREFIX"], Reading())
    server = AccountsServer(pages, max_body_size=4096, body_timeout=30.0, idle_connection_timeout=60.0)
    await serve_for_hub(server)


def main() -> None:
    """Runs the server until it is stopped; a reading that never ends does not hold that up."""
    logging.basicConfig(level=logging.WARNING, format="gpus: %(message)s")
    logging.getLogger("tornado.application").setLevel(logging.ERROR)  # else a line for every visit without TLS
    asyncio.new_event_loop().run_until_complete(serve())
    os._exit(0)


if __name__ == "__main__":
    main()
