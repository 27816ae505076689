"""The lab on a node of GPUs, on CPU ranks: what is measured there is right, and all else says that it is not measured."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, ROOT, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(400)]
CHAPTER = "56_eight_gpus"
FOLDER = ROOT / "chapters" / "4_real_cluster"


@pytest.mark.parametrize("ranks", RANKS)
def test_eight_gpus(ranks):
    chapter = execute(read(CHAPTER, ranks), FOLDER)
    assert not chapter.errors()
    cards = chapter.text("cards").splitlines()
    assert len(cards) == 6 and all(line.startswith("recorded (sglang") for line in cards)
    assert "GPU3 has NIC4 behind" in cards[3]
    low, high = map(float, re.findall(r"(\d+\.\d+)", chapter.text("matrix"))[:2])
    assert 0 < low <= high

    ends = chapter.text("ends")
    measured, computed = re.search(r"measured: ([\d.]+) GB/s.*computed: (\d+) GB/s", ends, flags=re.S).groups()
    assert float(measured) > 0 and 370.8 < int(computed) < 500
    assert {"measured, your ranks", "computed, NCCL's tuner for 8 H100"} <= set(chapter.curves("roof_figure"))

    sweeps = chapter.text("sweeps").splitlines()
    assert len(sweeps) == 5 and all(line.startswith("computed:") for line in sweeps)
    free, ring = (int(re.search(r"1,073,741,824: (\d+) µs", sweeps[i])[1]) for i in (0, 1))
    assert "nvls Simple" in sweeps[0] and "ring Simple" in sweeps[1] and 1.2 < ring / free < 1.45
    assert "ring LL" in sweeps[3].split("1,073,741,824")[1]  # NCCL_PROTO=LL
    assert "nvls" not in sweeps[4]
    assert re.match(
        r"measured: the same script on two CPU ranks, Gloo: 1,024: \d+ µs  1,048,576: \d+ µs", chapter.text("script")
    )

    assert f"sent {2 * (ranks - 1) / ranks:.3f} n; every sum is right: True" in chapter.text("ring_counted")
    assert "8 ranks: a ring sends 1.750 n, NVLS 1.125 n" in chapter.text("bytes_computed")
    assert "2 ranks: a ring sends 1.000 n, NVLS 1.500 n" in chapter.text("bytes_computed")
    assert "it was the ring" in chapter.text("reveal_two") and "it was one shot" in chapter.text("reveal_shot")
    small, large = chapter.text("before_after").splitlines()[-2:]
    for line in (small, large):
        communication, exposed, compute = map(float, re.findall(r"([\d.]+) ms", line))
        assert 0 < exposed <= communication and compute > 0
    assert "16 channels of 132 multiprocessors 1.14 times" in chapter.text("beside_run")
    assert chapter.text("one_shot_run").endswith("is off by 0.0")
    assert "one-shot  moves   896 KiB" in chapter.text("kernels_run")
    assert re.match(r"measured: no window .*: \{65536: [\d.]+, 1048576: [\d.]+\}", chapter.text("windows"))
    assert chapter.text("record").startswith('measured: {"torch"')


def test_every_line_says_where_it_comes_from():
    """So that no reader takes a computed figure for a measured one."""
    for cell in read(CHAPTER).cells:
        if cell.cell_type == "code" and "print(" in cell.source:
            for said in re.findall(r'print\(\s*(?:f?"|[\'"])([^"\']*)', cell.source):
                assert re.match(r"measured|computed|recorded|\{label\}", said), (cell.id, said)


def test_the_page_says_that_nothing_has_run_on_a_gpu():
    assert "no cell of this page has run on a GPU" in read(CHAPTER).cells[0].source
