"""A Gradescope autograder: `allranks gradescope LAB` packs the zip file, and its run_autograder starts this module.

    python -m autograder.gradescope /autograder

The layout is that of gradescope-autograders.readthedocs.io/en/latest/specs: submission/ is read, results/results.json written, with a
test for each exercise. The judge and its sandbox are those of `allranks grade`, so the points are the same. The zip has no solutions,
and a secret of its own.
"""

from __future__ import annotations

import json
import secrets
import stat
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from allranks.base import variants
from allranks.base.errors import CourseError
from allranks.course.handin import Refused, read_notebook
from nbformat import NotebookNode

from autograder.feedback import as_text, points_for
from autograder.intake import check_files
from autograder.judge import Judge, JudgeError
from autograder.trusted import Question, exercises_in, is_graded, questions_of, restore

HERE = Path(__file__).resolve().parent
SECONDS_PER_CELL = 60.0
VISIBILITIES = ("visible", "after_due_date", "after_published", "hidden")


class PackError(CourseError):
    """No zip file can be made; the message is one sentence."""


# -------------------------------------------------------------------------------------------------------------- packing


def refuse_variants(course: Path, lab: str) -> None:
    """Raises PackError if each student has a variant of the lab: another system knows no names of the course."""
    if (course / "solutions" / lab / variants.FILE).exists():
        raise PackError(
            f"{lab} gives each student a variant, and the names of your course are not known there: "
            f"`allranks course variants {lab} --off` first."
        )


def pack(course: Path, lab: str, out: Path, sandbox: str = "bubblewrap", visibility: str = "visible") -> None:
    """Writes the zip file. `sandbox` is "none" only where every submission is trusted. Raises PackError."""
    notebooks = sorted(path.name for path in (course / "labs" / lab).glob("*.ipynb"))
    if not notebooks:
        raise PackError(
            f"There is no students' version in labs/{lab}: type `nbgrader generate_assignment {lab}` first."
        )
    refuse_variants(course, lab)
    settings = {"lab": lab, "sandbox": sandbox, "visibility": visibility, "secret": secrets.randbits(128)}
    files = dict(package_files())
    files |= {f"autograder/{path.name}": path.read_bytes() for path in HERE.glob("*.py")}
    files |= {f"labs/{lab}/{name}": (course / "labs" / lab / name).read_bytes() for name in notebooks}
    for name, content in files.items():
        if name.endswith(".ipynb") and b"### BEGIN SOLUTION" in content:
            raise PackError(f"{name} has a solution in it: type `nbgrader generate_assignment {lab} --force` first.")
    packed = {f"course/{name}": content for name, content in files.items()}
    packed["lab.json"] = json.dumps(settings).encode()
    for path in sorted((HERE / "templates" / "gradescope").iterdir()):
        packed[path.name] = path.read_bytes()
    try:
        write_zip(out, packed)
    except OSError as error:
        raise PackError(f"{out} can't be written ({error.strerror}).") from None


def package_files() -> Iterator[tuple[str, bytes]]:
    """What pip needs to install the package: each file's name in this checkout and its bytes. Raises PackError."""
    root = HERE.parent  # a course of `allranks course init` has no package
    names = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")
    try:
        for name in names:
            yield name, (root / name).read_bytes()
        for path in sorted((root / "utils" / "allranks").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix(), path.read_bytes()
    except OSError as error:
        raise PackError(
            f"{error.filename} can't be read ({error.strerror}): pack from a clone of the course."
        ) from None


def write_zip(out: Path, files: dict[str, bytes]) -> None:
    """Writes a zip file, whole or not at all; scripts get the mode of a program."""
    unfinished = out.with_name(f"{out.name}.unfinished")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                entry = zipfile.ZipInfo(name)
                mode = 0o755 if content.startswith(b"#!") else 0o644
                entry.external_attr = (stat.S_IFREG | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)


# -------------------------------------------------------------------------------------------------------------- marking


def results(submission: Path, labs: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What results.json says of a submission. Raises JudgeError where nothing can be marked, as without a sandbox."""
    began = time.monotonic()
    tests, said = [], []
    try:
        check_files(submission)
        for path in sorted((labs / settings["lab"]).glob("*.ipynb")):
            released = nbformat.read(path, as_version=4)
            tests += [_test(verdict, q) for q, verdict in _marked(submission, path.stem, released, settings)]
            said += [
                f"{cell.metadata.nbgrader['grade_id'].replace('_', ' ')}: {cell.metadata.nbgrader['points']:g} more points, "
                "which a person gives"
                for cell in released.cells
                if cell.metadata.get("nbgrader", {}).get("grade") and not is_graded(cell)
            ]
    except Refused as reason:
        return {"score": 0.0, "output": str(reason), "visibility": "visible", "stdout_visibility": "hidden"}
    finally:
        Judge.release_shared()
    return {
        "tests": tests,
        "output": "\n".join(said),
        "execution_time": round(time.monotonic() - began, 2),
        "visibility": settings["visibility"],
        "stdout_visibility": "hidden",
    }


def _marked(
    submission: Path, name: str, released: NotebookNode, settings: dict[str, Any]
) -> Iterator[tuple[Question, dict[str, Any]]]:
    """The questions of one notebook with their verdicts."""
    notebook = read_notebook(_handed_in(submission, name))
    cells = {c.metadata.nbgrader["grade_id"]: c for c in released.cells if "nbgrader" in c.metadata}
    exercises = exercises_in(released)
    restore(notebook, cells)
    for question in questions_of(notebook, name, exercises, settings["secret"], SECONDS_PER_CELL):
        yield question, Judge.shared(settings["sandbox"]).verdict(question.request)


def _handed_in(submission: Path, name: str) -> Path:
    """The notebook in a submission: the one of that name, or the only one. Raises Refused."""
    found = [path for path in sorted(submission.rglob("*.ipynb")) if ".ipynb_checkpoints" not in path.parts]
    named = [path for path in found if path.name == f"{name}.ipynb"]
    if len(named or found) != 1:
        raise Refused(f"Hand in the notebook {name}.ipynb: there are {len(named or found)} in what you handed in.")
    return (named or found)[0]


def _test(verdict: dict[str, Any], question: Question) -> dict[str, Any]:
    return {
        "name": verdict["exercise"],
        "score": points_for(verdict, question.points),
        "max_score": question.points,
        "status": "passed" if verdict["passed"] else "failed",
        "output": as_text(verdict),
        "output_format": "text",
        "extra_data": {"mistake": verdict.get("mistake", ""), "incidents": verdict["incidents"]},
    }


def main(root: Path) -> int:
    """Marks what lies in submission/ and writes results/results.json. The exit status is 1 where nothing can be marked."""
    source = root / "source"
    settings = json.loads((source / "lab.json").read_text(encoding="utf-8"))
    try:
        found = results(root / "submission", source / "course" / "labs", settings)
    except JudgeError as error:
        print(error)
        return 1
    (root / "results").mkdir(exist_ok=True)
    (root / "results" / "results.json").write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
