"""What the course keeps for a learner: one file for all parts, beside the chapters; and nothing here stops a notebook."""

from __future__ import annotations

from allranks.base import course_files as files
from allranks.base import kept


def test_all_parts_of_a_course_share_one_file(tmp_path):
    first = tmp_path / files.FIRST_CHAPTER
    deep = tmp_path / "chapters" / "4_real_cluster"
    for folder in (first.parent, deep):
        folder.mkdir(parents=True, exist_ok=True)
    first.write_text("{}")
    kept.write("thing", {"a": 1}, first.parent)
    assert kept.place("thing", deep).parent == tmp_path and kept.read("thing", deep) == {"a": 1}
    assert [path.name for path in tmp_path.glob(".allranks*")] == [".allranks_thing.json"]


def test_a_notebook_elsewhere_keeps_it_in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept.write("thing", {"b": [2]})
    assert [path.name for path in tmp_path.iterdir()] == [".allranks_thing.json"] and kept.read("thing") == {"b": [2]}


def test_what_cannot_be_read_or_written_counts_as_nothing(tmp_path):
    place = kept.place("thing", tmp_path)
    for broken in ("{", "[1]", ""):
        place.write_text(broken)
        assert kept.read("thing", tmp_path) == {}
    place.unlink()
    place.mkdir()
    kept.write("thing", {"c": 3}, tmp_path)
    assert kept.read("thing", tmp_path) == {} and [path.name for path in tmp_path.iterdir()] == [place.name]
