"""What every answer of the course's web services says to the browser."""

import asyncio
import re
import urllib.request

import pytest
from allranks.base.errors import CourseError
from allranks.base.web_service import Service, serve_at
from tornado import web


class Page(Service):
    def get(self) -> None:
        self.finish(self.page_nonce("img-src data:"))


async def answered(handler: type[web.RequestHandler]) -> tuple[dict[str, str], str]:
    """The headers and the body of an answer of this handler, served as the course's pages are."""
    ports: asyncio.Queue[int] = asyncio.Queue()
    pages = web.Application([("/", handler)], log_function=lambda handler: None)
    serving = asyncio.create_task(serve_at("127.0.0.1", 0, pages, ports.put_nowait, 1024, CourseError))
    port = await ports.get()

    def ask() -> tuple[dict[str, str], str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as reply:
            return dict(reply.headers), reply.read().decode()

    found = await asyncio.to_thread(ask)
    with pytest.raises(CourseError, match=rf"127.0.0.1:{port} can't be used"):
        await serve_at("127.0.0.1", port, pages, ports.put_nowait, 1024, CourseError)
    serving.cancel()
    return found


def test_a_page_runs_only_its_own_scripts_and_stays_with_its_reader():
    headers, nonce = asyncio.run(answered(Page))
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(re.split(" ", part, maxsplit=1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["script-src"] == f"'nonce-{nonce}'" and policy["img-src"] == "data:"
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert asyncio.run(answered(Page))[1] != nonce
