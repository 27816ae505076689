"""The notebook reader, fuzzed: real notebooks torn, twisted and grafted. It refuses in one sentence, or it restores them whole."""

from __future__ import annotations

import copy
import json

import nbformat
import pytest
from allranks.course.handin import Refused, parse_notebook, read_notebook
from grading_course import LAB, NOTEBOOK, ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbformat import NotebookNode
from nbgrader.nbgraderformat import MetadataValidator

from autograder.intake import name_refusal
from autograder.trusted import is_graded, key_of, restore

RELEASED = nbformat.read(ROOT / "labs" / LAB / f"{NOTEBOOK}.ipynb", as_version=4)
RAW = (ROOT / "labs" / LAB / f"{NOTEBOOK}.ipynb").read_bytes()
KNOWN = {
    cell.metadata.nbgrader.grade_id: cell for cell in RELEASED.cells if "nbgrader" in cell.metadata
}  # as the gradebook has them
pytestmark = [
    pytest.mark.filterwarnings("ignore::nbformat.warnings.DuplicateCellId"),
    pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning"),
]
MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["code", "markdown", "raw", "\ud800", "nbgrader", "grade_id", *KNOWN]),
)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def places(value: object, at: tuple = ()) -> list[tuple]:
    """The path to everything in a JSON value."""
    found = [at]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*at, key))
    return found


PLACES = places(json.loads(RAW))
METADATA = [place for place in PLACES if "metadata" in place]


def put(notebook: object, place: tuple, value: object) -> object:
    """The notebook with another value there; as it was where an earlier change took that place away."""
    if not place:
        return value
    inner = notebook
    try:
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
    except (TypeError, KeyError, IndexError):
        pass
    return notebook


def accepted(raw: bytes) -> NotebookNode | None:
    """The notebook as it is marked, or None where it was refused; any other end fails the test."""
    try:
        notebook = parse_notebook(raw, "all_reduce.ipynb")
    except Refused as reason:
        assert "\n" not in str(reason) and str(reason).endswith(".")
        return None
    remarks = restore(notebook, KNOWN)
    assert all(where in KNOWN and isinstance(what, str) for where, what in remarks)
    return notebook


