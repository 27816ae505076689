"""The hub's service through which a class hands in where people share no disk and have no accounts, as on Kubernetes.

    python -m allranks.course.exchange.server

It answers who shows a token of the hub that has the scope access:services!service=NAME; who has custom:handin:teach too is a teacher.
Who somebody is, the hub says, never the request. It keeps everything in ALLRANKS_HANDIN_FOLDER (`store`). Below its prefix:

    GET    me                                        {name, teaches}
    POST   drafts                                    {id} of a new draft
    PUT    drafts/ID/PATH                            one file of it
    POST   handed_in/LAB?draft=ID                    makes the draft one's own work: {time}
    GET    released, released/LAB/PATH               what can be fetched
    GET    pages, pages/NAME                         one's own feedback pages
    POST   released/LAB?draft=ID, pages/STUDENT?draft=ID                     of teachers, as all that follows
    GET    handed_in[/LAB], handed_in/LAB/STUDENT/TIME/PATH
    GET, DELETE people/STUDENT, people/STUDENT/pages/NAME
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import resource
from collections import Counter
from pathlib import Path
from typing import Any

from jupyterhub.services.auth import HubAuth
from tornado import web

from allranks.base.web_service import FairServer, Service, log_faults, serve_for_hub
from allranks.course.exchange.store import Denied, Draft, DraftFile, Store, person
from allranks.course.handin import MAX_TOTAL_BYTES

TEACH = "custom:handin:teach"
REMEMBER_S = 5  # a token that the hub takes back counts so long
BODY_S = 120.0  # a file must be here in this time
IDLE_S = 60.0
SHORT_BODY_S = 10.0  # any other body, which is read before its sender is known
MAX_BODY = 1024  # but for a file of a draft
MAX_AT_ONCE = 16  # requests of one person
CHUNK = 1 << 16
log = logging.getLogger("allranks.course.exchange")


class _Handler(Service):
    """Finds out who asks, before a body is read. Only tokens in the header count: no page of a browser can ask in a visitor's name."""

    counted = False

    def initialize(self, store: Store, auth: HubAuth, asking: Counter[str]) -> None:
        self.store, self.auth, self.asking = store, auth, asking

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Content-Security-Policy", "sandbox; default-src 'none'")  # files are not pages of the hub

    def check_xsrf_cookie(self) -> None:
        """Not needed: there are no cookies."""

    async def prepare(self) -> None:
        found = re.fullmatch(r"(?i:token|bearer) (\S+)", self.request.headers.get("Authorization", ""))
        try:
            about = await self.auth.user_for_token(found[1], sync=False) if found else None
        except web.HTTPError:
            log.exception("the hub did not answer")
            raise Denied(503, "The hub did not answer. Nothing was taken: try again.") from None
        if about is None:
            raise Denied(401, "The hub does not know this token. Stop and start your server, or get a new token.")
        scopes = set(about["scopes"])
        if about.get("kind") != "user" or not self.auth.check_scopes(self.auth.access_scopes, about):
            raise Denied(403, f"{about['name']} is not in this course.")
        self.who, self.teaches = person(about["name"]), TEACH in scopes
        if self.asking[self.who] >= MAX_AT_ONCE:
            raise Denied(429, f"You ask for more than {MAX_AT_ONCE} things at once. Try again in a minute.")
        self.asking[self.who] += 1
        self.counted = True

    def on_finish(self) -> None:
        """This request is no longer one of its person's."""
        if self.counted:
            self.counted = False
            self.asking[self.who] -= 1

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.on_finish()

    def teacher(self) -> None:
        if not self.teaches:
            raise Denied(403, "Only teachers of this course may do that.")

    def write_error(self, status_code: int, **about: Any) -> None:
        error = (about.get("exc_info") or (None, None))[1]
        if isinstance(error, Denied):
            self.set_status(error.status)
            said = str(error)
        else:
            said = (
                "The request is none that this service knows."
                if status_code < 500
                else "The service made a mistake; its log has it."
            )
        self.set_header("Connection", "close")  # a body that is on its way is not read
        self.finish({"error": said})

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, (Denied, web.HTTPError)):  # never the whole address: somebody may write a token there
            log.error("%s %s", self.request.method, self.request.path, exc_info=(kind, error, trace))


class _Me(_Handler):
    def get(self) -> None:
        self.finish({"name": self.who, "teaches": self.teaches})


class _Drafts(_Handler):
    def post(self) -> None:
        self.finish({"id": self.store.begin(self.who)})


