"""The chapter on the network: collisions by chance, the timeout's arithmetic, and a planted cable that its times name."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "49_the_network"
ANSWER = """from collections import Counter

def find_bad_cable(ways, rounds):
    most = {}
    for flows in rounds:
        sharing = Counter(cable for src, dst, _ in flows for cable in ways[src][dst])
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                most[cable] = min(most.get(cable, seconds), seconds / sharing[cable])
    return max(most, key=most.get)
"""


@pytest.mark.parametrize("ranks", RANKS)
def test_the_network(ranks):
    notebook = read(CHAPTER, ranks)
    chapter = execute(notebook)
    assert not chapter.errors()
    mean = dict(re.findall(r"(\d+) flows, +\d+ spines: x (\d\.\d+)", chapter.text("loads")))
    assert 2.4 < float(mean["8"]) < 2.8 and float(mean["8"]) < float(mean["32"]) < float(mean["128"])
    curves = chapter.curves("queue_pairs")
    for points in curves.values():
        times = [y for _, y in points]
        assert times == sorted(times, reverse=True) and times[-1] > 1
    assert re.findall(r"(\d+\.\d) s", chapter.text("timeout")) == ["0.5", "7.5", "30.1", "120.3"]
    pods, rails = chapter.text("rails").splitlines()
    assert pods.startswith("pods    8 of 16 flows") and rails.startswith("rails   0 of 16 flows") and "x 1.00" in rails
    slower = dict(re.findall(r"^(\w[\w ]*?) +\d.* x (\d\.\d+)$", chapter.text("slow_cable"), flags=re.M))
    assert slower["ring"] == "1.00" and float(slower["ring channels"]) > 1.7
    assert len(chapter.text("alone_measured").splitlines()) == 3  # one cable only
    slow, passing = re.search(r", (\d+) are slow\n.*of (\d+) of them", chapter.text("rounds_measured")).groups()
    assert 0 < 4 * int(passing) < int(slow)
    assert all(WIDGET in chapter.outputs(name)[0]["data"] for name in ("flows", "guess_slow"))


def test_the_folded_answer_finds_the_planted_cable():
    source = "\n".join(cell["source"] for cell in read(CHAPTER, 4)["cells"])
    assert all(line in source for line in ANSWER.splitlines() if line)
