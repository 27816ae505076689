"""The learner's folder: notebooks are put there once, updates keep what was written, and nothing is written over."""

import json
import shutil
from pathlib import Path

import pytest
from allranks.base import course_files as files
from allranks.cli import lab, main
from allranks.course import folder
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
FIRST = files.FIRST_CHAPTER
LAB = Path("labs/lab03_all_reduce/all_reduce.ipynb")
RING = Path("chapters/1_first_hours/04_all_reduce.ipynb")
NAMES = (FIRST, RING, LAB)


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """The files that this installation gives, three real notebooks; a test can change them to play a new version."""
    given = tmp_path / "site-packages" / "given"
    for name in NAMES:
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, given / name)
        (given / name).chmod(0o444)  # as of an administrator
    monkeypatch.setattr(files, "given", lambda: given)
    monkeypatch.setattr(files, "checkout", lambda: None)
    return given


@pytest.fixture
def mine(course, tmp_path) -> Path:
    """A learner's folder, in a home with a space."""
    path = tmp_path / "my home" / "all-ranks"
    folder.lay_out(path)
    return path


def change(path: Path, was: str, now: str) -> None:
    """Changes the first cell that holds `was`, and saves the notebook as Jupyter does."""
    book = json.loads(path.read_text())
    for found in book["cells"]:
        text = "".join(found["source"])
        if was in text:
            found["source"] = text.replace(was, now)
            break
    else:
        raise AssertionError(f"no cell of {path} has {was!r}")
    path.chmod(0o644)
    path.write_text(json.dumps(book, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def new_version(monkeypatch, version: str = "9.0.0") -> None:
    monkeypatch.setattr(folder, "version", lambda: version)


def test_the_notebooks_are_put_there_once_and_can_be_written(mine, course):
    assert files.for_learners(mine) == sorted(NAMES)
    for name in NAMES:
        assert (mine / name).read_bytes() == (course / name).read_bytes()
        assert (mine / name).stat().st_mode & 0o200
    (mine / FIRST).write_text("what I wrote")
    report = folder.lay_out(mine)
    assert (mine / FIRST).read_text() == "what I wrote" and not report.added


def test_a_deleted_notebook_comes_back(mine):
    (mine / LAB).unlink()
    assert folder.lay_out(mine).added == [LAB]


def test_files_of_that_name_that_were_there_before_stay(course, tmp_path):
    (tmp_path / "full" / FIRST).parent.mkdir(parents=True)
    (tmp_path / "full" / FIRST).write_text("my own")
    report = folder.lay_out(tmp_path / "full")
    assert report.kept == [FIRST] and len(report.added) == 2
    assert folder.update(tmp_path / "full").kept == [FIRST]
    assert (tmp_path / "full" / FIRST).read_text() == "my own"


def test_an_update_keeps_what_was_written_and_brings_what_is_new(mine, course, monkeypatch):
    change(mine / LAB, "raise NotImplementedError", "return 7  # mine")
    was = (mine / LAB).read_bytes()
    change(course / LAB, "# Lab 3", "# Lab 3, second edition")
    change(course / FIRST, "# Start here", "# Begin here")
    added = Path("chapters/2_collectives/17_all_reduce_algorithms.ipynb")
    (course / added).parent.mkdir()
    shutil.copyfile(ROOT / added, course / added)
    new_version(monkeypatch)
    report = folder.update(mine)
    assert report.merged == [LAB] and report.updated == [FIRST] and not report.doubled
    assert report.added == [added]
    text = (mine / LAB).read_text()
    assert "return 7  # mine" in text and "second edition" in text
    assert (report.before / LAB).read_bytes() == was
    assert folder.version_of(mine) == "9.0.0"
    assert "already" in folder.update(mine).text()


def test_a_merged_notebook_is_valid(mine, course, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    change(mine / LAB, "raise NotImplementedError", "return 7")
    change(course / LAB, "raise NotImplementedError", "raise NotImplementedError  # write here")
    new_version(monkeypatch)
    assert folder.update(mine).doubled == [LAB]
    nbformat.validate(nbformat.read(mine / LAB, as_version=4))


def test_a_broken_notebook_is_left_alone(mine, course, monkeypatch):
    (mine / LAB).write_text("{ half of a notebook")
    change(course / LAB, "# Lab 3", "# Lab III")
    new_version(monkeypatch)
    assert folder.update(mine).kept == [LAB]
    assert (mine / LAB).read_text() == "{ half of a notebook"


@pytest.mark.parametrize("name", ["docs/labs.md", "chapters/scripts/distributed_mean.py"])
def test_pages_and_scripts_are_given_and_updated_too_unless_the_learner_changed_them(
    course, tmp_path, monkeypatch, name
):
    (course / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / name, course / name)
    mine, other = tmp_path / "mine", tmp_path / "other"
    for place in (mine, other):
        assert Path(name) in folder.lay_out(place).added
    (mine / name).write_text("my notes")
    (course / name).write_text("second edition")
    new_version(monkeypatch)
    assert folder.update(mine).kept == [Path(name)] and (mine / name).read_text() == "my notes"
    assert folder.update(other).updated == [Path(name)] and (other / name).read_text() == "second edition"
    (course / name).unlink()
    assert folder.update(other).removed == [Path(name)] and not (other / name).exists()
    assert folder.update(mine).kept == [Path(name)] and (mine / name).read_text() == "my notes"


def test_what_the_course_gave_under_a_name_that_no_pattern_has_goes_with_it(mine, course, monkeypatch):
    for root in (mine, mine / folder.BASE):
        (root / "docs").mkdir()
        (root / "docs" / "old.md").write_text("of an older version")
    new_version(monkeypatch)
    assert folder.update(mine).removed == [Path("docs/old.md")] and not (mine / "docs" / "old.md").exists()


def test_a_dropped_chapter_goes_unless_it_was_used(mine, course, monkeypatch):
    (course / LAB).unlink()
    (course / NAMES[1]).unlink()
    change(mine / LAB, "raise NotImplementedError", "return 7")
    new_version(monkeypatch)
    report = folder.update(mine)
    assert report.removed == [NAMES[1]] and report.kept == [LAB] and (mine / LAB).exists()


def test_the_commands_words(mine, course, monkeypatch):
    monkeypatch.chdir(mine / "chapters")
    told = CliRunner().invoke(main, ["update"])
    assert told.exit_code == 0 and "already" in told.output
    report = json.loads(CliRunner().invoke(main, ["update", "--json", str(mine)]).output)
    assert report["folder"] == str(mine) and report["added"] == []


def test_what_can_not_be_done_is_said_in_a_sentence(course, tmp_path, monkeypatch):
    told = CliRunner().invoke(main, ["update", str(tmp_path)])
    assert told.exit_code == 2 and "allranks lab" in told.output and len(told.output.splitlines()) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(folder.FolderError, match="is a file"):
        folder.lay_out(tmp_path / "file")
    monkeypatch.setattr(files, "checkout", lambda: ROOT)
    told = CliRunner().invoke(main, ["update", str(ROOT)])
    assert told.exit_code == 2 and "git pull" in told.output


OLD_FIRST, OLD_RING = Path("chapters/00_start_here.ipynb"), Path("chapters/07_all_reduce.ipynb")
ANSWERS = {"allranks_predictions": {"guess": {"said": "the sum"}}, "who": "me"}


@pytest.fixture
def old(course, tmp_path) -> Path:
    """A learner's folder of the time when all chapters lay in one folder, with an answer, a cell of their own and an output in the ring."""
    path = tmp_path / "all-ranks"
    for was, now in ((OLD_FIRST, FIRST), (OLD_RING, RING), (LAB, LAB)):
        for root in (path, path / folder.BASE):
            (root / was).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(course / now, root / was)
            (root / was).chmod(0o644)
            if now == RING:
                change(root / was, "# All-reduce", "# All-reduce, number 7")
    (path / folder.VERSION).write_text("0.0.9\n")
    change(path / OLD_RING, "# all-gather: your turn", "return tensor  # mine")
    book = json.loads((path / OLD_RING).read_text())
    code = next(cell for cell in book["cells"] if "return tensor  # mine" in "".join(cell["source"]))
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "passed: 1 of 1"}]
    own = {"cell_type": "markdown", "id": "own", "metadata": {}, "source": "my notes"}
    book["cells"].insert(book["cells"].index(code) + 1, own)
    book["metadata"].update(ANSWERS)
    (path / OLD_RING).write_text(json.dumps(book))
    return path


def test_a_folder_of_the_old_order_loses_nothing_when_it_is_updated(old):
    was = (old / OLD_RING).read_bytes()
    report = folder.update(old)
    assert report.moved == {OLD_FIRST: FIRST, OLD_RING: RING} and report.merged == [RING]
    assert files.for_learners(old) == sorted(NAMES) and not list(old.glob("chapters/*.ipynb"))
    book = json.loads((old / RING).read_text())
    sources = ["".join(cell["source"]) for cell in book["cells"]]
    mine = next(cell for cell in book["cells"] if "return tensor  # mine" in "".join(cell["source"]))
    assert mine["outputs"][0]["text"] == "passed: 1 of 1"
    assert sources[book["cells"].index(mine) + 1] == "my notes"
    assert all(book["metadata"][key] == value for key, value in ANSWERS.items())
    assert "number 7" not in "".join(sources), "the course's own text is the new one"
    assert (report.before / OLD_RING).read_bytes() == was and not (report.before / OLD_FIRST).exists()
    assert f"  {OLD_RING} is now {RING}" in report.text() and str(OLD_FIRST) not in report.text()
    assert json.loads(json.dumps(report.to_dict()))["moved"][OLD_RING.as_posix()] == RING.as_posix()
    again = folder.update(old)
    assert not again.moved and "already" in again.text()


def test_until_then_it_opens_as_it_is(old, course, monkeypatch):
    """`allranks lab` adds no second, empty copy of a chapter that lies at its old place; and it says how to have the new order."""
    before = {path: path.read_bytes() for path in old.rglob("*.ipynb")}
    monkeypatch.setattr(folder, "version", lambda: "0.0.9")  # as between two builds of one version
    [said] = lab.fill(old)
    assert "`allranks update`" in said
    assert {path: path.read_bytes() for path in old.rglob("*.ipynb")} == before
    assert folder.first_chapter(old) == OLD_FIRST
    monkeypatch.chdir(old / "chapters")
    assert folder.find(Path.cwd()) == old == lab.course_directory()
    folder.update(old)
    assert folder.first_chapter(old) == FIRST and folder.find(Path.cwd()) == old
    assert lab.fill(old) == []


def test_what_is_at_the_new_place_already_is_not_written_over(old):
    (old / RING).parent.mkdir()
    (old / RING).write_text("somebody's")
    was = (old / OLD_RING).read_bytes()
    report = folder.update(old)
    assert (old / RING).read_text() == "somebody's" and (old / OLD_RING).read_bytes() == was
    assert report.kept == [RING, OLD_RING] and f"{OLD_RING}: left as it is" in report.text()


def test_a_broken_notebook_stays_at_its_old_place(old, course):
    (old / OLD_RING).write_text("{ half of a notebook")
    report = folder.update(old)
    assert report.kept == [OLD_RING] and report.added == [RING]
    assert (old / OLD_RING).read_text() == "{ half of a notebook"
    assert (old / RING).read_bytes() == (course / RING).read_bytes()


def test_a_folder_that_can_not_be_written_is_named(course, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(folder.FolderError, match=r"can't be read or written .*: name a folder of your own"):
        folder.lay_out(tmp_path / "file" / "all-ranks")
