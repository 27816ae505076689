"""Plants small faults in the package, one at a time in a copy, and says which of them `make test` notices.

    python tests/mutants.py --number 100 --seed 1 --copies 2

A fault is one operator, comparison, constant, condition or statement that is changed (the operators of mutation
testing). Of each room as many are drawn. For each, the tests that the change reaches are run, nearest first, until one
fails. Prints one JSON line a fault: `file`, `line`, `was`, `now`, `noticed` (the first test that failed, or null),
`seconds`. Those that nothing notices are listed last: plant these together and run everything, to compare with what the
whole suite notices.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

import reach
import selection

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "utils" / "allranks"
_COMPARE = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*"}


@dataclass(frozen=True)
class Mutant:
    """A fault: in this file, from this character on, `was` becomes `now`."""

    file: str
    line: int
    start: int
    was: str
    now: str

    def planted(self, text: str) -> str:
        """The file's text with the fault."""
        return text[: self.start] + self.now + text[self.start + len(self.was) :]


def mutants(path: Path) -> Iterator[Mutant]:
    """Every fault of a file that this program knows."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    if not text.isascii():  # columns of the parser count bytes
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if now := _changed(node, text):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            yield Mutant(str(path.relative_to(ROOT)), node.lineno, start, text[start:end], now)


def _changed(node: ast.AST, text: str) -> str | None:
    """The text of a node with one fault, or None where there is none to make."""

    def part(inner: ast.AST) -> str:
        return f"({ast.get_source_segment(text, inner)})"

    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _COMPARE:
            return f"{part(left)} {_COMPARE[type(operator)]} {part(right)}"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC and not _of_text(node):
            return f"({part(left)} {_ARITHMETIC[type(operator)]} {part(right)})"
        case ast.BoolOp(op=operator, values=[first, *others]):
            word = " and " if isinstance(operator, ast.Or) else " or "
            return f"({word.join(map(part, (first, *others)))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return part(operand)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({part(orelse)} if {part(test)} else {part(body)})"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return "return None"
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            return "pass"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
    return None


def _of_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(inner, ast.JoinedStr) or isinstance(getattr(inner, "value", None), str) for inner in ast.walk(node)
    )


def drawn(number: int, seed: int) -> list[Mutant]:
    """So many faults, spread evenly over the rooms."""
    draw = random.Random(seed)
    rooms: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        rooms.setdefault(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), []).append(path)
    names = sorted(rooms)
    draw.shuffle(names)
    found: list[Mutant] = []
    while len(found) < number:
        for room in names[: number - len(found)]:
            [path] = draw.choices(rooms[room], [path.stat().st_size for path in rooms[room]])
            known = list(mutants(path))
            if known and (chosen := draw.choice(known)) not in found:
                found.append(chosen)
    return found


def copy_of_project() -> Path:
    """A copy of the project's files in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="allranks-mutants-"))
    for name in reach.project_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def nearest_tests(graph: reach.Graph, file: str) -> list[str]:
    """The test files that a change of this file reaches with at most two arrows."""
    near = graph.distances([file])
    far: dict[str, int] = {}
    for test, function in graph.functions:
        if re.search(r"/test_\w+\.py$", test):
            used = [near.get(name, reach.FAR) + 1 for name in graph.of_test(test, function, ())]
            far[test] = min([far.get(test, reach.FAR), near.get(test, reach.FAR), *used])
    return [test for test in far if far[test] <= 2]


def tried(folder: Path, mutant: Mutant, graph: reach.Graph, limit_s: float) -> dict:
    """What happens to the tests of a copy when this fault is planted in it: first to the nearest, then to those of
    `make test`.
    """
    path = folder / mutant.file
    before = path.read_text(encoding="utf-8")
    kept = folder / ".pytest_cache" / "d" / "allranks" / selection.PASSED
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(reach.digests(folder)))
    began, failed = time.monotonic(), None
    path.write_text(mutant.planted(before), encoding="utf-8")

    def first_failure(change: dict[str, str], arguments: list[str], limit_s: float) -> str | None:
        env = {**os.environ, "PYTHONPATH": str(folder / "utils"), **change}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # else each run compiles every test anew
        while failed := _first_failure(
            folder, [*arguments, *(f"--deselect={test}" for test in fail_without)], env, limit_s
        ):
            path.write_text(before, encoding="utf-8")
            if "::" not in failed or not _first_failure(folder, ["-p", "no:xdist", failed], env, limit_s):
                break
            fail_without.add(failed)  # a copy is no checkout: this test fails there without a fault, too
            path.write_text(mutant.planted(before), encoding="utf-8")
        return failed

    try:
        tests = nearest_tests(graph, mutant.file)
        failed = first_failure({}, ["-p", "no:xdist", *tests], limit_s) if tests else None
        if not failed:
            change = {"ALLRANKS_TESTS": "change", "PYTEST_XDIST_WORKER_COUNT": "3"}
            failed = first_failure(change, ["-p", "no:xdist"], limit_s * 3)
    finally:
        path.write_text(before, encoding="utf-8")
    return {**asdict(mutant), "noticed": failed, "seconds": round(time.monotonic() - began, 1)}


fail_without: set[str] = set()


def _first_failure(folder: Path, arguments: list[str], env: dict[str, str], limit_s: float) -> str | None:
    """The first test that fails, or None if none does in so many seconds. Raises RuntimeError where pytest itself
    failed.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not nightly and not servers", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    if named := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, flags=re.M):
        return named.group(1)
    if done.returncode in (0, 5):
        return None
    if "allranks" in (said := done.stdout + done.stderr) and re.search(
        r"(Import|Name|Type|Value|Attribute)Error", said
    ):
        return "no test could be collected"  # the fault is in what the tests import
    raise RuntimeError(f"pytest ended with {done.returncode}:\n{said[-2000:]}")


def main() -> None:
    """Draws, tries, prints."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--number", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--copies", type=int, default=2, help="how many are tried at once")
    options.add_argument("--limit", type=float, default=240, help="seconds of tests for one fault")
    given = options.parse_args()
    graph = reach.Graph()
    folders: Queue[Path] = Queue()
    for _ in range(given.copies):
        folders.put(copy_of_project())

    def one(mutant: Mutant) -> dict:
        folder = folders.get()
        try:
            said = tried(folder, mutant, graph, given.limit)
        finally:
            folders.put(folder)
        print(json.dumps(said), flush=True)
        return said

    with ThreadPoolExecutor(given.copies) as pool:
        all_said = list(pool.map(one, drawn(given.number, given.seed)))
    noticed = sum(said["noticed"] is not None for said in all_said)
    print(f"{noticed} of {len(all_said)} noticed", file=sys.stderr)
    while not folders.empty():
        shutil.rmtree(folders.get())


if __name__ == "__main__":
    main()
