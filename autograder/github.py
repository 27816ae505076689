"""GitHub Classroom: a workflow for an assignment's template repository, with a step for each exercise.

Each step runs `allranks check --json`, and GitHub's own reporter (classroom-resources/autograding-grading-reporter) adds the points up.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import nbformat

from autograder.gradescope import HERE, PackError, package_files, refuse_variants
from autograder.trusted import exercises_in

PACKAGE = ".github/classroom/allranks.zip"
_HEAD = """name: Autograding Tests
on: [push, repository_dispatch]
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  run-autograding-tests:
    name: Autograding Tests  # the reporter looks for a check of this name
    runs-on: ubuntu-latest
    timeout-minutes: 30
    if: github.actor != 'github-classroom[bot]'
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: >-
          pip install -c .github/classroom/constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu
          "allranks[cpu] @ file://$PWD/.github/classroom/allranks.zip"
"""
_STEP = """      - name: {exercise}
        id: {exercise}
        run: >-
          {{ allranks check {exercise} {notebook} --json --points {points} || true; }}
          | python .github/classroom/result.py >> "$GITHUB_OUTPUT"
"""
_TAIL = """      - name: Report
        uses: classroom-resources/autograding-grading-reporter@v1
        env:
{results}
        with:
          runners: {runners}
"""


def write(course: Path, lab: str, out: Path) -> list[str]:
    """Writes the workflow, what it needs and the students' notebooks into a folder; returns their names. Raises PackError."""
    refuse_variants(course, lab)
    files: dict[str, bytes] = {}
    steps: list[tuple[str, str, float]] = []
    for path in sorted((course / "labs" / lab).glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        files[path.name] = path.read_bytes()
        asked = exercises_in(notebook)
        for cell in notebook.cells:
            about = cell.metadata.get("nbgrader", {})
            if about.get("grade_id") in asked:
                steps.append((asked[about["grade_id"]]["exercise"], path.name, float(about["points"])))
    if not steps:
        raise PackError(f"There is no exercise in labs/{lab}: type `nbgrader generate_assignment {lab}` first.")
    files[".github/workflows/classroom.yml"] = workflow(steps).encode()
    files[".github/classroom/result.py"] = (HERE / "templates" / "github" / "result.py").read_bytes()
    files[".github/classroom/constraints.txt"] = (HERE.parent / "constraints.txt").read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in package_files():
            archive.writestr(zipfile.ZipInfo(f"allranks/{name}"), content, zipfile.ZIP_DEFLATED)
    files[PACKAGE] = packed.getvalue()
    try:
        for name, content in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)
    except OSError as error:
        raise PackError(f"{error.filename or out} can't be written ({error.strerror}).") from None
    return sorted(files)


def workflow(steps: list[tuple[str, str, float]]) -> str:
    """The workflow for exercises, each (name, notebook, points).

    >>> "check ring_shift a.ipynb --json --points 4 " in workflow([("ring_shift", "a.ipynb", 4.0)])
    True
    """
    parts = [
        _STEP.format(
            exercise=exercise, notebook=json.dumps(notebook) if " " in notebook else notebook, points=f"{points:g}"
        )
        for exercise, notebook, points in steps
    ]
    names = [exercise for exercise, _, _ in steps]
    results = "\n".join(f'          {name.upper()}_RESULTS: "${{{{steps.{name}.outputs.result}}}}"' for name in names)
    return _HEAD + "".join(parts) + _TAIL.format(results=results, runners=",".join(names))
