"""Builds every notebook from its percent script; the same script always gives the same bytes. `--check` only compares.

    chapters/source/PART/NAME.py  ->  chapters/PART/NAME.ipynb
    solutions/LAB/source/NAME.py  ->  solutions/LAB/NAME.ipynb  ->  labs/LAB/NAME.ipynb (nbgrader's own steps)

In a percent script `# %%` opens a code cell and `# %% [markdown]` a prose cell. A magic is written as a comment, the
first line under its marker, so that linters read the rest as plain Python:

    # %% name="first_all_reduce"
    # %%ranks --deadline 5
    dist.all_reduce(x)

The two lines differ by a blank: `# %%` followed by a space or by nothing is a marker, `# %%word` is a cell magic.
jupytext would also uncomment a comment at the line's start that looks like a shell command (`# copy the chunk`); the
build refuses such a line and shows it. A cell's id is its nbgrader grade_id, or else its `name`, or else its number.
Write only those of nbgrader's metadata that are not defaults:
`# %% nbgrader={"grade_id": "ring_all_reduce", "solution": true}`.

A line `{{NAME.md}}` of a prose cell stands for the text of that file beside the labs (solutions/NAME.md), so that what
all labs say has one home. `{{picture}}` stands for the chapter's picture and `{{moves}}` for the table of the nine
moves, both drawn by `allranks.show.pictures` and put into the text, so that a notebook shows them before a cell has
run. `{{here}}` stands for where a chapter stands on the course's map and how long it takes, `{{side_trips}}` for what
hangs on a chapter of the core.

A cell may have tags (`# %% tags=["raises-exception"] name="short"`):

- raises-exception: the cell ends with an error on purpose, and the run goes on
- not-on-nccl: the cell does on purpose what NCCL refuses or leaves undefined, so it is not run under NCCL's rules
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
from pathlib import Path

import jupytext
import nbformat
from allranks.ranks.engines.kernels import LANGUAGE_INFO
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": LANGUAGE_INFO,
}
NBGRADER = {"schema_version": 3, "grade": False, "solution": False, "locked": False, "task": False}
# a chapter's folded answer to an exercise
ANSWER = re.compile(r"<details><summary><b>An answer</b></summary>.*?</details>\n?", re.DOTALL)
# jupytext's own metadata about blank lines and quoting, which the notebook does not need
BOOKKEEPING = ("cell_marker", "lines_to_next_cell", "lines_to_end_of_cell_marker")
TAGS = ("raises-exception", "not-on-nccl")
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
HERE = "{{here}}"
SHARED = re.compile(r"^\{\{([\w.]+)\}\}$", re.MULTILINE)  # a text that several notebooks have in common, or a picture


class NotebookError(Exception):
    """A percent script that can't be built; the message names the file and the cell, and says how to fix it."""


def read_script(text: str, where: str) -> NotebookNode:
    """The notebook of a percent script, with ids and metadata, without outputs and execution counts."""
    percent = {"extension": ".py", "format_name": "percent"}
    parsed = jupytext.reads(text, percent)
    commented = jupytext.reads(text, percent | {"comment_magics": False})
    cells = []
    for number, (cell, plain) in enumerate(zip(parsed.cells, commented.cells, strict=True), start=1):
        place = f"{where}, cell {number}"
        if cell.cell_type == "code":
            _refuse_shell_comments(cell.source, plain.source, place)
        metadata = {key: value for key, value in cell.metadata.items() if key not in BOOKKEEPING}
        for tag in metadata.get("tags", ()):
            if tag not in TAGS:
                raise NotebookError(f"{place}: the tag {tag!r} is unknown; use one of {', '.join(TAGS)}.")
        if "nbgrader" in metadata:
            metadata["nbgrader"] = NBGRADER | metadata["nbgrader"]
            _refuse_unclear_grading(cell.cell_type, metadata, place)
        new = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
        source = _with_shared(cell.source, place) if cell.cell_type == "markdown" else cell.source
        cells.append(new(source.strip("\n"), metadata=metadata, id=_cell_id(metadata, number, place)))
    ids = [cell.id for cell in cells]
    for twice in sorted({i for i in ids if ids.count(i) > 1}):
        raise NotebookError(f"{where}: two cells are named {twice!r}; give each its own name.")
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=METADATA)
    notebook.nbformat_minor = 5
    _refuse_other_points(notebook, where)
    _say_where(notebook.cells, where)
    return notebook


def _cell_id(metadata: dict, number: int, place: str) -> str:
    name = metadata.get("nbgrader", {}).get("grade_id") or metadata.get("name") or f"cell-{number:03d}"
    if not CELL_ID.fullmatch(name):
        raise NotebookError(f"{place}: the name {name!r} must be 1 to 64 letters, digits, hyphens or underscores.")
    return name


