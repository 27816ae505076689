"""Profiles of real jobs, with the figures that HolisticTraceAnalysis 0.5.0 gave: ALLRANKS_TRACES names their folder."""

import os
import re
from pathlib import Path

import pytest
from allranks.jobs import explain
from allranks.jobs.analysis import rank_times
from allranks.jobs.reading import read_file

FOLDER = Path(os.environ.get("ALLRANKS_TRACES", "/nonexistent"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="ALLRANKS_TRACES names no folder with real profiles")
FILES = sorted(FOLDER.glob("*.json*")) if FOLDER.is_dir() else []


def reference() -> dict[str, list[float]]:
    """Overlap in percent, idle, compute, other and span in microseconds, from the tables of the folder's README."""
    text = (FOLDER / "README.md").read_text() if (FOLDER / "README.md").is_file() else ""
    rows = re.findall(
        r"^\| *(\w+) *\| *([\d.]+) % *\| *([\d,]+) *\| *([\d,]+) *\| *([\d,]+) *\| *([\d,]+) *\|", text, re.M
    )
    return {name: [float(v.replace(",", "")) for v in values] for name, *values in rows}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_agrees_with_the_reference_and_names_a_cause(path):
    (record,), why = read_file(path)
    times = rank_times(record)
    known = reference().get(path.name.split(".")[0])
    if known is not None:
        overlap, *rest = known
        assert 100 * times.overlap == pytest.approx(overlap, abs=0.1)
        assert [times.idle_us, times.compute_us, times.other_us, times.span_us] == pytest.approx(rest, rel=1e-3)
    found = explain([path])
    assert not why and found.causes and found.causes[0].evidence and not found.skipped
    assert not {"straggler", "desync", "imbalance"} & {c.kind for c in found.causes}, "one file can not show it"
