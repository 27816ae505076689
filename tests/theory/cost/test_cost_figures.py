"""The figures of docs/cost_model.md are drawn from the formulas that they show."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_figures_are_what_the_command_draws_and_the_page_has_one_for_each_formula():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "cost_figures.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "written: nothing\n".replace("written", "differs")), done.stderr
    page = (ROOT / "docs" / "cost_model.md").read_text(encoding="utf-8")
    for name in ("message", "algorithms", "hidden", "waits", "interval"):
        assert page.count(f"(pictures/cost_{name}.svg)") == 1
