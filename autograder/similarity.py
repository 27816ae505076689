"""Which answers look copied: token fingerprints (winnowing: Schleimer, Wilkerson, Aiken, SIGMOD 2003), without the released text.

Names, numbers, comments and layout don't count, so renaming hides nothing. What was released, and what many students wrote, is left out:
short exercises have few right answers. A pair is a reason to look, never a proof.
"""

from __future__ import annotations

import hashlib
import io
import keyword
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import nbformat
from allranks.base.errors import CourseError
from allranks.course.handin import Refused, read_notebook

from autograder.intake import check_files
from autograder.pairs import partner

TOKENS = 12  # in one fingerprint: shorter matches are not seen
WINDOW = 6  # of so many fingerprints one is kept: a match of TOKENS + WINDOW - 1 tokens is always seen
MOST_SHARE = 0.2  # fingerprints that more of the class have, and more than three students, are common knowledge
LEAST_SHARED = 6  # fingerprints: fewer say nothing
MAX_CELL_CHARACTERS = 100_000  # a longer cell is not compared: it would take minutes, and no answer is so long
MAX_CHARACTERS = 400_000  # of one submission
# what does not parse, word by word: a comment, a text, a number, a name, any other sign
_WORD = re.compile(r"""#.*|("[^"\n]*"?|'[^'\n]*'?)|(\d[\w.]*)|([^\W\d]\w*)|(\S)""")
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


class NothingToCompare(CourseError):
    """Fewer than two submissions can be read."""


@dataclass(frozen=True)
class Pair:
    """Two students, and how many fingerprints they share of those of the shorter answer, without the released ones."""

    students: tuple[str, str]
    shared: int
    of: int

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.shared / self.of


def tokens(code: str) -> list[str]:
    """The code's tokens: names are N, numbers 0, texts S; keywords, attributes and operators stay.

    What does not parse is read word by word, so that no scratch line hides what comes after it.

    >>> tokens("total = dist.get_rank() + 1  # a comment")
    ['N', '=', 'N', '.', 'get_rank', '(', ')', '+', '0']
    >>> tokens("total = (dist.get_rank(")
    ['N', '=', '(', 'N', '.', 'get_rank', '(']
    """
    found: list[str] = []
    for kind, word in _words(code):
        if kind == tokenize.NAME:
            is_attribute = bool(found) and found[-1] == "."
            found.append(word if keyword.iskeyword(word) or is_attribute else "N")
        elif kind in (tokenize.NUMBER, tokenize.STRING):
            found.append("0" if kind == tokenize.NUMBER else "S")
        elif word:
            found.append(word)
    return found


def _words(code: str) -> list[tuple[int, str]]:
    """The code's words with their kinds, as Python's tokenizer names them."""
    try:
        read = list(tokenize.generate_tokens(io.StringIO(code).readline))
        return [(token.type, token.string) for token in read if token.type not in _LAYOUT]
    except (tokenize.TokenError, SyntaxError, ValueError):
        kinds = tokenize.STRING, tokenize.NUMBER, tokenize.NAME, tokenize.OP
        found = (word for word in _WORD.finditer(code) if word.lastindex)
        return [(kinds[word.lastindex - 1], word[0]) for word in found]


def fingerprints(*cells: str) -> set[int]:
    """The winnowed hashes of the cells' tokens; equal code has equal ones, wherever it stands."""
    found: set[int] = set()
    for hashes in map(_hashes, cells):
        if hashes and len(hashes) <= WINDOW:
            found.add(min(hashes))
        found |= {min(hashes[i : i + WINDOW]) for i in range(len(hashes) - WINDOW + 1)}
    return found


def pairs(answers: Mapping[str, Sequence[str]], released: Iterable[str], least: float = 0.5) -> list[Pair]:
    """The pairs of students who share at least this part of the shorter answer's fingerprints, the most alike first.

    `answers` has each student's cells. Of the fingerprints that are not common knowledge they share as large a part.
    """
    known = set().union(*(every_fingerprint(text) for text in released))
    of = {student: fingerprints(*cells) - known for student, cells in answers.items()}
    holders = Counter(print_ for prints in of.values() for print_ in prints)
    most = max(3, MOST_SHARE * len(of))
    rare = {student: {p for p in prints if holders[p] <= most} for student, prints in of.items()}
    found = []
    for one, other in combinations(sorted(rare), 2):
        seldom = len(rare[one] & rare[other])
        if seldom < max(LEAST_SHARED, least * min(len(rare[one]), len(rare[other]))):
            continue
        shared, size = len(of[one] & of[other]), min(len(of[one]), len(of[other]))
        if shared >= least * size:
            found.append(Pair((one, other), shared, size))
    return sorted(found, key=lambda pair: (-pair.share, -pair.shared))


