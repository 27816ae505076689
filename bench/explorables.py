"""The explorables in headless Chromium, without a kernel: how long one answer takes while a slider moves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from allranks import my_model
from allranks.show.widgets import explorables

from bench.common import Result, median, module

# as many ranks as each of them allows
SHOWN = {
    "crossover, 1024 ranks": lambda: explorables.crossover(ranks=1024),
    "overlap": explorables.overlap,
    "my model, all axes": lambda: my_model("your_own_job"),
    "placement": explorables.placement,
    "skew": explorables.skew,
    "pipeline, 8 GPUs": lambda: explorables.pipeline(8, 12, "1f1b"),
    "bits": lambda: explorables.bits(1024),
    "compress": explorables.compress,
    "interval": explorables.interval,
    "late": explorables.late,
    "protocols": explorables.protocols,
    "uneven": lambda: explorables.uneven(64, 0.5),
    "writes": explorables.writes,
    "fsdp": explorables.fsdp,
    "recompute": explorables.recompute,
    "attention": explorables.attention,
    "router": explorables.router,
    "data parallel": explorables.data_parallel,
    "flag": lambda: explorables.flag(4, 12, "Gloo"),
}
# every slider and handle from end to end, every button; reading the height makes the browser lay out what was drawn
_ANSWERS = """() => {
  const root = document.querySelector(".ar-explore"), took = [];
  const time = (act) => {
    const began = performance.now();
    act();
    root.getBoundingClientRect();
    took.push(performance.now() - began);
  };
  for (const input of root.querySelectorAll("input[type=range]")) {
    const most = Number(input.max), first = input.value;
    for (let place = 0; place <= most; place += Math.max(1, Math.floor(most / 24)))
      time(() => { input.value = place; input.dispatchEvent(new Event("input")); });
    input.value = first;
    input.dispatchEvent(new Event("input"));
  }
  for (const button of root.querySelectorAll("button[data-key]")) time(() => button.click());
  for (const handle of root.querySelectorAll(".ar-handle")) {
    const press = (key) => handle.dispatchEvent(new KeyboardEvent("keydown", { key }));
    press("Home");
    const most = Number(handle.ariaValueMax);
    while (Number(handle.ariaValueNow) < most) time(() => press("ArrowRight"));
  }
  return took;
}"""


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Measures each explorable `rounds` times in turns."""
    tools = module("tests/browser/jupyter_lab.py")
    result = Result("Explorables, headless Chromium", ("explorable", "an answer", "slowest", "answers over 16 ms"))
    if tools.chromium_program() is None:
        result.notes.append("Not measured: no Chromium or Chrome is installed.")
        return result
    found: dict[str, list[float]] = {name: [] for name in SHOWN}
    with tempfile.TemporaryDirectory() as folder, tools.running_chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        for number in range(rounds):
            for name, make in SHOWN.items():
                progress(f"round {number + 1} of {rounds}: {name}")
                shown = make()._repr_mimebundle_()[0]["text/html"]
                path = Path(folder) / "page.html"
                head = "<!doctype html><html lang=en><meta charset=utf-8><body data-theme=light>"
                path.write_text(f"{head}{shown}</body></html>", encoding="utf-8")
                page.goto(path.as_uri())
                page.wait_for_selector(".ar-explore[data-ready]")
                found[name] += page.evaluate(_ANSWERS)
        page.context.close()
    for name, took in found.items():
        late = sum(ms > 16 for ms in took)
        result.rows.append((name, f"{median(took):.1f} ms", f"{max(took):.1f} ms", f"{late} of {len(took)}"))
    result.notes.append(
        "An answer: from the reader's input to the new picture's layout, without its painting. Medians."
    )
    return result
