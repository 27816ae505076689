"""What every answer of the course's web services says to the browser."""

import asyncio
import os
import re
import sys
import urllib.request

import pytest
from allranks.base.errors import CourseError
from allranks.base.web_service import Service, serve_at
from allranks.machine.accounts_server import AccountsServer
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


# As another account: opens connections that say nothing, and tells how many the server keeps
CROWD = """
import os, select, socket, sys
"x".encode("idna")  # read now: that account may not enter the interpreter's folder
os.setgid(65534), os.setuid(65534)
crowd = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(150)]
while gone := select.select(crowd, [], [], 3)[0]:
    crowd = [one for one in crowd if one not in gone]
print(len(crowd), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user")
def test_one_account_leaves_connections_to_the_others():
    """It has 64, and 64 again once they are closed; root, whose proxy asks for everybody, has any number."""

    async def crowds() -> list[int]:
        ports: asyncio.Queue[int] = asyncio.Queue()
        pages = web.Application([("/", Page)], log_function=lambda handler: None)
        serving = asyncio.create_task(
            serve_at("127.0.0.1", 0, pages, ports.put_nowait, 1024, CourseError, AccountsServer)
        )
        port = await ports.get()
        kept = []
        for _ in range(2):
            pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
            crowd = await asyncio.create_subprocess_exec(sys.executable, "-c", CROWD, str(port), **pipes)
            kept.append(int(await crowd.stdout.readline()))
            mine = [await asyncio.open_connection("127.0.0.1", port) for _ in range(70)]
            mine[-1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await mine[-1][0].readline()).startswith(b"HTTP/1.1 200")
            for _, writer in mine:
                writer.close()
            crowd.stdin.close()
            await crowd.wait()
        serving.cancel()
        return kept

    assert asyncio.run(crowds()) == [AccountsServer.most_of_source] * 2


def test_a_page_runs_only_its_own_scripts_and_stays_with_its_reader():
    headers, nonce = asyncio.run(answered(Page))
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(re.split(" ", part, maxsplit=1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["script-src"] == f"'nonce-{nonce}'" and policy["img-src"] == "data:"
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert asyncio.run(answered(Page))[1] != nonce
