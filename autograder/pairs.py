"""Pairs: two students hand in one work, and both get its points.

A teacher names pairs in `autograder/pairs.csv` (columns lab, student, partner, and if needed counts), or lets students declare them, by
`c.Pairs.declared = ["LAB"]` in nbgrader_config.py: then a line `partner = "NAME"` in a code cell of both notebooks makes a pair. The work of
one is copied to the other in `submitted/`, so grades, exports and feedback are nbgrader's own for both. What the other handed in is kept
in `autograder/pairs/LAB/STUDENT/`, and comes back when the pair ends.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import nbformat
from allranks.base.errors import CourseError
from allranks.base.whole import write_whole
from allranks.course.handin import Refused, answers, read_notebook
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from autograder.folder import config_of, has_gradebook, table_of
from autograder.intake import REQUEST, check_files, name_refusal, time_of

FILE = "pairs.csv"
FOLDER = "pairs"
STATE = "shared.json"
SECRET = "submission_secret.txt"
COLUMNS = ("lab", "student", "partner")
DECLARED = "partner"  # the name that a notebook gives its author's partner
# read line by line: to parse what students wrote could take all of the grader's memory
_LINE = re.compile(rf"""^{DECLARED} *= *(["'])([^"'\n]{{1,255}})\1 *(?:#.*)?$""", flags=re.M)


class PairsError(CourseError):
    """The pairs can't be read; the message is one sentence, and nothing was changed."""


@dataclass(frozen=True)
class Pair:
    """Two students; `counts` is whose work counts, if the teacher has said so."""

    one: str
    other: str
    counts: str = ""

    @property
    def both(self) -> tuple[str, str]:
        """The two names."""
        return self.one, self.other


@dataclass(frozen=True)
class Settled:
    """The pairs of a lab whose work is shared, {student: whose work it is}, and sentences on what was done and what can't be."""

    shared: dict[str, str]
    told: tuple[str, ...]


def shared(course: Path, lab: str) -> dict[str, str]:
    """Whose work each student shares, as `settle` recorded it: {student: the partner who handed it in}."""
    return {student: owner for student, (owner, _) in read_state(course, lab).items()}


def read_state(course: Path, lab: str) -> dict[str, tuple[str, str]]:
    """For each student who shares a work: whose it is, and the digest of the copy that lies in the student's place."""
    try:
        found = json.loads((course / "autograder" / FOLDER / lab / STATE).read_text(encoding="utf-8"))
        return {str(student): (str(owner), str(digest)) for student, (owner, digest) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_state(course: Path, lab: str, state: dict[str, tuple[str, str]]) -> None:
    """Records who shares whose work in a lab, as `read_state` reads it."""
    folder = course / "autograder" / FOLDER / lab
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / STATE, json.dumps(state) + "\n")


def author(course: Path, lab: str, student: str) -> str:
    """Whose work this student's is: the partner who handed it in, or the student."""
    return shared(course, lab).get(student, student)


def partner(course: Path, lab: str, student: str) -> str:
    """The student with whom the work is shared; "" if it is not."""
    found = shared(course, lab)
    return found.get(student) or next((one for one, owner in found.items() if owner == student), "")


def uses_pairs(course: Path, lab: str) -> bool:
    """Whether there may be pairs in a lab."""
    folder = course / "autograder"
    return (folder / FILE).exists() or bool(shared(course, lab)) or lab in _declared_labs(config_of(course))


# ----------------------------------------------------------------------------------------------------------- who is paired


def named(course: Path, lab: str) -> list[Pair]:
    """The pairs of a lab in the teacher's file, as they stand there. Raises PairsError."""
    path = course / "autograder" / FILE
    rows = table_of(path, COLUMNS, PairsError)
    labs = {folder.name for folder in (course / "solutions").glob("*") if folder.is_dir()}
    made = []
    for number, row in enumerate(rows, 2):
        about = {"counts": "", **row}
        if about["lab"] not in labs:
            raise PairsError(f"{path}, line {number}: there is no lab {about['lab']!r}.")
        if about["lab"] != lab:
            continue
        if not about["student"] or not about["partner"]:
            raise PairsError(f"{path}, line {number}: a pair has two students.")
        if about["counts"] not in ("", about["student"], about["partner"]):
            raise PairsError(
                f"{path}, line {number}: {about['counts']} is neither of the two, so no work of that name can count."
            )
        made.append(Pair(about["student"], about["partner"], about["counts"]))
    return made


def declared_in(notebook: NotebookNode) -> str:
    """The partner whom a notebook names, by a line `partner = "NAME"` in a code cell; "" if it names none. Nothing is run."""
    found = ""
    for cell in notebook.cells:
        if cell.cell_type != "code" or DECLARED not in cell.source:
            continue
        for _, name in _LINE.findall(cell.source):
            found = name.strip()
    return found


def _agreed(
    names: dict[str, str], handed_in: set[str], known: set[str], taken: set[str]
) -> tuple[list[Pair], list[str]]:
    """The pairs that both declare, and a sentence on each declaration that makes none. `taken` are in pairs of the file."""
    pairs, told = [], []
    for one, other in sorted(names.items()):
        if other == one:
            told.append(f"{one} names no partner but {one}.")
        elif known and other not in known:
            told.append(f"{one} names {other}, who is not in the gradebook: is the name spelt as the course spells it?")
        elif other in taken:
            told.append(f"{one} names {other}, who is in a pair of {FILE}: no pair.")
        elif other not in handed_in:
            told.append(
                f"{one} names {other}, who has handed in nothing: both hand in, or you put the pair into {FILE}."
            )
        elif names.get(other) == one:
            pairs += [Pair(one, other)] if one < other else []
        else:
            said = f"names {names[other]}" if other in names else "names nobody"
            told.append(f"{one} names {other}, but {other} {said}: no pair.")
    return pairs, told


def _without_conflicts(pairs: list[Pair], known: set[str]) -> tuple[list[Pair], list[str]]:
    """The pairs of the file that can be, and a sentence on each that can't."""
    often = Counter(student for pair in pairs for student in pair.both)
    good, told = [], []
    for pair in pairs:
        twice = [student for student in pair.both if often[student] > 1]
        unknown = [student for student in pair.both if (known and student not in known) or name_refusal(student)]
        if pair.one == pair.other:
            told.append(f"{pair.one} can't be a pair alone.")
        elif twice:
            told.append(f"{twice[0]} is in more than one pair of {FILE}: {pair.one} and {pair.other} are none.")
        elif unknown:
            told.append(f"{unknown[0]} is not in the gradebook: {pair.one} and {pair.other} are no pair.")
        else:
            good.append(pair)
    return good, told


# ------------------------------------------------------------------------------------------------------------- sharing


def settle(course: Path, lab: str) -> Settled:
    """Shares the work of each pair of a lab, and ends what is no pair any more. Raises PairsError, and changes nothing then."""
    config = config_of(course)
    about = CourseDirectory(config=config)
    rows = named(course, lab)
    known = _members(about)
    submitted = course / "autograder" / "submitted"
    for student, (_, digest) in read_state(course, lab).items():
        if (place := submitted / student / lab).is_dir() and _digest(place) != digest:  # handed in anew, and collected
            _keep(course, lab, student)
    before = shared(course, lab)
    handed_in = {path.parent.name for path in submitted.glob(f"*/{lab}") if path.is_dir() and not path.is_symlink()}
    pairs, told = _without_conflicts(rows, known)
    if lab in _declared_labs(config):
        names = {}
        for student in sorted(handed_in):
            named_one = next(
                filter(None, (declared_in(nb) for nb in _notebooks(_own(course, lab, student, before)))), ""
            )
            if named_one and not any(student in pair.both for pair in rows):
                names[student] = named_one
        agreed, more = _agreed(names, handed_in, known, {student for pair in rows for student in pair.both})
        pairs += agreed
        told += more
    state: dict[str, str] = {}
    for pair in pairs:
        owner, why = _whose(course, lab, pair, before)
        if owner is None:
            told.append(why)
            continue
        other = pair.other if owner == pair.one else pair.one
        state[other] = owner
        told.append(f"{pair.one} and {pair.other}: {why}")
    for student in sorted(set(before) - set(state)):
        _give_back(course, lab, student)
        told.append(f"{student} and {before[student]} are no pair any more: {student} has the own work again.")
    for student, owner in state.items():
        if before.get(student) not in (None, owner):
            _give_back(course, lab, student)
        if owner in before:  # the other way round now
            _give_back(course, lab, owner)
    for student, owner in state.items():
        _share(course, lab, owner, student, again=before.get(student) == owner)
    if state or before:
        write_state(course, lab, {s: (owner, _digest(submitted / s / lab)) for s, owner in state.items()})
    return Settled(state, tuple(told))


def _whose(course: Path, lab: str, pair: Pair, before: dict[str, str]) -> tuple[str | None, str]:
    """Whose work counts for a pair, and why; None where a teacher must say."""
    own = {student: _own(course, lab, student, before) for student in pair.both}
    there = [student for student in pair.both if own[student].is_dir() and not own[student].is_symlink()]
    if not there:
        return None, f"{pair.one} and {pair.other} have handed in nothing."
    for student in there:
        try:
            check_files(own[student])
        except Refused as reason:
            return None, f"{pair.one} and {pair.other}: {student}: {reason}"
    if pair.counts in there:
        return pair.counts, f"{pair.counts}'s work counts, as {FILE} says."
    if pair.counts:
        return None, f"{pair.counts}'s work should count, but {pair.counts} has handed in nothing."
    if len(there) == 1:
        return there[0], f"{there[0]} handed in for both."
    texts = {student: _answers(own[student]) for student in pair.both}
    released = _answers(course / "labs" / lab)
    began = [student for student in pair.both if texts[student] != released]
    if len(began) == 1:
        return began[0], f"{began[0]}'s work counts; the other notebook has no answers."
    if texts[pair.one] != texts[pair.other]:
        return None, (
            f"{pair.one} and {pair.other} handed in different answers, so each has the own marks: write whose work counts into the "
            f"column counts of {FILE}."
        )
    times = {student: time_of(own[student]) for student in pair.both}
    late = max(pair.both, key=lambda student: (times[student] is not None, times[student] or 0))
    early = pair.other if late == pair.one else pair.one
    if times[early] == times[late]:
        return pair.one, "both handed in the same answers."
    return early, f"both handed in the same answers, and {early}'s came first: that time counts for both."


def _answers(folder: Path) -> list[str]:
    """The texts of all cells that students fill in, of the notebooks of a folder."""
    return [text for notebook in _notebooks(folder) for _, text in answers(notebook)]


def _notebooks(folder: Path) -> list[NotebookNode]:
    found = []
    for path in sorted(folder.glob("*.ipynb")):
        try:
            found.append(read_notebook(path))
        except (Refused, OSError, nbformat.ValidationError):
            continue
    return found


def _own(course: Path, lab: str, student: str, before: dict[str, str]) -> Path:
    """The folder with what the student handed in, wherever it is now."""
    return _kept(course, lab, student) if student in before else course / "autograder" / "submitted" / student / lab


def _kept(course: Path, lab: str, student: str) -> Path:
    return course / "autograder" / FOLDER / lab / student


def _share(course: Path, lab: str, owner: str, student: str, again: bool) -> None:
    """Puts a copy of the owner's work in the place of the student's, which is kept; a copy that is the same already stays."""
    source = course / "autograder" / "submitted" / owner / lab
    place = course / "autograder" / "submitted" / student / lab
    kept = _kept(course, lab, student)
    if again and place.is_dir() and _digest(source) == _digest(place):
        return
    unfinished = place.with_name(f".{lab}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    # the secret leads to one student's page only, and a request is one student's
    shutil.copytree(source, unfinished, symlinks=True, ignore=shutil.ignore_patterns(SECRET, REQUEST))
    if again:
        shutil.rmtree(place, ignore_errors=True)
    elif place.is_dir():
        _keep(course, lab, student)
    if (kept / SECRET).is_file() and not (kept / SECRET).is_symlink():
        shutil.copyfile(kept / SECRET, unfinished / SECRET)
    unfinished.rename(place)


def _digest(folder: Path) -> str:
    """The SHA-256 of the notebooks of a folder, and of the time at which they came."""
    made = hashlib.sha256()
    for path in [*sorted(folder.glob("*.ipynb")), folder / "timestamp.txt"]:
        made.update(path.name.encode(errors="replace") + b"\0")
        made.update(path.read_bytes() if path.is_file() and not path.is_symlink() else b"")
    return made.hexdigest()


def _members(about: CourseDirectory) -> set[str]:
    """The students in the gradebook; nobody if there is none yet."""
    if not has_gradebook(about):
        return set()
    with Gradebook(about.db_url, about.course_id) as gradebook:
        return {student.id for student in gradebook.students}


def _keep(course: Path, lab: str, student: str) -> None:
    """Moves what lies in the student's place to where the own work is kept."""
    kept = _kept(course, lab, student)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(kept, ignore_errors=True)
    (course / "autograder" / "submitted" / student / lab).rename(kept)


def _give_back(course: Path, lab: str, student: str) -> None:
    """Puts the student's own work back, or nothing if there was none."""
    place, kept = course / "autograder" / "submitted" / student / lab, _kept(course, lab, student)
    shutil.rmtree(place, ignore_errors=True)
    if kept.is_dir():
        kept.rename(place)


def _declared_labs(config: Config) -> list[str]:
    found = config.Pairs.get("declared", [])
    return [found] if isinstance(found, str) else list(found)
