"""A person at the hub, by its HTTP interface and a kernel's websocket: what a browser would do, without one."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field

import nbformat
import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

HOST = "hub.localhost:8000"  # as shipped
HUB = f"http://{HOST}"
# The hub lets nobody make tokens; the scene's own service, which /etc/allranks/hub.py names, makes one for each visitor
MAKES_TOKENS = "a-token-that-makes-tokens-in-tests"


def address(path: str) -> str:
    """The URL of a path: a person's server has a name of its own."""
    first, _, rest = path.lstrip("/").partition("/")
    return f"http://{rest.partition('/')[0]}.{HOST}{path}" if first == "user" else HUB + path


@dataclass
class Visitor:
    """Somebody who has logged in; every call waits for its answer."""

    name: str
    token: str = ""
    session: requests.Session = field(default_factory=requests.Session)

    @classmethod
    def log_in(cls, name: str, password: str, hub: str = HUB) -> Visitor:
        """Through the hub's login form; raises PermissionError where the hub says no."""
        visitor = cls(name)
        visitor.session.get(f"{hub}/hub/login").raise_for_status()
        form = {"username": name, "password": password, "_xsrf": visitor.xsrf()}
        answer = visitor.session.post(f"{hub}/hub/login", data=form, allow_redirects=False)
        if answer.status_code != 302:
            raise PermissionError(f"{name}: {answer.status_code}")
        visitor.session.get(f"{hub}/hub/home").raise_for_status()
        made = requests.post(
            f"{hub}/hub/api/users/{name}/tokens", json={}, headers={"Authorization": f"token {MAKES_TOKENS}"}
        )
        made.raise_for_status()
        visitor.token = made.json()["token"]
        return visitor

    def xsrf(self) -> str:
        """The newest of the hub's cookies against forged requests."""
        return [cookie.value for cookie in self.session.cookies if cookie.name == "_xsrf"][-1]

    def ask(self, method: str, path: str, **options) -> requests.Response:
        """A request with the token, whatever comes of it."""
        headers = {"Authorization": f"token {self.token}"}
        return requests.request(method, address(path), headers=headers, allow_redirects=False, timeout=120, **options)

    def call(self, method: str, path: str, **options):
        """A request that must be answered well; its JSON."""
        answer = self.ask(method, path, **options)
        if not answer.ok:
            raise RuntimeError(f"{self.name}: {method} {path}: {answer.status_code} {answer.text[-2000:]}")
        return answer.json() if answer.content else None

    def start_server(self, whose: str | None = None) -> None:
        """Asks for a server, this person's own or somebody else's; it need not be up at the return."""
        self.call("POST", f"/hub/api/users/{whose or self.name}/server")

    def wait_for_server(self, whose: str | None = None, seconds: float = 600) -> None:
        """Until the server answers."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self.ask("GET", f"/user/{whose or self.name}/api/status")
            if answer.status_code == 200:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the server of {whose or self.name} is not up: {answer.status_code} {answer.text[:500]}"
                )
            time.sleep(0.5)

    async def in_terminal(self, line: str, whose: str) -> str:
        """What a new terminal of the server shows up to the end of this line's command."""
        name = self.call("POST", f"/user/{whose}/api/terminals")["name"]
        at = address(f"/user/{whose}/terminals/websocket/{name}").replace("http", "ws", 1)
        socket = await websocket_connect(HTTPRequest(at, headers={"Authorization": f"token {self.token}"}))
        await socket.write_message(json.dumps(["stdin", f"{line}; echo 'th''e end'\r"]))
        shown = ""
        while "the end" not in shown:
            kind, text = json.loads(await socket.read_message())[:2]
            shown += text if kind == "stdout" else ""
        self.call("DELETE", f"/user/{whose}/api/terminals/{name}")
        return shown


class Kernel:
    """A kernel in somebody's own server, by its websocket."""

    def __init__(self, visitor: Visitor, directory: str) -> None:
        self.visitor = visitor
        made = visitor.call(
            "POST",
            f"/user/{visitor.name}/api/sessions",
            json={
                "path": f"{directory}/{uuid.uuid4()}.ipynb",
                "name": "",
                "type": "notebook",
                "kernel": {"name": "python3"},
            },
        )
        self.id = made["kernel"]["id"]
        self.session = uuid.uuid4().hex

    async def open(self) -> Kernel:
        """Connects; the kernel may still be starting."""
        at = address(f"/user/{self.visitor.name}/api/kernels/{self.id}/channels").replace("http", "ws", 1)
        request = HTTPRequest(
            f"{at}?session_id={self.session}", headers={"Authorization": f"token {self.visitor.token}"}
        )
        self.socket = await websocket_connect(request)
        return self

    async def run(self, source: str) -> list[nbformat.NotebookNode]:
        """Runs one cell; its outputs in notebook form, once the kernel is idle again."""
        number = uuid.uuid4().hex
        content = {"code": source, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
        header = {"msg_id": number, "msg_type": "execute_request", "session": self.session, "username": "", "version": "5.3"}  # fmt: skip
        await self.socket.write_message(
            json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"})
        )
        outputs, replied, idle = [], False, False
        while not (replied and idle):
            received = await self.socket.read_message()
            if received is None:
                raise ConnectionError(f"{self.visitor.name}'s kernel went away in: {source[:200]}")
            if isinstance(received, bytes):
                continue  # a widget's state with its buffers, which is no output
            message = json.loads(received)
            if message["parent_header"].get("msg_id") != number:
                continue
            kind = message["header"]["msg_type"]
            if kind in ("stream", "display_data", "execute_result", "error"):
                outputs.append(nbformat.v4.output_from_msg(message))
            replied = replied or kind == "execute_reply"
            idle = idle or (kind == "status" and message["content"]["execution_state"] == "idle")
        return outputs

    async def says(self, source: str) -> str:
        """What the cell printed; raises where it raised."""
        outputs = await self.run(source)
        for output in outputs:
            if output.output_type == "error":
                raise RuntimeError(f"{self.visitor.name}: {output.evalue}\n" + "\n".join(output.traceback))
        return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
