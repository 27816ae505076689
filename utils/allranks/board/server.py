"""The workshop board: who has passed what, live, for a projector. Kept in memory only; nothing is written to a disk.

Whoever has the address, which ends with a random key, may look and tell. The board takes no code and no inputs: an exercise that
there is, pass or not, and a few words.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets

from allranks.board import MAX_NAME, BoardError
from allranks.theme import style

PAGE = Path(__file__).with_name("static") / "board.html"
MAX_LEARNERS = 500
MAX_CAUSE = 120
MAX_BODY = 4096
Standings = list[tuple[str, list[tuple[str, str]]]]
EVERY_S = 0.5  # the page is told at most so often


@dataclass
class Learner:
    """One learner: the number of the row, the name if names are shown, and of each exercise the last verdict."""

    number: int
    name: str = ""
    exercises: dict[str, dict[str, Any]] = field(default_factory=dict)


class Standing:
    """What the board knows. `known` are the exercises that there are; with `names` the learners' names are kept.

    `race` gives a race's standings, (task, [(entry, score), the fastest first]), or is None if there is no race to show.
    """

    def __init__(self, known: Collection[str], names: bool, race: Callable[[], Standings] | None = None) -> None:
        self.known, self.names, self.race = frozenset(known), names, race
        self.learners: dict[str, Learner] = {}

    def take(self, told: Any) -> str | None:
        """Takes a message; returns why not, or None."""
        match told:
            case {
                "who": str(who),
                "name": str(name),
                "exercise": str(exercise),
                "passed": bool(passed),
                "cause": str(cause),
            }:
                pass
            case _:
                return "That is no message for a board."
        if not re.fullmatch(r"[0-9a-f]{16}", who) or exercise not in self.known:
            return "That is no message for a board."
        learner = self.learners.get(who)
        if learner is None:
            if len(self.learners) >= MAX_LEARNERS:
                return f"The board has {MAX_LEARNERS} learners already."
            learner = self.learners[who] = Learner(len(self.learners) + 1)
        if self.names:
            learner.name = _plain(name, MAX_NAME)
        before = learner.exercises.get(exercise, {"passed": False, "tries": 0})
        learner.exercises[exercise] = {
            "passed": passed or before["passed"],  # what was passed once stays so
            "cause": "" if passed or before["passed"] else _plain(cause, MAX_CAUSE),
            "tries": before["tries"] + 1,
        }
        return None

    def state(self) -> dict[str, Any]:
        """What the page shows: the learners in the order in which they came, and the exercises that somebody has tried."""
        tried = {exercise: None for learner in self.learners.values() for exercise in learner.exercises}
        learners = [
            {"number": one.number, "name": one.name, "exercises": one.exercises} for one in self.learners.values()
        ]
        shown = {"exercises": list(tried), "learners": learners}
        return shown if self.race is None else shown | {"race": self.race()}


def _plain(text: str, most: int) -> str:
    return "".join(c for c in text if c.isprintable())[:most].strip()


class _Handler(web.RequestHandler):
    def initialize(self, standing: Standing) -> None:
        self.standing = standing

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")


class _Page(_Handler):
    def get(self) -> None:
        nonce = secrets.token_urlsafe(16)
        self.set_header(
            "Content-Security-Policy",
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'",
        )
        page = PAGE.read_text(encoding="utf-8").replace("{{style}}", style()).replace("{{nonce}}", nonce)
        self.finish(page)


class _Tell(_Handler):
    def post(self) -> None:
        try:
            told = json.loads(self.request.body)
        except ValueError:
            told = None
        refusal = self.standing.take(told)
        self.set_status(400 if refusal else 204)
        if refusal:
            self.finish({"reason": refusal})


class _Events(_Handler):
    """Server-sent events: the whole state, again whenever it has changed."""

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        last = ""
        try:
            while True:
                state = json.dumps(self.standing.state())
                self.write(f"data: {state}\n\n" if state != last else ": still here\n\n")
                last = state
                await self.flush()
                await asyncio.sleep(EVERY_S)
        except StreamClosedError:
            return


def application(standing: Standing, key: str) -> web.Application:
    """The board's pages, for tornado; all lie below the key."""
    shared = {"standing": standing}
    routes = [(rf"/{key}/?", _Page, shared), (rf"/{key}/tell", _Tell, shared), (rf"/{key}/events", _Events, shared)]
    return web.Application(routes, log_function=lambda handler: None)  # the log would have the key


async def serve(standing: Standing, host: str, port: int, tell: Callable[[int, str], object]) -> None:
    """Serves until it is cancelled; `tell` gets the port and the key. Raises BoardError if the port can't be used."""
    try:
        sockets = bind_sockets(port, host)
    except OSError as error:
        raise BoardError(f"{host}:{port} can't be used ({error.strerror or error}): give another --port.") from None
    key = secrets.token_urlsafe(9).replace("-", "x").replace("_", "y")
    server = HTTPServer(application(standing, key), max_body_size=MAX_BODY)
    server.add_sockets(sockets)
    tell(sockets[0].getsockname()[1], key)
    try:
        await asyncio.Event().wait()
    finally:
        server.stop()
