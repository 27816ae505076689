"""Chapter 61: sums whose bits depend on the order, a ring that stalls, and what 8 bits cost."""

import re

import pytest
import torch
from test_chapters import RANKS, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]


@pytest.mark.parametrize("ranks", RANKS)
def test_bits(ranks):
    chapter = execute(read("61_bits", ranks))
    assert not chapter.errors()

    values = set(re.search(r"sums: \[(.*?)\]", chapter.text("equal_live"))[1].split(", "))
    assert len(values) == 1 if ranks == 2 else 1 < len(values) <= ranks  # "they differ from chunk to chunk"
    again = chapter.text("again_live")
    assert "the same call again, changed bits: 0" in again
    changed = int(re.search(r"changed elements: +(\d+) %", again)[1])
    assert changed == 0 if ranks == 2 else changed < 60
    assert "the same bits as the chain on one process: True" in chapter.by_rank("ring_live")[ranks - 1]

    told = chapter.text("many_ranks")
    curves = {name: dict(curve) for name, curve in chapter.curves("error_figure").items()}
    assert set(curves) == {"chain", "tree", "in_float32"}
    assert curves["chain"][1024] == pytest.approx(0.5, abs=0.005)
    assert curves["in_float32"][1024] < curves["tree"][1024] < 0.005
    assert "the chain of 1,024: [256.0, 256.0, 256.0]" in told
    sums = set(map(float, re.search(r"bfloat16: \[(.*)\]", chapter.text("library_live"))[1].split(", ")))
    assert sums <= {256.0, 258.0, 260.0} and 256.0 in sums
    assert chapter.text("divide_first").count("mean 0.250") == 2

    sizes = dict(re.findall(r"(\w+_hook) +([\d,]+) bytes", chapter.text("hooks")))
    assert sizes == {
        "allreduce_hook": "262,144",
        "fp16_compress_hook": "131,072",
    }
    zeros = [float(z) for z in re.findall(r"([\d.]+) % are 0", chapter.text("blocks"))]
    assert zeros[0] > 99 and zeros == sorted(zeros, reverse=True)
    fewer, off = map(float, re.findall(r"([\d.]+) (?:times|steps)", chapter.by_rank("gather_off")[0]))
    assert fewer == 3.76 and off <= 0.5
    error = {name: dict(curve) for name, curve in chapter.curves("count_errors").items()}
    for p in (16, 64, 256):  # "about half the root of p"
        assert error["int8, at each hop"][p] / error["int8, twice"][p] == pytest.approx(p**0.5 / 2, rel=0.1)
    assert "int4, float32 scale for each  256: 0.258 of 16 bits" in chapter.text("scale_bytes")
    arrive = [float(x) for x in re.findall(r"([\d.]+) % arrive", chapter.text("fp8_chain"))]
    assert arrive[-1] == pytest.approx(50, abs=1) and arrive[0] > 98
    for text in chapter.by_rank("fp8_gather").values():
        assert float(re.search(r"error ([\d.]+) %", text)[1]) < 4


def chain_error(dtype: torch.dtype, ranks: int) -> float:
    """The relative error of a chain of normal numbers."""
    parts = torch.randn(ranks, 4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact, total = parts.double().sum(0), parts[0]
    for part in parts[1:]:
        total = total + part
    return ((total - exact).norm() / exact.norm()).item()


def test_a_chain_of_numbers_with_both_signs_errs_as_the_text_says():
    assert chain_error(torch.float16, 1024) == pytest.approx(0.005, abs=0.001)  # "about 0.5 %"
    for ranks in (16, 64, 256):  # "grows with the root of p"
        assert chain_error(torch.bfloat16, 4 * ranks) / chain_error(torch.bfloat16, ranks) == pytest.approx(2, rel=0.1)
