"""Chapter 62: parts of unequal length are counted, gathered in three ways, and exchanged with neighbours."""

import re

import pytest
from test_chapters import RANKS, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]


@pytest.mark.parametrize("ranks", RANKS)
def test_uneven(ranks):
    chapter = execute(read("62_uneven", ranks))
    assert not chapter.errors()

    for rank, text in chapter.by_rank("by_gather").items():
        assert f"numbers {rank**2} to {(rank + 1) ** 2 - 1}" in text  # the odd numbers add to squares
        assert chapter.by_rank("scan_live")[rank] == f"sum up to here: {(rank + 1) ** 2}"
    assert " 1024     10      9217            1023" in chapter.text("scan_numbers")

    for text in [chapter.by_rank("lists_live")[0]]:
        told = dict(re.findall(r"^(\S+, lists?|\S+) +(works|refused)", text, flags=re.M))
        assert told == {
            "all_gather, list": "refused",
            "reduce_scatter, list": "works",
            "all_to_all, lists": "refused",
            "all_to_all_single": "works",
        }
    told = chapter.text("count_bytes")
    assert told.count("right: True") == 3
    found = re.findall(r"^(\w+) +right: True, calls: (\d+), +([\d,]+) bytes", told, re.M)
    assert {name: int(calls) for name, calls, _ in found} == {"padded": 1, "broadcasts": ranks, "by_all_to_all": 1}
    nbytes = {name: int(text.replace(",", "")) for name, _, text in found}
    others = 4 * 50_000 * (ranks - 1 + ranks - 2)
    assert nbytes["broadcasts"] == nbytes["by_all_to_all"] == others
    assert nbytes["padded"] == 4 * 50_000 * (ranks - 1) ** 2 >= others
    curves = chapter.curves("price_ways")
    padded, broadcasts = curves["padded, or all-to-all"], curves["broadcasts"]
    assert padded[0][1] < broadcasts[0][1] and padded[-1][1] > broadcasts[-1][1]
    assert "5 rows on 4 ranks: [2, 2, 1, 0], 60.0 % padding" in chapter.text("row_shards")
    assert "10 rows on 4 ranks: [3, 3, 3, 1]" in chapter.text("row_shards")
    for name, words in (("gatherv_live", "back again: True"), ("neighbours_live", "the same: True")):
        assert all(words in text for text in chapter.by_rank(name).values())