def _with_shared(source: str, place: str) -> str:
    def text(found: re.Match[str]) -> str:
        if not found[1].endswith(".md"):
            return _drawn(found[1], place)
        path = ROOT / "solutions" / found[1]
        if not path.is_file():
            raise NotebookError(f"{place}: there is no {path.relative_to(ROOT)}.")
        return path.read_text().strip("\n")

    return SHARED.sub(text, source)


def _drawn(what: str, place: str) -> str:
    from allranks.show.pictures import hero, moves

    chapter = Path(place.partition(",")[0]).stem
    if what == "moves":
        return moves.markdown_table()
    if what == "here":
        return HERE
    if what == "side_trips":
        return _side_trips(chapter, place)
    if what == "picture" and chapter in hero.CHAPTERS:
        return hero.cell(chapter)
    raise NotebookError(f"{place}: there is no {{{{{what}}}}}; draw it in utils/allranks/show/pictures/hero.py.")


def _say_where(cells: list[NotebookNode], where: str) -> None:
    """Puts into a chapter's first cell where it stands on the map, and how long all its cells take."""
    from allranks.base import chapters as course_map
    from allranks.course.map.top import top

    if not cells or HERE not in cells[0].source:
        return
    try:
        chapter = course_map.find(Path(where).stem)
    except KeyError as error:
        raise NotebookError(f"{where}: utils/allranks/base/chapters.toml has no row for it; write one.") from error
    cells[0].source = cells[0].source.replace(HERE, top(chapter, cells))


def _side_trips(stem: str, place: str) -> str:
    """The side trips of a chapter of the core, with the question that each answers."""
    from allranks.base import chapters as course_map

    chapter = course_map.find(stem)
    trips = course_map.side_trips(chapter)
    if not trips:
        raise NotebookError(f"{place}: nothing hangs on {stem}; leave out {{{{side_trips}}}}.")
    lines = [f"- [{trip.title}]({course_map.link(chapter, trip)}): {trip.why}" for trip in trips]
    return "\n".join(["**Side trips:**", "", *lines])


def _refuse_shell_comments(source: str, commented: str, place: str) -> None:
    for line, before in zip(source.splitlines(), commented.splitlines(), strict=True):
        if line != before and not line.lstrip().startswith("%"):
            raise NotebookError(
                f"{place}: the comment {before.strip()!r} would become the shell command {line.strip()!r}. "
                "Begin it with a capital or another word."
            )
    for number, line in enumerate(source.strip("\n").splitlines()):
        if line.startswith("%%") and number:
            raise NotebookError(f"{place}: the magic {line.split()[0]} must be the first line of its cell.")


def _refuse_other_points(notebook: NotebookNode, where: str) -> None:
    """The points stand in a graded cell's metadata; what the cell and the lab's table say must agree with them."""
    from allranks.exercises import names

    known, points = set(names()), {}
    for cell in notebook.cells:
        if cell.cell_type != "code" or "exercise" not in cell.metadata.get("allranks", {}):
            continue
        about, name = cell.metadata["nbgrader"], cell.metadata["allranks"]["exercise"]
        place = f"{where}: the graded cell {about['grade_id']}"
        if name not in known:
            raise NotebookError(f"{place} names {name}, but there is no such exercise.")
        points[name] = float(about["points"])
        wanted = f"round({points[name]:g} * check({name}).score, 2)"
        if cell.source.strip() != wanted:
            raise NotebookError(f"{place} must be `{wanted}`: its metadata say {points[name]:g} points for {name}.")
    for cell in notebook.cells:
        for found in re.finditer(r"^\| `(\w+)` \|(?:.*\|)? *([\d.]+) *\|$", cell.source, re.MULTILINE):
            if cell.cell_type == "markdown" and found[1] in points and float(found[2]) != points[found[1]]:
                raise NotebookError(
                    f"{where}: the table says {found[2]} points for {found[1]}, its cell {points[found[1]]:g}."
                )


def _refuse_unclear_grading(kind: str, metadata: dict, place: str) -> None:
    about = metadata["nbgrader"]
    if not about.get("grade_id"):
        raise NotebookError(f"{place}: its nbgrader metadata lacks a grade_id.")
    if about["grade"] and "points" not in about:
        raise NotebookError(f"{place}: the graded cell {about['grade_id']} lacks points.")
    if kind == "code" and about["grade"] and not about["solution"] and "exercise" not in metadata.get("allranks", {}):
        raise NotebookError(
            f"{place}: the graded cell {about['grade_id']} does not say which exercise marks it; "
            'add allranks={"exercise": "ring_all_reduce"}, or whichever it is.'
        )


