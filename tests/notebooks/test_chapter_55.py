"""The chapter on recovery: what notices a hang, what must be saved, and that torchft's job really goes on."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from test_chapters import RANKS, ROOT, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "55_recover"
SCRIPT = ROOT / "chapters" / "scripts" / "torchft_job.py"


def the_job_survived(told: str) -> None:
    """Step 20 is voted down once and then committed alone; B is healed, and both end with the weight of 120 steps."""
    assert re.search(r"replica A: step 20 not committed", told)
    assert re.search(r"replica A: step 20 committed, 1 replicas, weight 21", told)
    assert told.count("replica B: healed") >= 1 and "replica B: dies in step 20" in told
    for name in "AB":
        assert re.search(rf"replica {name}: step 119 committed, 2 replicas, weight 120", told)


@pytest.mark.parametrize("ranks", RANKS)
def test_recover(ranks):
    chapter = execute(read(CHAPTER, ranks), ROOT / "chapters" / "4_real_cluster")
    assert not chapter.errors()
    quick, patient = chapter.text("limits").splitlines()[:2]
    assert "[25]" in patient and {"9", "19", "25", "29"} <= set(re.findall(r"\d+", quick.split("[")[1]))
    curves = chapter.curves("limits")
    assert max(curves["a step took"], key=lambda point: point[1])[0] == 25
    low, high = (curves[f"limit: {factor} usual steps"][0][1] for factor in (5, 25))
    assert high == pytest.approx(5 * low, rel=1e-3)  # "a hang is noticed five times as late"
    wrong, dropout, same = chapter.text("loaded").splitlines()
    assert f"{12 * ranks} samples twice" in wrong
    assert " 0 samples twice" in dropout and not dropout.endswith("off by 0e+00")
    assert " 0 samples twice" in same and same.endswith("off by 0e+00")
    assert "to the last bit: True" in chapter.text("neighbours")
    assert "1.3 GB a GPU, 26 ms" in chapter.text("neighbours")
    assert "64 nodes: something is lost in 3.2 of 100" in chapter.text("two_fail")
    assert re.search(r"24 hours: 1[45] spares, for 7\.8", chapter.text("spares"))
    the_job_survived(chapter.text("torchft"))


def test_the_recorded_run_says_what_it_is():
    told = SCRIPT.with_suffix(".txt").read_text(encoding="utf-8")
    assert re.match(r"Recorded on \d{4}-\d\d-\d\d with torchft [\d.]+ and torch ", told)
    the_job_survived(told)


def test_the_job_under_torchft():
    """Where torchft is installed (`pip install torchft`), the job itself."""
    pytest.importorskip("torchft")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    the_job_survived(done.stdout)


def test_ten_minutes_at_each_interruption_of_llama_3():
    told = read(CHAPTER, 4).cells[4].source
    hours = 54 * 24 / 419
    assert f"every {hours:.2f} hours: 10 minutes each time would be {100 / 6 / hours:.1f} %" in " ".join(told.split())
