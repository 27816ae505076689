"""The ten puzzles in headless Chromium: what is downloaded, and how soon something moves and a verdict is there."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from bench.common import ROOT, Result, median, module, spread

BYTES_PER_S = 10e6 / 8
LATENCY_S = 0.04
PIECE = 8192
FAR_MS = 180_000
# a reader's own code, of which nothing is recorded
CODE = """def pass_right(x):
    y = empty_like(x)
    if rank == 0:
        recv(y, world_size - 1)
        send(x, 1)
    else:
        send(x, (rank + 1) % world_size)
        recv(y, rank - 1)
    return y
"""
ROWS = ("front page: the ring moves", "puzzles: the picture is there", "puzzles: the first verdict on own code")


class Line(ThreadingHTTPServer):
    """A server behind a line of 10 Mbit/s that all its answers share, each 40 ms late; it counts what it sends."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(_Slowly, directory=str(folder)))
        self.sent: dict[str, int] = {}
        self._free_s = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, nbytes: int) -> None:
        """Returns when so many more bytes have passed the line."""
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic()) + nbytes / BYTES_PER_S
            until_s = self._free_s
        time.sleep(max(0.0, until_s - time.monotonic()))


class _Slowly(SimpleHTTPRequestHandler):
    server: Line

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        time.sleep(LATENCY_S)
        super().do_GET()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        while piece := source.read(PIECE):
            self.server.wait(len(piece))
            outputfile.write(piece)
            self.server.sent[name] = self.server.sent.get(name, 0) + len(piece)


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Builds the pages, and opens them `rounds` times: without any cache, then a second time."""
    jupyter_lab = module("tests/browser/jupyter_lab.py")
    live, front = module("tools/live_site.py"), module("tools/front.py")
    result = Result("Ten puzzles in the browser, on a line of 10 Mbit/s", ("what", "first visit, s", "second visit, s"))
    if why := live.missing() or ("" if jupyter_lab.chromium_program() else "no Chromium or Chrome is installed"):
        result.notes.append(f"Not measured: {why}.")
        return result
    times_s: dict[str, list[list[float]]] = {row: [[], []] for row in ROWS}
    cpu_s: list[list[float]] = [[], []]
    sent: dict[str, int] = {}
    again: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, jupyter_lab.running_chromium() as browser:
        progress("building the pages")
        live.build(Path(folder) / "live")
        page = front.page(ROOT, [], [], live.loads(Path(folder) / "live"))
        (Path(folder) / "index.html").write_text(page, encoding="utf-8")
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            server = Line(Path(folder))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            context = browser.new_context(viewport={"width": 1400, "height": 900})
            base = f"http://127.0.0.1:{server.server_port}"
            for visit in (0, 1):
                began_s = _browser_s()
                for row, seconds in _visit(context, base).items():
                    times_s[row][visit].append(seconds)
                cpu_s[visit].append(_browser_s() - began_s)
                sent, again = (dict(server.sent), {}) if visit == 0 else (sent, _more(server.sent, sent))
            context.close()
            server.shutdown()
            server.server_close()
    for row, (first, second) in times_s.items():
        cells = (f"{median(found):.1f} ({spread(found)})" for found in (first, second))
        result.rows.append((row, *cells))
    used = (f"{median(found):.1f} ({spread(found)})" for found in cpu_s)
    result.rows.append(("processor time of the whole browser for both pages", *used))
    load = ", ".join(f"{found:.0f}" for found in os.getloadavg())
    result.notes.append(
        f"Medians (least to most) of {rounds} rounds. Load averages of the machine meanwhile: {load}, where "
        f"{os.cpu_count()} would be full: other programs lengthen the seconds, not the processor time. The line is the "
        f"server's: 10 Mbit/s for all answers together, each {1000 * LATENCY_S:.0f} ms late, nothing compressed on the "
        "way. The verdict is that on code which was written as soon as the editor was there, and 1 s of silence."
    )
    result.notes += ["", f"A first visit loads {_listed(sent)}. A second visit loads {_listed(again)}."]
    return result


def _visit(context: Any, base: str) -> dict[str, float]:
    """Seconds from the call of an address to what a reader sees, by row."""
    page = context.new_page()
    page.set_default_timeout(FAR_MS)
    found = {}
    page.goto(f"{base}/index.html", wait_until="commit")
    page.bring_to_front()  # a page behind others gets no frames
    page.wait_for_function("Number(document.querySelector('.ar-player')?.dataset.position) > 0", polling=20)
    found[ROWS[0]] = page.evaluate("performance.now() / 1000")
    page.goto(f"{base}/live/puzzles.html#p=circle", wait_until="commit")
    page.wait_for_selector("body[data-ready]")
    found[ROWS[1]] = page.evaluate("performance.now() / 1000")
    page.locator(".cm-content").fill("# mine\n" + CODE)
    page.wait_for_selector('body[data-verdict="right"]')
    found[ROWS[2]] = page.evaluate("performance.now() / 1000")
    page.wait_for_selector('body[data-offline="yes"]')
    page.evaluate("localStorage.clear()")
    page.close()
    return found


def _browser_s() -> float:
    """Processor seconds of the browser's processes so far; those of ended ones are lost."""
    total_s = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "chrom" in process.name():
                total_s += sum(process.cpu_times()[:2])
    return total_s


def _more(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: size - before.get(name, 0) for name, size in now.items() if size > before.get(name, 0)}


def _listed(sent: dict[str, int]) -> str:
    """What came over the line, the largest first, in words."""
    if not sent:
        return "nothing"
    largest = sorted(sent.items(), key=lambda one: -one[1])
    names = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in largest[:9])
    rest = sum(size for _, size in largest[9:]) / 1e6
    return f"{sum(sent.values()) / 1e6:.1f} MB ({names}, others {rest:.2f})"