def check_whole(notebook: NotebookNode | None) -> None:
    """Every graded cell is there once, with the released text and points; nothing else is graded; it can be asked about."""
    if notebook is None:
        return
    MetadataValidator().validate_nb(notebook)
    graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    wanted = {name: cell for name, cell in KNOWN.items() if cell.metadata.nbgrader.grade}
    assert sorted(cell.metadata.nbgrader.grade_id for cell in graded) == sorted(wanted)
    for cell in graded:
        released = wanted[cell.metadata.nbgrader.grade_id]
        assert cell.cell_type == released.cell_type
        assert dict(cell.metadata.nbgrader) == dict(released.metadata.nbgrader)
        assert cell.source == released.source or not released.metadata.nbgrader.locked
    sources = ["" if is_graded(cell) else cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert all(isinstance(source, str) for source in sources)
    key_of({"cells": sources})
    nbformat.writes(notebook).encode()


def test_as_released_it_is_whole_and_there_is_nothing_to_remark():
    notebook = parse_notebook(RAW, "all_reduce.ipynb")
    assert restore(notebook, KNOWN) == []
    check_whole(notebook)


def changed(change) -> NotebookNode:
    """The lab as it is read when `change` was made to the JSON of each code cell."""
    notebook = json.loads(RAW)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            change(cell)
    return parse_notebook(json.dumps(notebook).encode(), "all_reduce.ipynb")


@pytest.mark.parametrize(
    "change",
    [
        lambda cell: cell.update(id="x" * 65),
        lambda cell: cell.update(id="not an id!"),
        lambda cell: cell.update(id=5),
        lambda cell: cell.update(id="same"),
        lambda cell: cell.pop("id", None),
        lambda cell: cell.pop("outputs"),
        lambda cell: cell.pop("execution_count"),
        lambda cell: cell.update(outputs={"a": 1}, execution_count="seven"),
        lambda cell: cell.update(outputs=[{"output_type": "nonsense"}] * 9000),
    ],
)
def test_what_grading_throws_away_refuses_nobody(change):
    """Ids of cells and outputs: editors write them, and some write them wrongly."""
    found = changed(change)
    assert [cell.source for cell in found.cells] == [cell.source for cell in RELEASED.cells]
    assert restore(found, KNOWN) == []
    check_whole(found)


def test_outputs_do_not_count_and_other_text_does():
    large = changed(lambda cell: cell.update(outputs=[{"output_type": "stream", "text": "y" * (4 << 20)}]))
    assert [cell.source for cell in large.cells] == [cell.source for cell in RELEASED.cells]
    with pytest.raises(Refused, match="without its outputs"):
        changed(lambda cell: cell.update(source="#" * (4 << 20)))


def test_a_large_file_of_many_pieces_is_refused_before_it_is_read(tmp_path):
    """Each takes a hundred bytes of memory, of three in the file."""
    path = tmp_path / "all_reduce.ipynb"
    path.write_bytes(b'{"cells": [], "nbformat": 4, "x": [' + b"[]," * (8 << 20) + b"0]}")
    with pytest.raises(Refused, match="24 MiB"):
        read_notebook(path)


@MANY
@given(st.binary(max_size=400))
def test_junk(raw):
    assert accepted(raw) is None


@MANY
@given(st.lists(st.tuples(st.integers(0, len(RAW) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes(changes):
    raw = bytearray(RAW)
    for at, byte in changes:
        raw[at] = byte
    check_whole(accepted(bytes(raw)))


@MANY
@given(st.integers(0, len(RAW)), st.integers(0, len(RAW)))
def test_a_piece_cut_out(first, second):
    check_whole(accepted(RAW[: min(first, second)] + RAW[max(first, second) :]))


@MANY
@given(st.lists(st.tuples(st.sampled_from(PLACES), json_values), min_size=1, max_size=4))
def test_other_values_anywhere(changes):
    notebook = json.loads(RAW)
    for place, value in changes:
        notebook = put(notebook, place, value)
    check_whole(accepted(json.dumps(notebook).encode()))


@MANY
@given(st.lists(st.tuples(st.sampled_from(METADATA), json_values), min_size=1, max_size=6))
def test_other_metadata(changes):
    notebook = json.loads(RAW)
    for place, value in changes:
        notebook = put(notebook, place, value)
    check_whole(accepted(json.dumps(notebook).encode()))


@MANY
@given(st.lists(st.integers(0, len(RELEASED.cells) - 1), max_size=40))
def test_cells_shuffled_doubled_and_left_out(order):
    notebook = json.loads(RAW)
    notebook["cells"] = [copy.deepcopy(notebook["cells"][i]) for i in order]
    check_whole(accepted(json.dumps(notebook).encode()))


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 200_000,
        b'{"cells":' * 5000,
        b'{"cells": [' + b"{}," * 10 + b'{}], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
        json.dumps({"cells": [], "nbformat": 10**400, "metadata": {}}).encode(),
        json.dumps({"cells": [], "nbformat": 3, "metadata": {}}).encode(),
        RAW.decode().encode("utf-16"),
        b"",
    ],
)
def test_known_troublemakers_are_refused(raw):
    assert accepted(raw) is None


@MANY
@given(st.text(min_size=1, max_size=30))
def test_a_name_that_is_taken_is_safe_to_use_and_to_print(name):
    if name_refusal(name) is None:
        assert name.isprintable() and not set(name) & set("*?[]+/\n\x00") and name.strip() == name


@pytest.mark.parametrize("name", ["a\u1680b", "a\u2028b", "a\nb", "a\x1b[31m", "a*", ".ada", " ada", "ada+lab"])
def test_names_that_mislead_are_refused(name):
    assert "rename it" in name_refusal(name)


@pytest.mark.parametrize("name", ["ada", "Zoë Ünal-Ødegård", "学生 一", "o'brien", "a.b@uni.edu"])
def test_peoples_names_are_taken(name):
    assert name_refusal(name) is None


@pytest.mark.parametrize(("part", "value"), [("language_info", [1]), ("language_info", "python"), ("kernelspec", 3)])
def test_metadata_that_nbconvert_can_not_read_is_refused_by_name(part, value):
    notebook = json.loads(RAW)
    notebook["metadata"][part] = value
    with pytest.raises(Refused, match=rf"damaged notebook \({part} in its metadata\)"):
        parse_notebook(json.dumps(notebook).encode(), "x.ipynb")
