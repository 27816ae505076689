"""A page in the browser on which a teacher marks the answers in words, by keyboard; `allranks answers LAB` starts it.

It listens on this machine only. Whoever has the address with its token may read and mark: the token opens a cookie, and a mark must
bring it in a header too, so that no other page can send one.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Iterable

from allranks.base.web_service import Service, serve_at
from allranks.machine.accounts_server import AccountsServer
from tornado import web

from autograder.pages import page
from autograder.reading import MarkedMeanwhile, Question, Reading, ReadingError
from autograder.rubric import Given, Item, RubricError

COOKIE = "allranks-reading"
HEADER = "X-Allranks-Token"
HOSTS = {"127.0.0.1", "localhost", "[::1]"}


class _Handler(Service):
    """What all answers share: who may ask, and what a browser may do with the page."""

    def initialize(self, reading: Reading, token: str, names: bool) -> None:
        self.reading, self.token, self.names = reading, token, names

    def prepare(self) -> None:
        host = self.request.host.rpartition(":")[0] or self.request.host
        if host not in HOSTS:  # another name for this machine is a page elsewhere that tries its luck
            raise web.HTTPError(403)
        given = self.get_query_argument("token", "") or self.get_cookie(COOKIE, "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise web.HTTPError(403, reason="Use the address that allranks answers printed")

    def tell(self, status: int, **told: object) -> None:
        self.set_status(status)
        self.finish(told)


class _Page(_Handler):
    def get(self) -> None:
        self.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict", path="/")
        self.finish(page("reading.html.j2", nonce=self.page_nonce("img-src data:"), token=self.token))


class _Questions(_Handler):
    def get(self) -> None:
        parts = self.reading.parts
        self.tell(200, lab=self.reading.lab, questions=[{"name": p.name, "points": p.points} for p in parts])


class _Question(_Handler):
    def get(self, number: str) -> None:
        question = _number(number, self.reading, self.reading.question)
        self.tell(200, **_as_dict(question, self.names))


class _Asked(_Handler):
    """A request that writes: its token must come in the header, and what it asks for is JSON."""

    def wanted(self, asked: dict) -> dict:
        """What is asked for; a KeyError, TypeError or ValueError if it is not there."""
        raise NotImplementedError

    def done(self, number: int, wanted: dict) -> dict:
        """Does it for the question of that number; the reply."""
        raise NotImplementedError

    def post(self, number: str) -> None:
        if not hmac.compare_digest(self.request.headers.get(HEADER, "").encode(), self.token.encode()):
            raise web.HTTPError(403)
        try:
            wanted = self.wanted(json.loads(self.request.body))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.tell(400, reason="That can't be read.")
            return
        try:
            _number(number, self.reading, lambda n: self.tell(200, **self.done(n, wanted)))
        except MarkedMeanwhile as error:
            self.tell(409, reason=str(error), items=_items(self.reading.items(int(number))), **_mark(error.given))
        except (ReadingError, RubricError) as error:
            self.tell(409, reason=str(error))


class _Mark(_Asked):
    def wanted(self, asked: dict) -> dict:
        """What `Reading.mark` takes."""
        points = None if asked["points"] is None else float(asked["points"])
        about = {"student": str(asked["student"]), "points": points, "comment": str(asked["comment"])}
        return about | {"items": [int(one) for one in asked["items"]], "seen": str(asked["seen"])}

    def done(self, number: int, wanted: dict) -> dict:
        """Marks; what holds then."""
        given = self.reading.mark(number, **wanted)
        return {"items": _items(self.reading.items(number)), **_mark(given)}


class _Item(_Asked):
    def wanted(self, asked: dict) -> dict:
        """What `Reading.change` takes."""
        points = None if asked["points"] is None else float(asked["points"])
        renamed = None if asked["renamed"] is None else str(asked["renamed"])
        about = {"name": str(asked["name"]), "points": points, "comment": str(asked["comment"]), "renamed": renamed}
        return about | {"remove": bool(asked["remove"]), "dry_run": bool(asked["dry_run"])}

    def done(self, number: int, wanted: dict) -> dict:
        """Changes the item, or says what would change."""
        changed = self.reading.change(number, **wanted)
        return {"changes": [vars(one) for one in changed.changes], "left": changed.left}


def _number(number: str, reading: Reading, then: Callable):
    if int(number) >= len(reading.parts):
        raise web.HTTPError(404)
    return then(int(number))


def _mark(given: Given) -> dict:
    return {
        "score": given.score,
        "points": given.points,
        "used": given.items,
        "comment": given.comment,
        "by": given.who,
        "seen": given.seen,
    }


def _items(items: Iterable[Item]) -> list[dict]:
    return [vars(item) for item in items]


def _as_dict(question: Question, names: bool) -> dict:
    answers = [
        {"student": a.student, "name": a.student if names else "", "shown": a.shown, **_mark(a.given)}
        for a in question.answers
    ]
    return {
        "name": question.part.name,
        "most": question.part.points,
        "task": question.task,
        "rubric": question.rubric,
        "items": _items(question.items),
        "answers": answers,
    }


def application(reading: Reading, token: str, names: bool) -> web.Application:
    """The pages, for tornado."""
    shared = {"reading": reading, "token": token, "names": names}
    routes = [
        (r"/", _Page, shared),
        (r"/questions", _Questions, shared),
        (r"/questions/(\d{1,3})", _Question, shared),
        (r"/questions/(\d{1,3})/mark", _Mark, shared),
        (r"/questions/(\d{1,3})/item", _Item, shared),
    ]
    return web.Application(routes)


async def serve(reading: Reading, port: int, names: bool, tell: Callable[[str], object]) -> None:
    """Serves until it is cancelled; `tell` gets the address. Raises ReadingError if the port is taken."""
    token = secrets.token_urlsafe(24)
    pages = application(reading, token, names)

    def told(used: int) -> None:
        tell(f"http://127.0.0.1:{used}/?token={token}")

    await serve_at("127.0.0.1", port, pages, told, 1 << 20, ReadingError, AccountsServer)
