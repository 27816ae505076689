"""How soon a learner is there: the import, and from a shell to the first cell on four ranks in JupyterLab's own
kernel.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from bench.common import Result, alternate, clock, median, spread

CELLS = ("from allranks import World\nworld = World(ranks=4)", "%%ranks\nx = torch.ones(1)\ndist.all_reduce(x)")
FAR_S = 300  # then something is wrong, and there is nothing to measure


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Each start of JupyterLab has a home and a run directory of its own, so that nothing is warm but the files."""
    variants: dict[str, Callable[[], float]] = {
        "python -c pass": lambda: clock(lambda: python("pass")),
        "python -c 'import allranks'": lambda: clock(lambda: python("import allranks")),
        "allranks lab, to a cell on 4 ranks": to_four_ranks,
    }
    times_s = alternate(variants, rounds, progress)
    result = Result("From a shell to the first ranks", ("what", "median s", "spread s"))
    for name in variants:
        result.rows.append((name, f"{median(times_s[name]):.3f}", spread(times_s[name])))
    result.notes.append(f"{rounds} rounds in alternation. With uvx it takes as long once uv has made its environment.")
    return result


def python(code: str) -> None:
    """Runs the code in a Python of its own."""
    subprocess.run([sys.executable, "-c", code], check=True)


def to_four_ranks() -> float:
    """Seconds from the call of `allranks lab` until a kernel of its server has run `CELLS`."""
    folder = Path(tempfile.mkdtemp(prefix="arb-"))  # a short path: sockets lie in it
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ALLRANKS", "JUPYTER"))}
    env |= {"JUPYTER_RUNTIME_DIR": str(folder), "ALLRANKS_RUN_DIR": str(folder)}
    command = [sys.executable, "-m", "allranks.cli", "lab", "--no-browser", "--folder", str(folder / "all-ranks")]
    log = folder / "lab.log"
    began = time.perf_counter()
    with open(log, "w") as file:
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=file, stderr=file)
    try:
        address, token = address_in(log, process, began)
        kernel = json.loads(ask(f"{address}/api/kernels", token))["id"]
        run_cells(folder / f"kernel-{kernel}.json")
        return time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def address_in(log: Path, process: subprocess.Popen, began: float) -> tuple[str, str]:
    """The server's address and token, as soon as it has written them."""
    while process.poll() is None and time.perf_counter() - began < FAR_S:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/\S*\?token=(\w+)", log.read_text())
        if found:
            return found[1], found[2]
        time.sleep(0.02)
    raise RuntimeError(f"JupyterLab told no address:\n{log.read_text()}")


def ask(address: str, token: str) -> bytes:
    """What the server answers to an empty POST."""
    request = urllib.request.Request(address, data=b"", headers={"Authorization": f"token {token}"})
    with urllib.request.urlopen(request, timeout=FAR_S) as reply:
        return reply.read()


def run_cells(connection: Path) -> None:
    """Runs `CELLS` in the kernel of that connection file."""
    from jupyter_client import BlockingKernelClient

    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=FAR_S)
        for cell in CELLS:
            reply = client.execute_interactive(cell, timeout=FAR_S, output_hook=lambda message: None)
            if reply["content"]["status"] != "ok":
                raise RuntimeError(f"a cell failed: {reply['content']}")
    finally:
        client.stop_channels()