def release(solution: NotebookNode, config_file: Path) -> NotebookNode:
    """The students' version of a solution notebook, equal to what `nbgrader generate_assignment` writes.

    It runs that command's steps in the same order, except the one that writes to the gradebook.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import SaveCells
    from traitlets.config import PyFileConfigLoader

    config = PyFileConfigLoader(config_file.name, path=str(config_file.parent)).load_config()
    notebook, resources = copy.deepcopy(solution), {}
    for step in GenerateAssignment(config=config).preprocessors:
        if step is not SaveCells:
            notebook, resources = step(config=config).preprocess(notebook, resources)
    return notebook


def as_text(notebook: NotebookNode) -> str:
    """The notebook as the text to commit: sorted keys, one newline at the end."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def build(root: Path = ROOT, only: list[Path] | None = None) -> dict[Path, str]:
    """The text that each .ipynb under `root` must have, by its path relative to `root`; writes nothing.

    With `only`, just for these percent scripts. Raises NotebookError for a script that can't be built.
    """
    scripts = sorted([*root.glob("chapters/source/*/*.py"), *root.glob("solutions/*/source/*.py")])
    if only is not None:
        wanted = {path.resolve() for path in only}
        if unknown := wanted - {path.resolve() for path in scripts}:
            raise NotebookError(
                f"{min(unknown)} is not a percent script in chapters/source/PART/ or solutions/LAB/source/."
            )
        scripts = [path for path in scripts if path.resolve() in wanted]
    texts = {}
    for script in scripts:
        path = script.relative_to(root)
        notebook = read_script(script.read_text(encoding="utf-8"), str(path))
        built = Path(*(part for part in path.parts[:-1] if part != "source"), f"{path.stem}.ipynb")
        texts[built] = as_text(notebook)
        if path.parts[0] == "solutions":
            students = Path("labs", *built.parts[1:])
            texts[students] = as_text(release(notebook, root / "autograder" / "nbgrader_config.py"))
    return texts


def without_answers(texts: dict[Path, str], folder: Path) -> dict[Path, str]:
    """The chapters of `texts` without folded answers, by their path in `folder`, for courses that mark the labs.

    Raises NotebookError if an answer is not in its own <details> block, because it would stay in the chapter.
    """
    less = {}
    for path, text in texts.items():
        if path.parts[0] != "chapters":
            continue
        notebook = nbformat.reads(text, as_version=4)
        for cell in notebook.cells:
            cell.source = ANSWER.sub("", cell.source).rstrip("\n")
            if "<b>An answer" in cell.source:
                raise NotebookError(f"{path}, cell {cell.id!r}: this answer's <details> has no end.")
        notebook.cells = [cell for cell in notebook.cells if cell.source]  # some cells had only an answer
        less[folder.joinpath(*path.parts[1:])] = as_text(notebook)
    return less


def differences(root: Path, texts: dict[Path, str]) -> list[str]:
    """One sentence for each notebook in `texts` that is missing in `root` or has another text there."""
    found = []
    for path, text in sorted(texts.items()):
        if not (root / path).exists():
            found.append(f"{path} is missing.")
        elif (root / path).read_bytes() != text.encode("utf-8"):
            found.append(f"{path} is not what its percent script builds.")
    return found


def orphans(root: Path, texts: dict[Path, str]) -> list[str]:
    """One sentence for each notebook of the course without a percent script."""
    patterns = ("chapters/*.ipynb", "chapters/*/*.ipynb", "solutions/*/*.ipynb", "labs/*/*.ipynb")
    there = {path.relative_to(root) for pattern in patterns for path in root.glob(pattern)}
    return [f"{path} has no percent script; delete it or write one." for path in sorted(there - set(texts))]


def write(root: Path, texts: dict[Path, str]) -> list[Path]:
    """Paths of the notebooks that differed, which it has written."""
    written = []
    for path, text in texts.items():
        target = root / path
        if not target.exists() or target.read_bytes() != text.encode("utf-8"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="\n")
            written.append(path)
    return written


def with_outputs(paths: list[Path]) -> list[str]:
    """One sentence for each of these notebooks that has outputs or execution counts."""
    found = []
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        if any(cell.outputs or cell.execution_count is not None for cell in code):
            found.append(f"{path} holds outputs; clear them, or run `make notebooks`.")
    return found


def main(arguments: list[str] | None = None) -> int:
    """The exit code of the command line."""
    parser = argparse.ArgumentParser(description="Builds every notebook from its percent script.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 naming each file that differs")
    parser.add_argument("--no-outputs", action="store_true", help="only check that the given .ipynb have no outputs")
    parser.add_argument(
        "--without-answers",
        type=Path,
        metavar="FOLDER",
        help="write only the chapters, without their answers, into FOLDER",
    )
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument(
        "paths", nargs="*", type=Path, help="only these percent scripts (or, with --no-outputs, notebooks)"
    )
    options = parser.parse_args(arguments)
    try:
        if options.no_outputs:
            faults = with_outputs(options.paths)
        else:
            texts, faults = build(options.root, options.paths or None), []
            if options.without_answers:
                texts = without_answers(texts, options.without_answers.absolute())
            if options.check:
                faults = differences(options.root, texts) + ([] if options.paths else orphans(options.root, texts))
            else:
                for path in write(options.root, texts):
                    print(f"wrote {path}")
    except NotebookError as error:
        print(error, file=sys.stderr)
        return 2
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults and options.check:
        print("Run `make notebooks` and commit what it writes.", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
