"""The player in JupyterLab in headless Chromium: first frame, frames a second, dropped frames, and what it costs the
kernel.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.common import Result, median, module

SHAPES = {
    "ring, 8 ranks x 8 chunks": "Player(ring_all_reduce(8), nbytes=8 << 20)",
    "ring, 16 ranks x 16 chunks": "Player(ring_all_reduce(16), nbytes=8 << 20)",
    "ring beside tree, 8 ranks": "Player(ring_all_reduce(8), tree_all_reduce(8), nbytes=8 << 20)",
    "ring, 64 ranks x 64 chunks": "Player(ring_all_reduce(64))",
}
IMPORTS = "from allranks.show.player import Player\nfrom allranks.schedules import ring_all_reduce, tree_all_reduce"
SECONDS = 3.0
_FIRST_FRAME = """async (index) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  await window.jupyterapp.commands.execute("notebook:clear-cell-output");
  const began = performance.now();
  window.jupyterapp.commands.execute("notebook:run-cell");
  const cell = notebook.widgets[index].node;
  while (!cell.querySelector(".ar-player[data-ready]")) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""
# the times between frames while something runs; with no selector nothing plays, which is the most that this browser can
# do
_FRAMES = """async ([index, milliseconds]) => {
  const cells = window.jupyterapp.shell.currentWidget.content.widgets;
  const player = index === null ? null : cells[index].node.querySelector(".ar-player");
  if (player) {
    player.scrollIntoView();
    player.querySelector('[data-do="first"]').click();
    player.querySelector('[data-do="play"]').click();
  }
  const gaps = [];
  let last = await new Promise(requestAnimationFrame);
  const end = last + milliseconds;
  while (last < end) {
    const now = await new Promise(requestAnimationFrame);
    if (player && player.dataset.playing !== "true") player.querySelector('[data-do="play"]').click();
    gaps.push(now - last);
    last = now;
  }
  if (player) player.querySelector('[data-do="play"]').click();
  return gaps;
}"""


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Measures each shape `rounds` times in turns, beside an empty page in the same browser."""
    tools = module("tests/browser/jupyter_lab.py")
    result = Result(
        "Player in JupyterLab, headless Chromium",
        ("shape", "first frame", "frames/s", "of an idle page", "dropped", "sent to the kernel", "kernel CPU"),
    )
    if tools.chromium_program() is None:
        result.notes.append("Not measured: no Chromium or Chrome is installed.")
        return result
    with (
        tempfile.TemporaryDirectory() as folder,
        tools.running_lab(Path(folder)) as lab,
        tools.running_chromium() as browser,
    ):
        page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        sent: list[int] = []
        page.on("websocket", lambda socket: socket.on("framesent", lambda data: sent.append(len(data))))
        lab.open(page, lab.write(IMPORTS, *SHAPES.values()))
        lab.run_all(page)
        page.wait_for_function(f"() => document.querySelectorAll('.ar-player[data-ready]').length === {len(SHAPES)}")
        found: dict[str, list[tuple]] = {name: [] for name in SHAPES}
        for number in range(rounds):
            for index, name in enumerate(SHAPES, 1):
                progress(f"round {number + 1} of {rounds}: {name}")
                first = page.evaluate(_FIRST_FRAME, index)
                idle = page.evaluate(_FRAMES, [None, SECONDS * 500])
                before = float(tools.ask(page, "import time; print(time.process_time())"))
                sent.clear()
                gaps = page.evaluate(_FRAMES, [index, SECONDS * 1000])
                traffic = sum(sent)
                used = float(tools.ask(page, "print(time.process_time())")) - before
                rate = 1000 * len(gaps) / sum(gaps)
                beat = median(idle)
                dropped = sum(max(0, round(gap / beat) - 1) for gap in gaps)
                share = dropped / (dropped + len(gaps))
                found[name].append((first, rate, rate * sum(idle) / len(idle) / 1000, share, traffic, used / SECONDS))
        page.context.close()
    for name, rows in found.items():
        first, rate, ratio, dropped, traffic, used = (median(column) for column in zip(*rows, strict=True))
        result.rows.append(
            (
                name,
                f"{first:.0f} ms ({min(r[0] for r in rows):.0f} to {max(r[0] for r in rows):.0f})",
                f"{rate:.0f}",
                f"{ratio:.2f}",
                f"{dropped:.1%}",
                f"{traffic / 1000:.1f} kB",
                f"{used:.1%}",
            )
        )
    result.notes.append(
        "First frame: from running the cell (package imported before) to the frame that shows the player. "
        "Dropped: frames that the idle page would have shown. Medians of the rounds."
    )
    return result
