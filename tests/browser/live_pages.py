"""A server of the live pages, for their tests and for those of the puzzles."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

from loading import loaded

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = ROOT / "tests" / "exercises" / "puzzles" / "answers"


class Handler(SimpleHTTPRequestHandler):
    """Serves the files, and keeps the paths that were asked for."""

    def log_message(self, *arguments) -> None:
        self.server.asked.append(self.path)


def served(folder: Path) -> ThreadingHTTPServer:
    """A server of the folder on a free port, like that of `python -m http.server`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def right(puzzle: str, name: str) -> str:
    """A right answer of the known ones."""
    return (ANSWERS / puzzle / f"right_{name}.py").read_text(encoding="utf-8").rstrip()


def tool() -> ModuleType:
    """tools/live_site.py."""
    return loaded(ROOT / "tools" / "live_site.py")
