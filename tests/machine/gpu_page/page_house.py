"""The page of GPUs as the hub starts it, with a stand-in for the hub that knows three people."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from allranks.ranks.engines import ports

PREFIX = "/services/gpus/"
SCOPES = ["access:services!service=gpus"]
PEOPLE = {"token-of-ana": ("ana", SCOPES), "token-of-ben": ("ben", SCOPES), "token-of-eve": ("eve", [])}


@contextlib.contextmanager
def stand_in_hub() -> Iterator[str]:
    """The address of the API of a hub that only answers who has a token."""

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = PEOPLE.get(self.headers.get("Authorization", "").removeprefix("token "))
            self.send_response(200 if found else 403)
            self.end_headers()
            if found:
                name, scopes = found
                about = {"name": name, "kind": "user", "scopes": scopes, "groups": [], "admin": False}
                self.wfile.write(json.dumps(about).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hub/api"
        server.shutdown()


@contextlib.contextmanager
def serving(hub: str, **environment: str) -> Iterator[str]:
    """The page's address, while its server runs as the hub starts it."""
    [held] = ports.hold(1, "127.0.0.1")
    port = held.getsockname()[1]
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("ALLRANKS_", "JUPYTERHUB_"))},
        "JUPYTERHUB_SERVICE_NAME": "gpus",
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}",
        "JUPYTERHUB_SERVICE_PREFIX": PREFIX,
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_API_URL": hub,
        "JUPYTERHUB_API_TOKEN": "the-services-own",
        "JUPYTERHUB_CLIENT_ID": "service-gpus",
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps(SCOPES),
        **environment,
    }
    server = subprocess.Popen([sys.executable, "-m", "allranks.machine.gpu_page.server"], env=env)
    address = f"http://127.0.0.1:{port}{PREFIX}"
    try:
        deadline = time.monotonic() + 90
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 30).close()
                break
            assert server.poll() is None and time.monotonic() < deadline, "the page's server does not answer"
            time.sleep(0.05)
        yield address
    finally:
        server.terminate()
        code = server.wait(60)
        held.close()
        assert code == 0


def ask(address: str, token: str | None = "token-of-ana") -> tuple[int, Any, dict[str, str]]:
    """(status, JSON or text, headers) of one request, without following where it leads."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    request = urllib.request.Request(address, headers={"Authorization": f"token {token}"} if token else {})
    try:
        reply = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay).open(request, timeout=60)
    except urllib.error.HTTPError as error:
        reply = error
    with reply:
        text, headers = reply.read().decode(), dict(reply.headers)
    return reply.status, json.loads(text) if "json" in headers.get("Content-Type", "") else text, headers
