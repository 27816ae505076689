"""A JupyterLab of one's own and a headless Chromium: for the tests here and for `bench/player.py`."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import nbformat
from allranks.ranks.engines import kernels, ports
from allranks.ranks.engines.forkserver.client import ForkServer

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_S = 150  # for a server to start
_OPENED = """async () => {
  const within = (what, promise) => Promise.race([promise, new Promise((_, no) =>
    setTimeout(() => no(new Error(`${what} took more than 120 s`)), 120000))]);
  const panel = window.jupyterapp.shell.currentWidget;
  await within("revealing the notebook", panel.revealed);
  await within("its document", panel.context.ready);
  await within("its session", panel.sessionContext.ready);
  await within("the kernel's answer", panel.sessionContext.session.kernel.info);
  const kernel = panel.sessionContext.session.kernel;
  await within("an idle kernel", (async () => {
    while (!(kernel.connectionStatus === "connected" && kernel.status === "idle"))
      await new Promise((ok) => setTimeout(ok, 50));
  })());
}"""
_CODE_CELLS = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells
  .map((c) => c.toJSON()).filter((c) => c.cell_type === "code" && [].concat(c.source).join("").trim())"""
# a cell has its number once it runs, so the kernel must be idle, too; to take all outputs at each frame is too much for
# it
_ALL_HAVE_RUN = """() => {
  const { content, sessionContext } = window.jupyterapp.shell.currentWidget;
  const ran = (c) => c.cell_type !== "code" || c.execution_count || !c.getSource().trim();
  return content.model.sharedModel.cells.every(ran) && sessionContext.session.kernel.status === "idle";
}"""
_KERNEL_STATE = """() => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  return `${kernel.status}, ${kernel.connectionStatus}`;
}"""


def _errors(cell: dict) -> list[str]:
    """The tracebacks of a cell."""
    return ["\n".join(output["traceback"]) for output in cell["outputs"] if output["output_type"] == "error"]


class Lab:
    """A running JupyterLab: its address, its folder, and how to open a notebook in it."""

    def __init__(self, url: str, token: str, root: Path) -> None:
        self.url, self.token, self.root = url, token, root

    def write(self, *cells: str) -> str:
        """A notebook of these code cells, written into the server's folder; its name."""
        name = f"{uuid.uuid4().hex[:8]}.ipynb"
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(book, self.root / name)
        return name

    def open(self, page, name: str) -> None:
        """Opens a notebook in a fresh workspace and waits for its kernel."""
        page.goto(f"{self.url}lab/workspaces/{uuid.uuid4().hex}/tree/{name}?reset&token={self.token}")
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.sessionContext", timeout=120_000)
        page.evaluate(_OPENED)

    def run_all(self, page, patience_s: float = 150) -> list[dict]:
        """Runs every cell; the notebook's cells with code.

        Raises RuntimeError where one has not run when patience is over, with the kernel's state and where an interrupt
        then found it, or where one raised that has no tag for it. JupyterLab's own promise ends at the first cell that
        raises, tag or not.
        """
        from playwright.sync_api import TimeoutError as PlaywrightTimeout

        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        try:
            page.wait_for_function(_ALL_HAVE_RUN, timeout=patience_s * 1000, polling=200)
        except PlaywrightTimeout as error:
            state = page.evaluate(_KERNEL_STATE)
            page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()")
            with contextlib.suppress(PlaywrightTimeout):  # what it says till then is all that there is
                page.wait_for_function(f"() => ({_KERNEL_STATE})().startsWith('idle')", timeout=30_000)
            cells = page.evaluate(_CODE_CELLS)
            missing = ["".join(cell["source"])[:60] for cell in cells if not cell["execution_count"]]
            said = [error for cell in cells for error in _errors(cell)]
            text = f"{len(missing)} cells did not run, the first is {missing[:1]}; kernel: {state}"
            raise RuntimeError("\n".join([text, *said])) from error
        cells = page.evaluate(_CODE_CELLS)
        for cell in cells:
            if _errors(cell) and "raises-exception" not in cell["metadata"].get("tags", []):
                raise RuntimeError(_errors(cell)[0])
        return cells

    def close_sessions(self) -> None:
        """Ends every kernel of the server."""
        for session in json.load(urllib.request.urlopen(self._api("sessions"), timeout=120)):
            request = urllib.request.Request(self._api(f"sessions/{session['id']}"), method="DELETE")
            urllib.request.urlopen(request, timeout=120).close()

    def _api(self, path: str) -> str:
        return f"{self.url}api/{path}?token={self.token}"