@web.stream_request_body
class _DraftFile(_Handler):
    file: DraftFile | None = None
    denied: Denied | None = None

    async def prepare(self) -> None:
        await super().prepare()
        if self.request.method != "PUT":
            raise web.HTTPError(405)
        self.request.connection.set_max_body_size(MAX_TOTAL_BYTES)  # type: ignore[union-attr]
        self.request.connection.set_body_timeout(BODY_S)  # type: ignore[union-attr]
        self.file = self.store.open(self.who, *self.path_args)

    def data_received(self, chunk: bytes) -> None:
        if self.file is not None and self.denied is None:
            try:
                self.file.write(chunk)
            except Denied as reason:  # tornado sends no answer to what is raised here
                self.denied = reason

    async def put(self, _id: str, _path: str) -> None:
        if self.denied is not None:
            raise self.denied
        if self.file is not None:
            await asyncio.to_thread(self.file.complete)
        self.set_status(204)

    def on_finish(self) -> None:
        super().on_finish()
        if self.file is not None:
            self.file.close()


class _Files(_Handler):
    """Sends a file piece by piece, and takes what was sent."""

    def draft(self) -> Draft:
        """What this person has sent. Raises Denied."""
        return self.store.complete(self.who, self.get_query_argument("draft"))

    async def send(self, *names: str) -> None:
        path = self.store.file(*names)
        self.set_header("Content-Type", "application/octet-stream")
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                self.write(chunk)
                try:
                    await asyncio.wait_for(self.flush(), IDLE_S)
                except TimeoutError:  # nobody reads it
                    self.request.connection.close()  # type: ignore[union-attr]
                    return


class _Released(_Files):
    async def get(self, lab: str = "", path: str = "") -> None:
        if lab:
            await self.send("released", lab, path)
        else:
            self.finish(await asyncio.to_thread(self.store.released))

    async def post(self, lab: str = "", _path: str = "") -> None:
        self.teacher()
        await asyncio.to_thread(self.store.release, self.draft(), lab)
        self.set_status(204)


class _Pages(_Files):
    async def get(self, name: str = "") -> None:
        if name:
            await self.send("pages", self.who, name)
        else:
            self.finish(self.store.pages(self.who))

    def post(self, student: str = "") -> None:
        self.teacher()
        self.store.give_back(self.draft(), student)
        self.set_status(204)


class _HandedIn(_Files):
    async def get(self, lab: str = "*", student: str = "", stamp: str = "", path: str = "") -> None:
        self.teacher()
        if path:
            await self.send("handed_in", lab, student, stamp, path)
        else:
            self.finish(await asyncio.to_thread(self.store.handed_in, lab))

    async def post(self, lab: str = "", *_: str) -> None:
        self.finish({"time": await asyncio.to_thread(self.store.hand_in, self.who, self.draft(), lab)})


class _People(_Files):
    async def get(self, student: str, page: str = "") -> None:
        self.teacher()
        if page:
            await self.send("pages", person(student), page)
        else:
            works = await asyncio.to_thread(self.store.handed_in, "*", student)
            self.finish({"handed_in": works, "pages": list(self.store.pages(student))})

    async def delete(self, student: str, page: str = "") -> None:
        self.teacher()
        if page:
            self.store.forget_page(student, page)
        else:
            await asyncio.to_thread(self.store.forget, student)
        self.set_status(204)


class _Unknown(_Handler):
    async def prepare(self) -> None:
        raise Denied(404, "There is nothing at this address.")


def application(prefix: str, store: Store, auth: HubAuth, **settings: Any) -> web.Application:
    """The service below `prefix`, which ends in a slash, for tornado."""
    below, part = re.escape(prefix), "([^/]+)"
    routes: list[tuple[str, type[_Handler]]] = [
        ("me", _Me),
        ("drafts", _Drafts),
        (f"drafts/{part}/(.+)", _DraftFile),
        ("released", _Released),
        (f"released/{part}", _Released),
        (f"released/{part}/(.+)", _Released),
        ("pages", _Pages),
        (f"pages/{part}", _Pages),
        ("handed_in", _HandedIn),
        (f"handed_in/{part}", _HandedIn),
        (f"handed_in/{part}/{part}/{part}/(.+)", _HandedIn),
        (f"people/{part}", _People),
        (f"people/{part}/pages/{part}", _People),
        (".*", _Unknown),
    ]
    shared = {"store": store, "auth": auth, "asking": Counter[str]()}
    return web.Application(
        [(f"{below}{path}", handler, shared) for path, handler in routes],
        default_handler_class=_Unknown,
        default_handler_args=shared,
        log_function=log_faults,
        **settings,
    )


async def serve() -> None:
    """Serves at the address that the hub, or the pod's configuration, names, until SIGTERM or SIGINT."""
    os.umask(0o077)
    auth = HubAuth(cache_max_age=REMEMBER_S)
    store = Store(Path(os.environ["ALLRANKS_HANDIN_FOLDER"]))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = FairServer(
        application(os.environ["JUPYTERHUB_SERVICE_PREFIX"], store, auth),
        max_body_size=MAX_BODY,
        body_timeout=SHORT_BODY_S,
        idle_connection_timeout=IDLE_S,
    )
    await serve_for_hub(server)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="handin: %(message)s")
    asyncio.run(serve())
