"""Sentences are for people: programs compare the codes beside them, so that every sentence may change."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.core
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("utils/allranks/judge", "utils/allranks/ranks/wire", "utils/allranks/exercises", "autograder")
SENTENCES = {"message", "sentence", "reason", "words", "detail", "advice", "error_text"}
# these hold sentences in some places, and codes in others, so only a search in them tells
SEARCHED = SENTENCES | {"cause", "mistake", "told", "said", "label", "amount", "where", "told_first"}
SEARCHES = {
    *("startswith", "endswith", "find", "rfind", "index", "count", "split", "partition", "rpartition", "replace"),
    *("removeprefix", "removesuffix", "lower", "casefold"),
}
# (file, function): words of Python, torch, the system or a gradebook's file: nothing but the text tells what happened
ALLOWED = {
    ("judge/failed_run.py", "_advice_of_torch"),
    ("judge/failed_run.py", "_index_behind"),
    ("wire/limits.py", "_while_importing"),
    ("wire/rank.py", "_importing"),
    ("autograder/exports.py", "_from_canvas"),
    ("commands/_term.py", "_collect"),
    ("commands/_term.py", "_feedback"),
}


def is_sentence(node: ast.AST, names: set[str] = SENTENCES) -> bool:
    """Whether it is a field of that name, or a name or key that stands for one."""
    match node:
        case ast.Attribute(attr=name):
            return name in names
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name in names
        case ast.Name(id=name):
            return name in names - {"words", "message"}  # a frame of the wire is a message too
    return False


def has_words(node: ast.AST) -> bool:
    """Whether it is a text with a space in it, or several texts of which one has: words, and no name or sign."""
    match node:
        case ast.Constant(value=str(text)):
            return " " in text.strip("\n") and any(map(str.isalnum, text))
        case ast.Tuple(elts=parts) | ast.JoinedStr(values=parts):
            return any(map(has_words, parts))
    return False


def is_punctuation(node: ast.AST) -> bool:
    """Whether it is a text, or several, without letters and digits."""
    match node:
        case ast.Constant(value=str(text)):
            return not any(map(str.isalnum, text))
        case ast.Tuple(elts=parts):
            return all(map(is_punctuation, parts))
    return False


def reads(node: ast.AST) -> bool:
    """Whether the code compares a sentence, or searches one or for words. To ask whether there is one is no reading."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            if all(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                return False
            return any(is_sentence(part) for part in (left, *others))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=args):
            return any(is_sentence(arg) for arg in args)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in SEARCHES:
            in_letters = any(not is_punctuation(arg) for arg in args)
            return (in_letters and is_sentence(value, SEARCHED)) or any(map(has_words, args))
    return False


def readers(text: str) -> list[tuple[str, int]]:
    """(function, line) of each place that reads a sentence."""
    found = []
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [(function.name, node.lineno) for node in ast.walk(function) if reads(node)]
    return found


def test_no_code_reads_sentences():
    faults = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = f"{path.parent.name}/{path.name}"
            for function, line in readers(path.read_text(encoding="utf-8")):
                if (name, function) not in ALLOWED:
                    faults.append(f"{path.relative_to(ROOT)}:{line} ({function}) reads a sentence; give it a code.")
    assert faults == []


@pytest.mark.parametrize(
    "line",
    [
        "'must be int64' in first.words",
        "re.search('tag', failure.message)",
        "failure.message.startswith('Rank')",
        "verdict['reason'] == 'deadlock'",
        "re.sub('1', '', reason)",
        "reason in told",
        "m.cause.startswith('ties')",
        "mistake.removeprefix('probably ')",
        "text.endswith(('on some ranks only', 'x'))",
        "amount.startswith('0 ')",
    ],
)
def test_a_reader_is_found(line):
    assert set(readers(f"def f():\n    return {line}\n")) == {("f", 2)}


@pytest.mark.parametrize(
    "line",
    ["failure.message or ''", "case.reason is None", "'stop' in message", "not reason", "one.cause == other.cause"],
)
def test_asking_whether_there_is_a_sentence_is_no_reading(line):
    assert readers(f"def f():\n    return {line}\n") == []
