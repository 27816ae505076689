"""In a learner's folder every relative link leads somewhere, and all files of the course that notebooks name are there.

The folder is laid out from this checkout; `tests/course/test_wheel.py` checks that the wheel has the same files.
"""

import json
import re
from pathlib import Path

import pytest
from allranks.base import course_files as files
from allranks.course import folder
from test_links import anchors, links

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = re.compile(r"<!--.*?-->|[a-z]+://\S+|data:\S+", re.S)
FROM_HERE = re.compile(r"(?:\.\./)+[\w./-]*\w")
FROM_THE_ROOT = re.compile(r"(?<![\w./-])(?:docs|chapters|labs)/[\w./-]*\w")
A_FOLDER = re.compile(r"the folder `([\w./-]+)`")


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> Path:
    """A learner's folder."""
    path = tmp_path_factory.mktemp("mine")
    folder.lay_out(path)
    return path


def named(notebook: Path, home: Path) -> set[Path]:
    """The course's files and folders that the notebook's cells name or open."""
    found = set()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = ELSEWHERE.sub("", "".join(cell["source"]))
        found |= {notebook.parent / name for name in FROM_HERE.findall(text)}
        found |= {home / name for name in [*FROM_THE_ROOT.findall(text), *A_FOLDER.findall(text)]}
    return {path.resolve() for path in found}


def dead(page: Path, home: Path) -> list[str]:
    """What a page of the folder leads to and the folder does not have, or not under that heading."""
    faults = []
    for link in links(page) if page.suffix in (".md", ".ipynb") else []:
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        headed = not anchor or target.suffix not in (".md", ".ipynb") or not target.is_file()
        if not target.exists() or not target.is_relative_to(home) or not (headed or anchor in anchors(target)):
            faults.append(link)
    if page.suffix == ".ipynb":
        faults += [str(path) for path in named(page, home) if not path.exists() or not path.is_relative_to(home)]
    return faults


@pytest.mark.core
def test_nothing_in_a_learners_folder_leads_out_of_it_or_nowhere(mine):
    pages = files.for_learners(mine)
    assert {str(page): faults for page in pages if (faults := dead(mine / page, mine))} == {}


def test_there_is_something_to_find(mine):
    walked = [mine / page for page in files.for_learners(mine)]
    reached = {path for page in walked if page.suffix == ".ipynb" for path in named(page, mine)}
    scripts = mine / "chapters" / "scripts"
    assert {mine / "docs" / "labs.md", scripts, scripts / "torchft_job.py", scripts / "topo_8_gpus.txt"} <= reached


@pytest.mark.parametrize(
    "text",
    [
        "[rules](../../docs/gone.md)",
        "[out](../../../pyproject.toml)",
        "[rules](../../docs/labs.md#gone)",
        "It is in the folder `gone`.",
        "`docs/gone.md` says more.",
        'open("../gone/file.txt")',
    ],
)
def test_what_is_not_there_is_found(mine, text):
    page = mine / "labs" / "lab03_all_reduce" / "of_the_test.ipynb"
    cell = {"cell_type": "markdown", "id": "one", "metadata": {}, "source": text}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    page.write_text(json.dumps(book), encoding="utf-8")
    try:
        assert dead(page, mine)
    finally:
        page.unlink()
