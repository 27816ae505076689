"""Every chapter walked through as a reader does, with Shift+Enter: its pictures fit, at three widths and in both themes.

Set ALLRANKS_PICTURES to a folder to keep a picture of everything that was looked at.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from allranks.base.chapters import chapters, find

pytestmark = [pytest.mark.browser, pytest.mark.live, pytest.mark.timeout(900)]

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"
NAMES = [chapter.stem for chapter in chapters()]
WIDTHS = (1400, 1000, 700)
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
LEAST_PX = 11.5
SLACK_PX = 10  # of a player's frame, which may be out of view

# runs the selected cell as Shift+Enter does, and waits for its end; whether there is a next one
STEP = """async () => {
  const panel = window.jupyterapp.shell.currentWidget, notebook = panel.content;
  const cell = notebook.activeCell, last = notebook.activeCellIndex === notebook.widgets.length - 1;
  await window.jupyterapp.commands.execute("notebook:run-cell-and-select-next");
  const kernel = panel.sessionContext.session.kernel;
  while (kernel.status !== "idle") await new Promise((ok) => setTimeout(ok, 30));
  for (const _ of [1, 2]) await new Promise(requestAnimationFrame); // its outputs are drawn by frames
  const outputs = cell.model.type === "code" ? cell.model.sharedModel.toJSON().outputs : [];
  const failed = outputs.filter((o) => o.output_type === "error").map((o) => o.ename + ": " + o.evalue);
  const player = cell.node.querySelector("[data-ready]");
  // it comes into view when the page has settled: nothing has moved for 0.7 s
  const place = () => { const { top, height } = player.getBoundingClientRect(); return `${top} ${height}`; };
  let seen = "", since = performance.now();
  for (let i = 0; player && i < 1000 && performance.now() - since < 700; i++) {
    if (place() !== seen) [seen, since] = [place(), performance.now()];
    await new Promise((ok) => setTimeout(ok, 30));
  }
  const box = player && player.getBoundingClientRect();
  return {
    last, failed, source: cell.model.sharedModel.source.split("\\n")[0],
    raises: (cell.model.sharedModel.getMetadata("tags") || []).includes("raises-exception"),
    above: box ? Math.max(0, -box.top) : 0, below: box ? Math.max(0, box.bottom - innerHeight) : 0,
    fits: box ? box.height < innerHeight - 120 : true,
  };
}"""

# two frames: what has come into view, or moved, is laid out and drawn
FRAMES = "async () => { for (const _ of [1, 2]) await new Promise(requestAnimationFrame); }"

# what does not fit in the pictures on the page: text that is too small, cut off, or on top of other text
FAULTS = """(least) => {
  const found = [];
  const shown = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  for (const root of document.querySelectorAll(".ar-theme")) {
    if (!shown(root) || root.parentElement.closest(".ar-theme")) continue;
    const name = (root.className + " " + (root.getAttribute("aria-label") || "")).slice(0, 80), frame = root.getBoundingClientRect();
    if (root.scrollWidth > root.clientWidth + 2) found.push(`${name}: ${root.scrollWidth - root.clientWidth} px are cut off`);
    const texts = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const text = node.data.trim(), parent = node.parentElement;
      if (!text || !shown(parent) || parent.closest("style, title, desc, option, [aria-live], .ar-unseen")) continue;
      // of eight ranks that all exchange, not all have room on a telephone: the picture scrolls
      if (parent.closest("[data-size=phone] .ar-scrolls")) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getClientRects()[0];
      if (!box || box.width < 2 || box.height < 2 || parent.closest("[style*='overflow']")) continue;
      const scale = parent.ownerSVGElement ? box.height / (parent.getBBox().height || box.height) : 1;
      const size = parseFloat(getComputedStyle(parent).fontSize) * Math.min(1, scale);
      if (size < least) found.push(`${name}: "${text.slice(0, 30)}" is ${size.toFixed(1)} px high`);
      if (box.right > frame.right + 2 || box.left < frame.left - 2) {
        if (!parent.closest(".ar-scroll, pre, table")) found.push(`${name}: "${text.slice(0, 30)}" reaches out of its frame`);
      }
      texts.push({ text, parent, box });
    }
    for (let i = 0; i < texts.length; i++)
      for (let j = i + 1; j < texts.length && texts.length < 500; j++) {
        const [a, b] = [texts[i].box, texts[j].box];
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide <= 0 || high <= 0) continue;
        // a packet is opaque, and leaves the card that it comes from
        if (Boolean(texts[i].parent.closest(".ar-air")) !== Boolean(texts[j].parent.closest(".ar-air"))) continue;
        const share = (wide * high) / Math.min(a.width * a.height, b.width * b.height);
        if (share > 0.2 && texts[i].parent !== texts[j].parent)
          found.push(`${name}: "${texts[i].text.slice(0, 30)}" lies on "${texts[j].text.slice(0, 30)}"`);
      }
  }
  return [...new Set(found)];
}"""


@pytest.fixture
def folder(lab):
    """The chapters with their pictures, in the server's folder."""
    there = lab.root / "walk"
    shutil.copytree(CHAPTERS, there, ignore=shutil.ignore_patterns("source", ".ipynb_checkpoints"), dirs_exist_ok=True)
    yield there.name
    lab.close_sessions()
    shutil.rmtree(there, ignore_errors=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_fits_at_every_width_and_in_both_themes(lab, folder, new_page, name):
    page = new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(120_000)
    lab.open(page, f"{folder}/{find(name).part}/{name}.ipynb")
    faults: list[str] = []
    while True:
        step = page.evaluate(STEP)
        if step["failed"] and not step["raises"]:
            faults.append(f"{step['source']}: {step['failed']}")
        if step["fits"] and step["above"] + step["below"] > SLACK_PX:
            faults.append(f"{step['source']}: the player is {step['above'] + step['below']:.0f} px out of view")
        if step["last"]:
            break
    for theme, label in THEMES.items():
        page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", label)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for number in range(page.locator(".ar-theme").count()):  # what is out of view is laid out when it is seen
                page.evaluate(
                    "(i) => document.querySelectorAll('.ar-theme')[i].scrollIntoView({block: 'center'})", number
                )
                page.evaluate(FRAMES)
            page.wait_for_timeout(
                600
            )  # pictures are drawn anew a moment after the width has changed; nothing says when all are
            faults += [f"{theme}, {width} px: {fault}" for fault in page.evaluate(FAULTS, LEAST_PX)]
            _keep_pictures(page, f"{name}-{theme}-{width}")
    assert not faults, "\n".join(faults)


# the part of the notebook in view, one window further down; whether it moved
FURTHER = """() => {
  const scroller = document.querySelector(".jp-Notebook .jp-WindowedPanel-outer, .jp-WindowedPanel-outer");
  const before = scroller.scrollTop;
  scroller.scrollTop += scroller.clientHeight - 40;
  return scroller.scrollTop > before;
}"""


def _keep_pictures(page, name: str) -> None:
    """Pictures of the whole notebook, a window each, if somebody wants to look."""
    place = os.environ.get("ALLRANKS_PICTURES")
    if not place:
        return
    Path(place).mkdir(parents=True, exist_ok=True)
    page.evaluate("() => { document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0; }")
    notebook = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").first
    number, further = 0, True
    while further:
        page.evaluate(FRAMES)
        notebook.screenshot(path=f"{place}/{name}-{number:02}.png")
        number, further = number + 1, page.evaluate(FURTHER)