@contextmanager
def running_lab(base: Path, app: str = "jupyterlab") -> Iterator[Lab]:
    """JupyterLab on a free port with settings of its own under `base`, stopped with everything it started.

    With app="notebook" it is Notebook 7, and its kernels are plain ones of ipykernel.
    """
    root = base / "work"
    root.mkdir()
    settings = base / "settings" / "@jupyterlab"
    for plugin, content in (
        ("apputils-extension/notification", {"fetchNews": "false", "checkForUpdates": False}),
        ("docmanager-extension/plugin", {"autosave": False}),
    ):
        path = settings / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    widgets = base / "settings" / "@jupyter-widgets" / "jupyterlab-manager" / "plugin.jupyterlab-settings"
    widgets.parent.mkdir(parents=True)
    widgets.write_text(json.dumps({"saveState": True}))
    env = dict(os.environ)
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        env[f"JUPYTER_{name}"] = str(base / name.lower())
    env |= {
        "IPYTHONDIR": str(base / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(base / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(base / "workspaces"),
    }
    [held] = ports.hold(1, "127.0.0.1")
    port = held.getsockname()[1]
    token, log = secrets.token_hex(16), (base / "log").open("wb")
    command = [
        *(sys.executable, "-m", app, "--no-browser", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"),
        *("--expose-app-in-browser", "--LabApp.extension_manager=readonly", "--allow-root"),
    ]
    forkserver = None
    if app == "jupyterlab":  # as under `allranks lab`, kernels are forked from a fork server
        forkserver = ForkServer.start(lasting=True)
        env |= {"ALLRANKS_FORKSERVER": str(forkserver.path), kernels.NAME_ENV: kernels.NAME}
    server = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=root)
    found = Lab(f"http://127.0.0.1:{port}/", token, root)
    try:
        _wait_for(found, server, base / "log")
        yield found
        found.close_sessions()
    finally:
        server.terminate()  # an interrupt would make it ask whether that is meant
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        if forkserver is not None:
            forkserver.close()
        held.close()
        log.close()
        shutil.rmtree(base, ignore_errors=True)


def _wait_for(lab: Lab, server: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with {server.returncode}: {log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(lab._api("status"), timeout=30).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not answer within {PATIENCE_S} s: {log.read_text()[-2000:]}")


def chromium_program() -> str | None:
    """The path of a Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


_kept = ExitStack()
_running: list = []


def kept_chromium() -> object:
    """This process's Chromium, which `close_chromium` ends. While it is there, asyncio.run can't be called:
    Playwright's loop runs.
    """
    if not _running:
        _running.append(_kept.enter_context(running_chromium()))
    return _running[0]


def close_chromium() -> None:
    """Ends what `kept_chromium` began, if anything."""
    _running.clear()
    _kept.close()


@contextmanager
def running_chromium() -> Iterator:
    """A headless Chromium driven by Playwright, which takes only one at a time in a process.

    Raises RuntimeError where Playwright's own program does not run.
    """
    from playwright._impl._driver import compute_driver_executable
    from playwright.sync_api import expect, sync_playwright

    node, _ = compute_driver_executable()
    tried = subprocess.run([node, "--version"], capture_output=True, text=True)
    if tried.returncode:  # Playwright itself would only say that a connection was closed
        raise RuntimeError(f"Playwright's driver does not run: {tried.stderr.strip()}. Debian: apt install libatomic1")
    expect.set_options(timeout=60_000)  # a page of a busy machine needs more than the five seconds that it has else
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=chromium_program(), args=CHROMIUM_FLAGS) as browser,
    ):
        yield browser


def heard(page, code: str, wanted: str, patience_s: float = 60) -> str:
    """What `ask` gives, once it is `wanted` or patience is over: a widget sends a change when the kernel has taken
    the one before.
    """
    end = time.monotonic() + patience_s
    while (said := ask(page, code)) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return said


def ask(page, code: str) -> str:
    """What the kernel of the notebook on this page prints for this code."""
    return page.evaluate(
        """async (code) => {
          const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
          const future = kernel.requestExecute({ code }); let text = "";
          future.onIOPub = (m) => { text += m.content.text ?? m.content.evalue ?? ""; };
          await future.done;
          return text.trim();
        }""",
        code,
    )
