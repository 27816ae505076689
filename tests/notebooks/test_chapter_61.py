"""Chapter 61: sums whose bits depend on the order, a ring that stalls, and what 8 bits cost."""

import re

import pytest
from test_chapters import RANKS, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]


@pytest.mark.parametrize("ranks", RANKS)
def test_bits(ranks):
    chapter = execute(read("61_bits", ranks))
    assert not chapter.errors()

    values = re.search(r"values: \[(.*)\]", chapter.text("equal_live"))[1].split(", ")
    assert len(values) == 1 if ranks == 2 else 1 <= len(values) <= ranks
    again = chapter.text("again_live")
    assert "the same call again, changed bits: 0" in again
    changed = int(re.search(r"changed elements: +(\d+) %", again)[1])
    assert changed == 0 if ranks == 2 else changed < 60
    assert "the same bits as the chain on one process: True" in chapter.by_rank("ring_live")[ranks - 1]

    told = chapter.text("many_ranks")
    found = re.search(r"1024 ranks, mean error: chain +([\d.]+) % tree +([\d.]+) % in_float32 +([\d.]+) %", told)
    chain, tree, wide = map(float, found.groups())
    assert chain == pytest.approx(50, abs=0.5) and wide < tree < 0.5
    assert "the chain of 1,024: [256.0, 256.0, 256.0]" in told
    assert set(chapter.curves("error_figure")) == {"chain", "tree", "in_float32"}
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
    for text in chapter.by_rank("gather_off").values():
        fewer, off = map(float, re.findall(r"([\d.]+) (?:times|steps)", text))
        assert fewer == 3.76 and off <= 0.5
    [sixty_four] = re.findall(r"  64 ranks, int8: .* ([\d.]+) times", chapter.text("count_errors"))
    assert 3.5 < float(sixty_four) < 4.5
    assert "int4, float32 scale for each  256: 0.258 of 16 bits" in chapter.text("scale_bytes")
    arrive = [float(x) for x in re.findall(r"([\d.]+) % arrive", chapter.text("fp8_chain"))]
    assert arrive[-1] == pytest.approx(50, abs=1) and arrive[0] > 98
    for text in chapter.by_rank("fp8_gather").values():
        assert float(re.search(r"error ([\d.]+) %", text)[1]) < 4
