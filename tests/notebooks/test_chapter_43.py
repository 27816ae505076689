"""The chapter on NCCL's inside: words with flags arrive whole, and the tuner's borders are those of its tables."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "43_inside_nccl"


@pytest.mark.parametrize("ranks", RANKS)
def test_inside_nccl(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()
    assert chapter.by_rank("beside") == {1: "rank 1 reads [1.5, -2.0, 3.25], the first word is 0x000000013fc00000"}
    assert re.findall(r"(\d+\.\d) %", chapter.text("shares")) == ["50.0", "93.8", "100.0"]

    curves = chapter.curves("ping_pong_curve")
    assert {label: [bytes_ for bytes_, _ in points] for label, points in curves.items()} == {
        "flag beside": [4, 256, 4096, 65536, 262144],
        "flag separate": [4, 256, 4096, 65536, 262144],
    }
    assert re.findall(r"busy +(\d+) %", chapter.text("slots_model")) == ["25", "51", "100", "100"]
    assert "24 channels of 42.67 MiB, chunks of [2048, 2048, 1365] KiB" in chapter.text("cut")
    channels = [int(count) for count in re.findall(r"(\d+) channels", chapter.text("cut"))]
    assert channels[0] < channels[1] == channels[2]  # "Few bytes get few channels"

    one_a100, one_h100, two_h100, many_h100, two_a100 = chapter.text("choices").splitlines()
    borders = [int(n.replace(",", "")) for n in re.findall(r"from ([\d,]+)", two_a100)]
    assert [n for n in borders if 3e6 < n < 15e6] == [3526975, 4194304, 14107901]  # "three times between 3 and 15 MB"
    assert re.findall(r"[a-z]\w+ \w+(?= from)", one_a100) == ["ring LL", "ring LL128", "ring Simple"]
    assert re.findall(r"[a-z]\w+ \w+(?= from)", one_h100) == ["ring LL", "nvls Simple"]
    border = int(one_h100.rsplit(" ", 1)[1].replace(",", ""))
    assert 1.0e6 < border < 1.4e6  # NCCL's own code changes at 1.2 MB, between two of our points
    assert "tree LL from 256" in two_h100 and "nvls_tree Simple" in many_h100
    rows = [list(map(int, line.split())) for line in chapter.text("pat").splitlines()[1:]]
    assert [nodes for nodes, *_ in rows] == [8, 64, 256] and all(pat < ll < simple for _, ll, simple, pat in rows)
    small, middle, large = (float(x) for x in re.findall(r"x (\d+\.\d)$", chapter.text("rack_priced"), flags=re.M))
    assert 1 < large < middle and small > 1
    assert all(WIDGET in chapter.outputs(name)[0]["data"] for name in ("watch", "watch_bruck", "guess_switch"))
