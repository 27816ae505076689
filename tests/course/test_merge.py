"""A new version of a notebook is merged cell by cell: what the learner wrote stays, what the learner left becomes new."""

import copy

import pytest
from allranks.course.merge import merge, text_of


def cell(name: str, source: str, kind: str = "code", **more) -> dict:
    made = {"cell_type": kind, "id": name, "metadata": {"name": name}, "source": source}
    return made | ({"outputs": [], "execution_count": None} if kind == "code" else {}) | more


def notebook(*cells: dict) -> dict:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "python3"}}, "cells": list(cells)}


BASE = notebook(cell("title", "# One", "markdown"), cell("start", "a = 1"), cell("write", "..."), cell("end", "stop()"))
OUTPUT = [{"output_type": "stream", "name": "stdout", "text": "1"}]


def changed(book: dict, **sources: str) -> dict:
    book = copy.deepcopy(book)
    for found in book["cells"]:
        found["source"] = sources.get(found["id"], found["source"])
    return book


def sources(book: dict) -> list[str]:
    return [text_of(found) for found in book["cells"]]


def test_what_the_learner_wrote_stays_and_the_rest_becomes_new():
    mine = changed(BASE, write="my answer")
    new = changed(BASE, start="a = 2", title="# Two")
    found = merge(BASE, mine, new, "0.2.0")
    assert sources(found.notebook) == ["# Two", "a = 2", "my answer", "stop()"]
    assert (found.kept, found.doubled) == (("write",), ())


def test_outputs_stay_with_cells_that_did_not_change_and_go_with_those_that_did():
    mine = copy.deepcopy(BASE)
    for found in mine["cells"][1:]:
        found["outputs"], found["execution_count"] = OUTPUT, 3
    cells = merge(BASE, mine, changed(BASE, start="a = 2"), "2").notebook["cells"]
    assert cells[1]["outputs"] == [] and cells[2]["outputs"] == cells[3]["outputs"] == OUTPUT


def test_where_both_changed_a_cell_the_new_text_stands_below_the_learners():
    new = changed(BASE, write="def f():\n    '''```'''")
    found = merge(BASE, changed(BASE, write="mine"), new, "0.2.0")
    texts = sources(found.notebook)
    assert texts[2] == "mine" and found.doubled == ("write",)
    note = found.notebook["cells"][3]
    assert note["cell_type"] == "markdown" and "0.2.0" in texts[3] and "````python\ndef f():" in texts[3]
    ids = [one["id"] for one in found.notebook["cells"]]
    assert len(set(ids)) == len(ids)
    # the next version that changes it again stands below too, and the first note stays
    again = merge(new, found.notebook, changed(BASE, write="third"), "0.3.0")
    assert [text for text in sources(again.notebook) if "0.2.0" in text] and "third" in "".join(sources(again.notebook))


def test_the_learners_own_cells_stay_where_they_were():
    mine = copy.deepcopy(BASE)
    mine["cells"].insert(0, cell("first", "mine 0"))
    mine["cells"].insert(3, cell("own", "mine 1"))
    mine["cells"].insert(4, cell("own2", "mine 2"))
    new = changed(BASE, start="a = 2")
    new["cells"].insert(2, cell("added", "new"))
    found = merge(BASE, mine, new, "2")
    assert sources(found.notebook) == ["mine 0", "# One", "a = 2", "mine 1", "mine 2", "new", "...", "stop()"]


def test_a_deleted_cell_stays_away_and_one_that_the_course_dropped_stays_only_if_it_was_changed():
    mine = changed(BASE, write="mine")
    del mine["cells"][1]
    new = copy.deepcopy(BASE)
    del new["cells"][2:]
    assert sources(merge(BASE, mine, new, "2").notebook) == ["# One", "mine"]
    assert sources(merge(BASE, BASE, new, "2").notebook) == ["# One", "a = 1"]


@pytest.mark.parametrize("lost", ["ids", "ids and names"])
def test_an_editor_that_drops_the_ids_loses_nothing(lost):
    mine = changed(BASE, write="mine")
    for number, found in enumerate(mine["cells"]):
        del found["id"]
        found["metadata"] = {"id": f"colab{number}"} if lost == "ids and names" else found["metadata"]
    mine["nbformat_minor"] = 0
    found = merge(BASE, mine, changed(BASE, start="a = 2"), "2")
    if lost == "ids":
        assert sources(found.notebook) == ["# One", "a = 2", "mine", "stop()"]
    assert "mine" in sources(found.notebook) and "a = 2" in sources(found.notebook)
    assert all(one["id"] for one in found.notebook["cells"])


def test_two_cells_with_one_id_are_both_kept():
    mine = copy.deepcopy(BASE)
    mine["cells"].append(cell("write", "a copy"))
    assert sources(merge(BASE, mine, changed(BASE, start="a = 2"), "2").notebook)[-1] == "a copy"


def test_merging_the_same_version_changes_nothing():
    mine = changed(BASE, write="mine")
    assert merge(BASE, mine, BASE, "1").notebook == mine
