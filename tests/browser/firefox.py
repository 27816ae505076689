"""Debian's Firefox, driven by WebDriver BiDi over its own websocket: no driver, no build of its own."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 90


def firefox_program() -> str | None:
    return shutil.which("firefox-esr") or shutil.which("firefox")


class Firefox:
    """One window."""

    def __init__(self, address: str) -> None:
        import websocket

        self._socket = websocket.create_connection(f"{address}/session", timeout=PATIENCE_S, suppress_origin=True)
        self._numbers = itertools.count(1)
        self.call("session.new", capabilities={})
        self.window = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; a RuntimeError with what Firefox says."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            said = json.loads(self._socket.recv())
            if said.get("id") != number:
                continue
            if said["type"] == "error":
                raise RuntimeError(f"{method}: {said['error']}: {said['message']}")
            return said["result"]

    def open(self, address: str) -> None:
        self.call("browsingContext.navigate", context=self.window, url=address, wait="interactive")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, through JSON."""
        wrapped = f"(async () => JSON.stringify(await ({expression})) ?? 'null')()"
        found = self.call("script.evaluate", expression=wrapped, target={"context": self.window}, awaitPromise=True)
        if found["type"] == "exception":
            raise RuntimeError(found["exceptionDetails"]["text"])
        return json.loads(found["result"]["value"])

    def wait(self, expression: str) -> Any:
        """The expression's value once it is true."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            if value := self.evaluate(expression):
                return value
            time.sleep(0.1)
        raise TimeoutError(f"not true after {PATIENCE_S} s: {expression}")

    def type_into(self, selector: str, keys: str) -> None:
        """Clicks on the element, and presses the keys."""
        box = self.evaluate(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        at = {"x": round(box["x"] + 30), "y": round(box["y"] + 12)}
        click = [
            {"type": "pointerMove", **at},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        presses = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        pointer = {"type": "pointer", "id": "mouse", "actions": click}
        self.call("input.performActions", context=self.window, actions=[pointer])
        keyboard = {"type": "key", "id": "keyboard", "actions": presses}
        self.call("input.performActions", context=self.window, actions=[keyboard])


@contextmanager
def running_firefox() -> Iterator[Firefox]:
    """A headless Firefox with a profile of its own, gone afterwards."""
    folder = tempfile.mkdtemp(prefix="art-firefox-")
    log = Path(folder, "log")
    command = [str(firefox_program()), "--headless", "--no-remote", "--remote-debugging-port", "0", "--profile", folder]
    with open(log, "w") as file:
        process = subprocess.Popen([*command, "about:blank"], stdout=file, stderr=file)
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not (found := re.search(r"WebDriver BiDi listening on (ws://\S+)", log.read_text(errors="replace"))):
            if process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"Firefox tells no address: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)
        yield Firefox(found[1])
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
