"""The cheat sheet: what live ranks held before and after each collective, and that it prints on one page."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from nbconvert import HTMLExporter
from test_chapters import RANKS, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]


def held(chapter, name: str) -> list[tuple[str, str]]:
    """(before, after) of each rank, as the cell printed it."""
    return [tuple(text.split(" → ")) for _, text in sorted(chapter.by_rank(name).items())]


@pytest.mark.parametrize("ranks", RANKS)
def test_cheatsheet(ranks, tmp_path):
    notebook = read("65_cheatsheet", ranks)
    chapter = execute(notebook)
    assert chapter.errors() == {}
    everyone = range(ranks)
    total, all_of = ranks * (ranks + 1) // 2, [r + 1 for r in everyone]
    rows = [[10 * r + c for c in everyone] for r in everyone]

    assert held(chapter, "broadcast") == [(f"[{r + 1}]", "[1]") for r in everyone]
    assert held(chapter, "scatter") == [(str(rows[0]) if r == 0 else "None", f"[{r}]") for r in everyone]
    assert held(chapter, "gather") == [(f"[{r + 1}]", str(all_of) if r == 0 else "None") for r in everyone]
    assert held(chapter, "reduce")[0] == ("[1]", f"[{total}]")
    assert held(chapter, "all_reduce") == [(f"[{r + 1}]", f"[{total}]") for r in everyone]
    assert held(chapter, "all_gather") == [(f"[{r + 1}]", str(all_of)) for r in everyone]
    sums = [sum(row[c] for row in rows) for c in everyone]
    assert held(chapter, "reduce_scatter") == [(str(rows[r]), f"[{sums[r]}]") for r in everyone]
    assert held(chapter, "all_to_all") == [(str(rows[r]), str([row[r] for row in rows])) for r in everyone]
    times = [[float(text.removesuffix(" ms")) for text in pair] for pair in held(chapter, "barrier")]
    assert all(left >= came for came, left in times) and times[-1][0] >= 50 * (ranks - 1)

    page = chapter.outputs("page")[0].data["text/html"]
    assert page.count("<th scope=col>rank ") == ranks
    assert f"→ {' '.join(map(str, all_of))}<" in page

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium or Chrome is installed, so nothing can be printed")
    for inputs in (False, True):
        exporter = HTMLExporter(exclude_input=not inputs)
        (tmp_path / "sheet.html").write_text(exporter.from_notebook_node(notebook)[0], encoding="utf-8")
        flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
        flags += ("--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'sheet.pdf'}")
        command = [browser, *flags, (tmp_path / "sheet.html").as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "sheet.pdf").read_bytes()))
        assert pages == 1 if ranks == 4 else 1 <= pages <= 2
