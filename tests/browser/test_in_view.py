"""Every chapter and lab is run cell by cell with Shift+Enter: the top of what a cell has just shown is in the
window.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.live, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted([*(ROOT / "chapters").rglob("*.ipynb"), *(ROOT / "labs").rglob("*.ipynb")])
SIZES = ((1400, 900), (1280, 720))
# what every run walks; the others are for the night
ALWAYS = ("00_start_here", "65_cheatsheet")

# whether there are cells to come, and which is next
NEXT = """() => {
  const { content } = window.jupyterapp.shell.currentWidget;
  const cell = content.activeCell;
  return { index: content.activeCellIndex, last: content.activeCellIndex === content.widgets.length - 1,
    code: cell.model.type === "code", source: cell.model.sharedModel.source.split("\\n")[0] };
}"""
# whether this cell of text is shown, and another one selected
TURNED = """(index) => {
  const { content } = window.jupyterapp.shell.currentWidget;
  return content.widgets[index].rendered !== false && content.activeCellIndex !== index;
}"""
# waits until the cell has ended and the page rests; where its outputs are: px of the notebook's window, which begins at
# 0
SHOWN = """async (index) => {
  const { content, sessionContext } = window.jupyterapp.shell.currentWidget;
  const { kernel } = sessionContext.session, cell = content.widgets[index];
  const began = performance.now();
  let first = 0;
  const busy = () => kernel.status !== "idle" || !cell.model.executionCount;
  while (busy() && performance.now() - began < 300000) {
    if (!first && cell.model.outputs.length) first = performance.now() - began;
    await new Promise((ok) => setTimeout(ok, 40));
  }
  const ran = performance.now() - began;
  const area = () => cell.outputArea.node.getBoundingClientRect();
  const view = () => content.outerNode.getBoundingClientRect();
  // at rest: nothing has moved for a second
  let seen = "", since = performance.now();
  for (let i = 0; i < 150 && performance.now() - since < 1000; i++) {
    const now = `${area().top} ${area().height}`;
    if (now !== seen) [seen, since] = [now, performance.now()];
    await new Promise((ok) => setTimeout(ok, 60));
  }
  const { top, height } = area(), window_ = view();
  const tops = [...cell.outputArea.node.querySelectorAll(".jp-OutputArea-child")].map((e) => e.getBoundingClientRect())
    .filter((box) => box.height > 2).map((box) => [Math.round(box.top - window_.top), Math.round(box.height)]);
  return { top: Math.round(top - window_.top), height: Math.round(height), window: Math.round(window_.height), tops,
    first_s: first / 1000, ran_s: ran / 1000 };
}"""


def walked(page) -> Iterator[dict]:
    """Runs the open notebook with Shift+Enter from its first cell; for each code cell what SHOWN found of its
    outputs.
    """
    page.evaluate(
        "() => { const n = window.jupyterapp.shell.currentWidget.content; n.activeCellIndex = 0; n.activate(); }"
    )
    while True:
        cell = page.evaluate(NEXT)
        page.keyboard.press("Shift+Enter")
        if cell["code"]:
            yield cell | page.evaluate(SHOWN, cell["index"])
        else:
            page.wait_for_function(TURNED, arg=cell["index"])
        if cell["last"]:
            return


def in_view(cell: dict) -> bool:
    """Whether the reader sees the beginning of what the cell has shown: its top, and 60 px of it if it has as much."""
    return cell["height"] <= 2 or -2 <= cell["top"] <= cell["window"] - min(60, cell["height"])


@pytest.fixture(scope="module")
def folder(lab) -> Iterator[Path]:
    """Chapters and labs in the server's folder, as in the course's."""
    there = lab.root / "in_view"
    for part in ("chapters", "labs"):
        shutil.copytree(ROOT / part, there / part, ignore=shutil.ignore_patterns("source", ".ipynb_checkpoints"))
    yield there
    lab.close_sessions()
    shutil.rmtree(there, ignore_errors=True)


def _cases() -> Iterator:
    for path in NOTEBOOKS:
        for size in SIZES:
            marks = () if path.stem in ALWAYS else (pytest.mark.nightly,)
            yield pytest.param(path, size, marks=marks, id=f"{path.stem}-{size[0]}x{size[1]}")


@pytest.mark.parametrize(("path", "size"), [*_cases()])
def test_the_top_of_what_a_cell_has_shown_is_in_the_window(lab, folder, new_page, path, size):
    page = new_page(viewport={"width": size[0], "height": size[1]})
    page.set_default_timeout(400_000)
    lab.open(page, f"{folder.name}/{path.relative_to(ROOT)}")
    cells = list(walked(page))
    lab.close_sessions()
    assert cells, "no cell was run"
    out = [cell for cell in cells if not in_view(cell)]
    told = [f"cell {c['index']} ({c['source'][:50]}): its top is at {c['top']} of {c['window']} px" for c in out]
    assert not told, "\n".join([f"{len(out)} of {len(cells)} out of view", *told])


SHEET = """from allranks import CheatSheet
numbers = [[10 * r + c for c in range(4)] for r in range(4)]
names = "broadcast scatter gather reduce all_reduce all_gather reduce_scatter all_to_all barrier".split()
CheatSheet([{name: (numbers[r], numbers[3]) for name in names} for r in range(4)])"""


@pytest.mark.parametrize("size", SIZES)
def test_nothing_of_the_cheat_sheet_is_cut_off(lab, new_page, size):
    page = new_page(viewport={"width": size[0], "height": size[1]})
    lab.open(page, lab.write(SHEET))
    lab.run_all(page)
    shown, wide = page.locator(".ar-sheet").evaluate("(e) => [e.clientWidth, e.scrollWidth]")
    lab.close_sessions()
    assert shown > 700 and wide <= shown, f"{wide} px are needed, {shown} are there"


TALL = 'from IPython.display import HTML\nHTML(\'<div id="tall" style="height:2000px">tall</div>\')'
WAITS = "import time\ntime.sleep(300)"
TOP = """(id) => { const box = document.getElementById(id)?.getBoundingClientRect();
  const view = document.querySelector(".jp-WindowedPanel-outer").getBoundingClientRect();
  return box && box.height ? Math.round(box.top - view.top) : null; }"""


@pytest.fixture
def page(lab, new_page):
    """A notebook whose first cell imports the package, with a cell above and below each of the two that matter."""
    found = new_page(viewport={"width": 1280, "height": 720})
    lab.open(found, lab.write("import allranks", "x = 1\n" * 30, TALL, "y = 2\n" * 12, WAITS, "z = 3\n" * 12))
    found.evaluate(
        "() => { const n = window.jupyterapp.shell.currentWidget.content; n.activeCellIndex = 0; n.activate(); }"
    )
    yield found
    lab.close_sessions()


def run(page, cells: int = 1) -> None:
    """Presses Shift+Enter, and waits each time until the kernel is idle."""
    for _ in range(cells):
        index = page.evaluate(NEXT)["index"]
        page.keyboard.press("Shift+Enter")
        page.evaluate(SHOWN, index)


def test_an_output_taller_than_the_window_is_seen_from_its_top(page):
    run(page, 3)
    assert 0 <= page.evaluate(TOP, "tall") <= 40


def test_a_reader_who_scrolls_is_left_alone(page):
    run(page, 3)
    page.mouse.move(700, 400)
    page.mouse.wheel(0, 900)
    page.wait_for_function(f"() => ({TOP})('tall') < -500")
    page.evaluate("() => { document.getElementById('tall').style.height = '2600px'; }")
    page.evaluate(SHOWN, 2)  # until the page rests
    assert page.evaluate(TOP, "tall") < -500, "the page went back against the reader"


def test_a_cell_that_shows_nothing_says_that_it_runs(page):
    run(page, 4)
    page.keyboard.press("Shift+Enter")
    note = page.locator(".ar-still-running")
    note.get_by_text(re.compile(r"running for \d+ s")).wait_for()
    assert note.evaluate("(e) => e.closest('.jp-Cell').querySelector('.jp-InputPrompt').textContent") == "[*]:"
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt(); }")
    note.wait_for(state="detached")
    kept = page.evaluate("() => JSON.stringify(window.jupyterapp.shell.currentWidget.content.model.toJSON().cells)")
    assert "running for" not in kept, "it is not part of the notebook"
