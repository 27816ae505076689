"""Which answers look copied: token fingerprints (winnowing: Schleimer, Wilkerson, Aiken, SIGMOD 2003), without the released text.

Names, numbers, comments and layout don't count, so renaming hides nothing. What was released, and what many students wrote, is left out:
short exercises have few right answers. A pair is a reason to look, never a proof.
"""

from __future__ import annotations

import hashlib
import io
import keyword
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import nbformat
from allranks.base.errors import CourseError

from autograder.intake import Refused, check_files, read_notebook
from autograder.pairs import partner

TOKENS = 12  # in one fingerprint: shorter matches are not seen
WINDOW = 6  # of so many fingerprints one is kept: a match of TOKENS + WINDOW - 1 tokens is always seen
MOST_SHARE = 0.2  # fingerprints that more of the class have, and more than three students, are common knowledge
LEAST_SHARED = 6  # fingerprints: fewer say nothing
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


class NothingToCompare(CourseError):
    """Fewer than two submissions can be read."""


@dataclass(frozen=True)
class Pair:
    """Two students, and how many rare fingerprints they share of those that the shorter answer has."""

    students: tuple[str, str]
    shared: int
    of: int

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.shared / self.of


def tokens(code: str) -> list[str]:
    """The code's tokens: names are N, numbers 0, texts S; keywords, attributes and operators stay. What does not parse ends the list.

    >>> tokens("total = dist.get_rank() + 1  # a comment")
    ['N', '=', 'N', '.', 'get_rank', '(', ')', '+', '0']
    """
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type in _LAYOUT:
                continue
            if token.type == tokenize.NAME:
                is_attribute = bool(found) and found[-1] == "."
                found.append(token.string if keyword.iskeyword(token.string) or is_attribute else "N")
            elif token.type in (tokenize.NUMBER, tokenize.STRING):
                found.append("0" if token.type == tokenize.NUMBER else "S")
            else:
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        pass
    return [word for word in found if word]


def fingerprints(code: str) -> set[int]:
    """The winnowed hashes of the code's tokens; equal code has equal ones, wherever it stands."""
    words = tokens(code)
    grams = [" ".join(words[i : i + TOKENS]) for i in range(len(words) - TOKENS + 1)]
    hashes = [int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "big") for gram in grams]
    if len(hashes) <= WINDOW:
        return set(hashes[:1]) if not hashes else {min(hashes)}
    return {min(hashes[i : i + WINDOW]) for i in range(len(hashes) - WINDOW + 1)}


def pairs(answers: Mapping[str, str], released: Iterable[str], least: float = 0.5) -> list[Pair]:
    """The pairs of students who share at least this part of the shorter answer's rare fingerprints, the most alike first."""
    known = set().union(*(every_fingerprint(text) for text in released))
    of = {student: fingerprints(code) - known for student, code in answers.items()}
    holders = Counter(print_ for prints in of.values() for print_ in prints)
    most = max(3, MOST_SHARE * len(of))
    rare = {student: {p for p in prints if holders[p] <= most} for student, prints in of.items()}
    found = []
    for one, other in combinations(sorted(rare), 2):
        shared, size = len(rare[one] & rare[other]), min(len(of[one]), len(of[other]))
        if shared >= LEAST_SHARED and shared >= least * size:
            found.append(Pair((one, other), shared, size))
    return sorted(found, key=lambda pair: (-pair.share, -pair.shared))


def every_fingerprint(code: str) -> set[int]:
    """All hashes of the code, not only those that winnowing keeps: what is released must not be seen in any window."""
    words = tokens(code)
    grams = (" ".join(words[i : i + TOKENS]) for i in range(len(words) - TOKENS + 1))
    return {int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "big") for gram in grams}


def compare(course: Path, lab: str, least: float = 0.5) -> tuple[list[Pair], list[str]]:
    """The pairs of a lab's submissions, and sentences on those that could not be read. Raises NothingToCompare."""
    answers, told = {}, []
    for folder in sorted((course / "autograder" / "submitted").glob(f"*/{lab}")):
        try:
            check_files(folder)
            notebooks = [read_notebook(path) for path in sorted(folder.glob("*.ipynb"))]
        except Refused as reason:
            told.append(f"{folder.parent.name}: {reason}")
            continue
        answers[folder.parent.name] = "\n".join(_code(notebook) for notebook in notebooks)
    if len(answers) < 2:
        raise NothingToCompare(f"Fewer than two submissions of {lab} can be read: there is nothing to compare.")
    released = [_code(nbformat.read(path, as_version=4)) for path in sorted((course / "labs" / lab).glob("*.ipynb"))]
    alike = pairs(answers, released, least)
    return [pair for pair in alike if partner(course, lab, pair.students[0]) != pair.students[1]], told


def _code(notebook: nbformat.NotebookNode) -> str:
    """The code cells, without magics, which are no Python."""
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return "\n\n".join("\n".join(line for line in cell.splitlines() if line[:1] not in "%!") for cell in cells)
