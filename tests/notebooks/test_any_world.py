"""What chapters must not do, since their ranks are 2 to 8, on GPUs with NCCL or on the CPU with Gloo."""

from __future__ import annotations

import re

import nbformat
import pytest
from allranks.base.chapters import find
from test_chapters import CHAPTERS, ROOT

# the chapter on NCCL shows what NCCL refuses
PATHS = [path for path in CHAPTERS if path.stem != "42_what_changes_on_nccl"]
LIVE = ("%%ranks", "world.run(", "world.trace(")


def code(path) -> dict[str, str]:
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_cell_is_empty_on_one_backend(path):
    """A cell for Gloo only shows nothing on GPUs: it makes a group, `dist.new_group(backend="gloo")`, and works everywhere."""
    for name, source in code(path).items():
        if (path.stem, name) != ("30_capstone", "wire"):  # no program can count the bytes that GPUs write
            assert not re.search(r"^\s*(?:el)?if .*(get_backend\(\)|world\.backend) [!=]= ", source, re.M), name


@pytest.mark.parametrize(
    ("chapter", "cell"),
    [
        ("03_point_to_point", "any_source"),
        ("03_point_to_point", "too_early"),
        ("03_point_to_point", "mismatch_run"),
        ("10_broadcast", "short"),
        ("10_broadcast", "roots_live"),
        ("11_scatter_and_gather", "columns"),
        ("11_scatter_and_gather", "late"),
        ("04_all_reduce", "dtype"),
        ("13_all_gather", "unequal"),
        ("15_all_to_all", "disagree"),
        ("21_overlap_and_bucketing", "async_run"),
        ("45_when_it_hangs", "desync"),
        ("45_when_it_hangs", "dtype_live"),
    ],
)
def test_what_nccl_refuses_or_leaves_undefined_runs_on_gloo(chapter, cell):
    """So the reader of a GPU machine sees what the page describes, not a hang, a crash or wrong data."""
    assert 'dist.new_group(backend="gloo")' in code(ROOT / find(chapter).path)[cell]


def test_the_deadlock_is_shown_with_new_ranks():
    """Between ranks that NCCL has connected, a small send goes into a buffer and the circle ends."""
    assert code(ROOT / find("03_point_to_point").path)["live_deadlock"].startswith("world.reset()")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_receives_name_their_source(path):
    """NCCL refuses a receive from any source; only Gloo, in a group of its own, may leave it out."""
    for name, source in code(path).items():
        for arguments in re.findall(r"dist\.i?recv\(([^()]*)\)", source):
            assert "group=gloo" in arguments or len(arguments.split(",")) > 1, name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_tensors_are_on_the_ranks_device(path):
    """A CPU generator draws nothing on a GPU, `.numpy()` reads nothing from one, and a CPU tensor goes to Gloo only."""
    for name, source in code(path).items():
        if not any(word in source for word in LIVE):
            continue
        assert not re.search(r"torch\.Generator\(\)", source), name
        assert ".numpy()" not in source, name
        assert not re.search(r"torch\.u?int16\b", source), name
        if re.search(r"device=\"cpu\"|torch\.device\(\"cpu\"\)|\.cpu\(\)", source) and "dist." in source:
            assert re.search(r'new_group\(.*backend="gloo"\)', source), name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_clocks_are_read_after_the_gpu_is_done(path):
    """On a GPU calls return before the work is done, a barrier too: so no clock is read right after one."""
    for name, source in code(path).items():
        assert not re.search(
            r"dist\.barrier\((?!gloo)\w*\)\n(\s*if .*rank.*\n\s*time\.sleep.*\n)?\s*\w+ = time\.", source
        ), name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_is_timed_can_be_called_any_number_of_times(path):
    """On a GPU `bench` makes a short call a hundred times in a row, and each once more to learn that: no iterator may end."""
    for name, source in code(path).items():
        if re.search(r"bench\.(seconds|times)_of\(", source) and re.search(r"\bnext\(", source):
            assert "itertools.cycle(" in source, name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_rank_that_a_cell_names_is_there(path):
    """The smallest world has the ranks 0 and 1. A picture of four says so: "here with four ranks"."""
    cells = nbformat.read(path, as_version=4).cells
    for cell in cells:
        if cell.source.startswith("%%ranks"):
            assert not re.search(r"\brank == [2-9]\b|\b(?:src|dst)=[2-9]\b", cell.source), cell.id
        elif cell.cell_type == "markdown":
            counted = r"\b(?:[Aa]ll|[Yy]our) four (?:ranks|processes|gradients|shares|hold)\b"
            assert not re.search(counted, cell.source), cell.id