def every_fingerprint(code: str) -> set[int]:
    """All hashes of the code, not only those that winnowing keeps: what is released must not be seen in any window."""
    return set(_hashes(code))


def _hashes(code: str) -> list[int]:
    """The hash of each run of `TOKENS` tokens."""
    words = tokens(code)
    grams = (" ".join(words[i : i + TOKENS]) for i in range(len(words) - TOKENS + 1))
    return [int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "big") for gram in grams]


def compare(course: Path, lab: str, least: float = 0.5, earlier: Sequence[Path] = ()) -> tuple[list[Pair], list[str]]:
    """The pairs of a lab's submissions, and sentences on what could not be read or compared. Raises NothingToCompare.

    `earlier` are course folders of earlier terms, whose work is called "ada of FOLDER"; pairs of two earlier ones are left out, and so
    is who handed in the own work of then again.
    """
    answers, told = _answers_in(course, lab)
    now = set(answers)
    own: dict[str, str] = {}  # what an earlier work is called -> its student
    for folder in earlier:
        theirs, more = _answers_in(folder, lab)
        if not theirs and not more:
            raise NothingToCompare(
                f"{folder} has no submissions of {lab}: name the folder of an earlier course, which holds autograder/submitted."
            )
        named = {f"{student} of {folder.resolve().name}": cells for student, cells in theirs.items()}
        own |= dict(zip(named, theirs, strict=True))
        answers |= named
        told += [f"{folder.resolve().name}, {sentence}" for sentence in more]
    if len(answers) < 2 or not now:
        raise NothingToCompare(f"Fewer than two submissions of {lab} can be read: there is nothing to compare.")
    released = [cell for folder in (course, *earlier) for cell in _released(folder, lab)]
    alike = []
    for pair in pairs(answers, released, least):
        one, other = pair.students
        both = {own.get(name, name) for name in pair.students}
        if now & {one, other} and len(both) == 2 and partner(course, lab, one) != other:
            alike.append(pair)
    return alike, told


def _answers_in(course: Path, lab: str) -> tuple[dict[str, list[str]], list[str]]:
    """Each student's cells in a course's folder, and sentences on what could not be read or compared."""
    answers: dict[str, list[str]] = {}
    told = []
    for folder in sorted((course / "autograder" / "submitted").glob(f"*/{lab}")):
        student = folder.parent.name
        try:
            check_files(folder)
            notebooks = [read_notebook(path) for path in sorted(folder.glob("*.ipynb"))]
        except Refused as reason:
            told.append(f"{student}: {reason}")
            continue
        answers[student], left_out = _within_reason([cell for notebook in notebooks for cell in _cells(notebook)])
        if left_out:
            told.append(f"{student}: {left_out} characters of code are more than an answer has, and were not compared.")
    return answers, told


def _released(course: Path, lab: str) -> list[str]:
    """The code that a course gave to its students."""
    notebooks = [nbformat.read(path, as_version=4) for path in sorted((course / "labs" / lab).glob("*.ipynb"))]
    return [cell for notebook in notebooks for cell in _cells(notebook)]


def _within_reason(cells: list[str]) -> tuple[list[str], int]:
    """The cells that are compared, and how many characters are not."""
    kept, room = [], MAX_CHARACTERS
    for cell in sorted(cells, key=len):
        if len(cell) <= min(MAX_CELL_CHARACTERS, room):
            kept.append(cell)
            room -= len(cell)
    return kept, sum(map(len, cells)) - sum(map(len, kept))


def _cells(notebook: nbformat.NotebookNode) -> list[str]:
    """The code cells, without magics, which are no Python."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return ["\n".join(line for line in cell.splitlines() if line[:1] not in ("%", "!")) for cell in cells]
