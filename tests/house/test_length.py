"""A function has at most 100 lines, and a line 120 columns; a folder that fits leaves ruff's list of exceptions."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.core
ROOT = Path(__file__).resolve().parents[2]
LINES, COLUMNS = 100, 120
FOLDERS = ("utils/allranks", "autograder", "deploy", "tools", "bench")


def too_long(source: str) -> list[str]:
    """NAME: LENGTH of each function with more than LINES lines."""
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    sizes = [(function.name, function.end_lineno - function.lineno + 1) for function in functions]
    return [f"{name}: {size}" for name, size in sizes if size > LINES]


def test_no_function_is_longer_than_100_lines():
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 400
    found = {str(path.relative_to(ROOT)): too_long(path.read_text(encoding="utf-8")) for path in files}
    assert {path: functions for path, functions in found.items() if functions} == {}


def test_a_long_function_is_found():
    body = "    pass\n" * LINES
    assert too_long(f"def long():\n{body}") == [f"long: {LINES + 1}"] and too_long(f"def short():\n{body[9:]}") == []


def test_what_may_have_long_lines_still_has_some():
    """So the list of pyproject.toml only shrinks. Percent scripts stay on it: a line of theirs is a paragraph."""
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    patterns = [pattern for pattern, codes in ruff["per-file-ignores"].items() if codes == ["E501"]]
    assert "E501" not in ruff["ignore"]
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]
    long = [path for path in files if max(map(len, path.read_text(encoding="utf-8").splitlines()), default=0) > COLUMNS]
    for pattern in patterns:
        for part in alternatives(pattern):
            assert any(path.relative_to(ROOT).match(part) or under(path, part) for path in long), (
                f"{part} has none left"
            )


def alternatives(pattern: str) -> list[str]:
    """A pattern with `{a,b}` as several without; `/**` at the end is left out."""
    if not (found := re.search(r"\{([^}]*)\}", pattern)):
        return [pattern.removesuffix("/**")]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [one for word in found[1].split(",") for one in alternatives(before + word + after)]


def under(path: Path, folder: str) -> bool:
    """Whether the file lies in the folder."""
    return path.is_relative_to(ROOT / folder)
