"""The committed notebooks are what their percent scripts build, and a script that can't be built is refused by name."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from loading import loaded

ROOT = Path(__file__).resolve().parents[2]


notebooks = loaded(ROOT / "tools" / "notebooks.py")


@pytest.fixture(scope="module")
def built() -> dict[Path, str]:
    return notebooks.build(ROOT)


@pytest.fixture
def course(tmp_path) -> Path:
    """A copy of a chapter and of a lab, to be spoilt."""
    for name in ("chapters/1_first_hours", "chapters/source/1_first_hours", "autograder"):
        (tmp_path / name).mkdir(parents=True)
    for path in (ROOT / "chapters").rglob("04_all_reduce.*"):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    for name in ("solutions", "labs"):
        shutil.copytree(ROOT / name / "lab03_all_reduce", tmp_path / name / "lab03_all_reduce")
    shutil.copy(ROOT / "autograder" / "nbgrader_config.py", tmp_path / "autograder")
    return tmp_path


def test_the_tree_is_what_the_scripts_build(built):
    assert notebooks.differences(ROOT, built) + notebooks.orphans(ROOT, built) == []


def test_building_twice_gives_the_same_bytes(built):
    assert notebooks.build(ROOT) == built


def test_every_lab_has_a_students_version(built):
    labs = {path.parts[1:] for path in built if path.parts[0] == "solutions"}
    assert labs and labs == {path.parts[1:] for path in built if path.parts[0] == "labs"}


def test_no_outputs_and_unique_ids(built):
    for path, text in built.items():
        notebook = nbformat.reads(text, as_version=4)
        ids = [cell.id for cell in notebook.cells]
        assert len(set(ids)) == len(ids), path
        for cell in notebook.cells:
            assert cell.cell_type != "code" or (cell.outputs == [] and cell.execution_count is None), path


def test_an_answer_that_is_run_again_later_is_that_of_its_own_question(built):
    for path, text in built.items():
        code = [cell.source for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "code"]
        asked = re.findall(r"^(\w+) = predict\(", "\n".join(code), flags=re.M)
        assert len(set(asked)) == len(asked), f"{path}: a later question takes the place of an earlier one"


def test_students_get_no_solutions(built):
    for path, text in built.items():
        if path.parts[0] == "labs":
            assert "BEGIN SOLUTION" not in text and "END SOLUTION" not in text
            released = nbformat.reads(text, as_version=4)
            answers = [c for c in released.cells if c.metadata.get("nbgrader", {}).get("solution")]
            assert answers, path
            for cell in answers:
                hole = "raise NotImplementedError" if cell.cell_type == "code" else "YOUR ANSWER HERE"
                assert hole in cell.source, (path, cell.id)


def test_check_names_what_differs(course, capsys):
    lab = course / "labs" / "lab03_all_reduce" / "all_reduce.ipynb"
    lab.write_text(lab.read_text(encoding="utf-8").replace("Lab 3", "Lab 4"), encoding="utf-8")
    (course / "labs" / "lab03_all_reduce" / "left_over.ipynb").write_text("{}", encoding="utf-8")
    (course / "solutions" / "lab03_all_reduce" / "all_reduce.ipynb").unlink()
    assert notebooks.main(["--check", "--root", str(course)]) == 1
    said = capsys.readouterr().err
    assert "labs/lab03_all_reduce/all_reduce.ipynb is not what its percent script builds." in said
    assert "solutions/lab03_all_reduce/all_reduce.ipynb is missing." in said
    assert "labs/lab03_all_reduce/left_over.ipynb has no percent script" in said
    assert said.endswith("Run `make notebooks` and commit what it writes.\n")


def test_writing_makes_the_check_pass(course, capsys):
    (course / "labs" / "lab03_all_reduce" / "all_reduce.ipynb").unlink()
    assert notebooks.main(["--root", str(course)]) == 0
    assert capsys.readouterr().out == "wrote labs/lab03_all_reduce/all_reduce.ipynb\n"
    assert notebooks.main(["--check", "--root", str(course)]) == 0


def test_chapters_can_be_written_without_what_the_labs_mark(tmp_path, capsys):
    assert notebooks.main(["--without-answers", str(tmp_path / "new" / "chapters")]) == 0
    new = tmp_path / "new" / "chapters"
    written = sorted(new.glob("*/*"))
    there = sorted((ROOT / "chapters").glob("*/*.ipynb"))
    assert [path.relative_to(new) for path in written] == [path.relative_to(ROOT / "chapters") for path in there]
    assert len(capsys.readouterr().out.splitlines()) == len(written)
    folded = 0
    for path in written:
        whole = nbformat.read(ROOT / "chapters" / path.relative_to(new), as_version=4)
        less = {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}
        for cell in whole.cells:
            left = less.pop(cell.id, "")
            if "<b>An answer" in cell.source:
                folded += 1
                assert "<b>An answer" not in left and "```python" not in left
                assert left.count("<details>") == left.count("</details>") == cell.source.count("<details>") - 1
            else:
                assert left == cell.source
        assert less == {}
    assert folded > 15


def test_an_answer_that_can_not_be_left_out_is_named(course, capsys):
    script = course / "chapters/source/1_first_hours/04_all_reduce.py"
    script.write_text(script.read_text(encoding="utf-8").replace("</details>", ""), encoding="utf-8")
    assert notebooks.main(["--without-answers", str(course / "less"), "--root", str(course)]) == 2
    assert "04_all_reduce.ipynb, cell 'ring_answer': this answer's <details> has no end." in capsys.readouterr().err
    assert not (course / "less").exists()


def test_outputs_are_found(course, capsys):
    path = course / "labs" / "lab03_all_reduce" / "all_reduce.ipynb"
    notebook = nbformat.read(path, as_version=4)
    next(cell for cell in notebook.cells if cell.cell_type == "code").execution_count = 3
    nbformat.write(notebook, path)
    assert notebooks.main(["--no-outputs", str(path)]) == 1
    assert "holds outputs" in capsys.readouterr().err


GRADED = '# %% nbgrader={"grade_id": "f-graded", "grade": true, "locked": true, "points": 1}'


MARKED = GRADED + ' allranks={"exercise": "ring_shift"}'
TABLE = "# %% [markdown]\n# | you write | points |\n# |---|---|\n# | `ring_shift` | 3 |\n\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("# %%\n# copy the chunk\nx = 1\n", "cell 1: the comment '# copy the chunk' would become the shell command"),
        ("# %%\nx = 1\n# %%ranks\ny = 2\n", "cell 1: the magic %%ranks must be the first line of its cell."),
        ('# %% name="a"\n1\n# %% name="a"\n2\n', "two cells are named 'a'; give each its own name."),
        ('# %% name="a b"\n1\n', "cell 1: the name 'a b' must be 1 to 64 letters"),
        ('# %% nbgrader={"solution": true}\n1\n', "cell 1: its nbgrader metadata lacks a grade_id."),
        ('# %% nbgrader={"grade_id": "f", "grade": true}\n1\n', "cell 1: the graded cell f lacks points."),
        (GRADED + "\n1\n", "cell 1: the graded cell f-graded does not say which exercise marks it"),
        (MARKED + "\nround(2 * check(ring_shift).score, 2)\n", "must be `round(1 * check(ring_shift).score, 2)`"),
        (MARKED.replace("ring_shift", "ring_shaft") + "\n1\n", "names ring_shaft, but there is no such exercise."),
        (
            TABLE + MARKED + "\nround(1 * check(ring_shift).score, 2)\n",
            "the table says 3 points for ring_shift, its cell 1.",
        ),
        (
            "# %% [markdown]\n# # Spoilt\n#\n# {{here}}\n",
            "utils/allranks/base/chapters.toml has no row for it; write one.",
        ),
    ],
)
def test_a_script_that_cannot_be_built_is_refused(course, capsys, script, said):
    (course / "chapters/source/1_first_hours/99_spoilt.py").write_text(script, encoding="utf-8")
    assert notebooks.main(["--root", str(course), str(course / "chapters/source/1_first_hours/99_spoilt.py")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("chapters/source/1_first_hours/99_spoilt.py") and "Traceback" not in error


def test_tags_reach_the_notebook_and_a_misspelt_one_is_refused():
    script = '# %% tags=["raises-exception", "not-on-nccl"] name="stuck"\n1\n'
    assert notebooks.read_script(script, "here").cells[0].metadata.tags == ["raises-exception", "not-on-nccl"]
    with pytest.raises(notebooks.NotebookError, match=r"here, cell 1: the tag 'not-on-ncll' is unknown; use one of "):
        notebooks.read_script(script.replace("not-on-nccl", "not-on-ncll"), "here")


def test_a_magic_needs_no_escape():
    cells = notebooks.read_script("# %%\n# %%ranks --deadline 3\nx = 1\n\n\n# %%\nx\n", "here").cells
    assert [cell.source for cell in cells] == ["%%ranks --deadline 3\nx = 1", "x"]
    assert [cell.id for cell in cells] == ["cell-001", "cell-002"]
