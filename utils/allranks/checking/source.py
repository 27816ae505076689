"""Reads the student's file, never runs it: which statements the ranks may execute, and where each line came from.

Only the definitions, imports and assignments that the function uses, directly or through others, are kept. Calls to
`check` and `World`, magics and prints are dropped, so that a student can hand in a whole notebook or percent script.
This file imports no torch.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import symtable
from dataclasses import dataclass
from pathlib import Path

from allranks.errors import CourseError

MAX_NBYTES = 4 << 20
COURSE = ("allranks", "IPython", "ipywidgets", "ipyparallel")
CODE_MAGICS = ("%%ranks", "%%px", "%%time", "%%timeit", "%%capture", "%%prun")
_MAGIC = re.compile(r"^(\s*)([%!]|\?|\w[\w.]*\?\s*$)")


class SourceError(CourseError):
    """A file that can't be checked; the message says how to fix it."""


@dataclass(frozen=True)
class Source:
    """Text for the ranks, with the student's line numbers. `cells` are (first line, number) of each notebook cell."""

    text: str
    function: str
    filename: str
    cells: tuple[tuple[int, int], ...] = ()

    def where(self, line: int | None) -> str:
        """The line as the student knows it: "line 12", or "cell 5, line 3" in a notebook."""
        if line is None:
            return ""
        for first, number in reversed(self.cells):
            if line >= first:
                return f"cell {number}, line {line - first + 1}"
        return f"line {line}"

    def line_text(self, line: int | None) -> str:
        """The text of that line without its indentation, or ""."""
        lines = self.text.splitlines()
        return lines[line - 1].strip() if line is not None and 1 <= line <= len(lines) else ""


def read_source(file: str | Path | dict, function: str, filename: str | None = None) -> Source:
    """The student's function with all that it uses, from a .py or .ipynb path or a notebook already parsed.

    Raises SourceError if there is nothing to check: no such file, no Python, or no function of that name.
    """
    if isinstance(file, dict):
        return _from_notebook(file, function, filename or "notebook.ipynb")
    path = Path(file)
    name = filename or path.name
    if path.suffix not in (".py", ".ipynb"):
        raise SourceError(f"{name} is neither a .py nor an .ipynb file: give the file that defines {function}.")
    try:
        if path.stat().st_size > MAX_NBYTES:
            raise SourceError(
                f"{name} is larger than {MAX_NBYTES >> 20} MiB: clear the notebook's outputs, then try again."
            )
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SourceError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise SourceError(f"{path} is a folder: give the file that defines {function}.") from None
    except UnicodeDecodeError:
        raise SourceError(f"{name} is not a text file in UTF-8: save it again as such.") from None
    except OSError as error:
        raise SourceError(f"{name} can't be read: {error.strerror or error}.") from None
    if path.suffix == ".ipynb":
        try:
            notebook = json.loads(text)
        except (ValueError, RecursionError):
            raise SourceError(
                f"{name} is not a notebook: it holds no valid JSON. Save it again in JupyterLab."
            ) from None
        return _from_notebook(notebook, function, name)
    return from_text(text, function, name)


def from_text(text: str, function: str, filename: str) -> Source:
    """The student's function with all that it uses, from Python text. Raises SourceError as `read_source` does."""
    text = _without_magics(text)
    return Source(_keep(_parse(text, filename), text, function, filename, whole_file=True), function, filename)


def _from_notebook(notebook: dict, function: str, filename: str) -> Source:
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise SourceError(f"{filename} is not a notebook of format 4: open it in JupyterLab and save it again.")
    # line 1 collects the imports from __future__: a notebook may have them in any cell, a file only at its start
    lines = [""]
    starts, features = [], set()
    number = 0
    for cell in cells:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        number += 1
        source = cell.get("source", "")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        text = text.replace("\r\n", "\n")
        first, _, rest = text.lstrip("\n").partition("\n")
        if first.startswith("%%"):
            text = "\n" * (len(text) - len(text.lstrip("\n"))) + "\n" + rest if first.split()[0] in CODE_MAGICS else ""
        text = _without_magics(text)
        starts.append((len(lines) + 1, number))
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if re.search(rf"\bdef\s+{re.escape(function)}\b", text):
                raise SourceError(_syntax(error, filename, f"cell {number}")) from None
            text = "\n" * text.count("\n")  # another cell may have any mistake
        text, found = _without_future(text)
        features |= found
        lines += text.split("\n")
    if features:
        lines[0] = f"from __future__ import {', '.join(sorted(features))}"
    whole = "\n".join(lines)
    kept = _keep(_parse(whole, filename), whole, function, filename, whole_file=False)
    return Source(kept, function, filename, tuple(starts))


def _without_future(text: str) -> tuple[str, set[str]]:
    """The text of a cell with `pass` in place of its imports from __future__, and the names that they import."""
    lines, found = text.split("\n"), set()
    for node in reversed(ast.parse(text).body):  # the last first, so that columns stay right
        if isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.end_lineno is not None:
            found |= {alias.name for alias in node.names}
            first, last = node.lineno - 1, node.end_lineno - 1
            before = lines[first].encode()[: node.col_offset].decode()
            after = lines[last].encode()[node.end_col_offset :].decode()
            lines[first : last + 1] = [f"{before}pass{after}", *[""] * (last - first)]
    return "\n".join(lines), found


def _without_magics(text: str) -> str:
    """The text with `pass` in place of IPython's lines, if it is not Python already."""
    try:
        ast.parse(text)
        return text
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join(_MAGIC.sub(r"\1pass #", line) if _MAGIC.match(line) else line for line in text.split("\n"))


def _syntax(error: Exception, filename: str, place: str = "") -> str:
    line = getattr(error, "lineno", None)
    where = ", ".join(filter(None, (place, f"line {line}" if line else "")))
    reason = getattr(error, "msg", None) or str(error) or type(error).__name__
    return f"{filename} does not parse{f' ({where})' if where else ''}: {reason}."


def _parse(text: str, filename: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceError(_syntax(error, filename)) from None


def _keep(tree: ast.Module, text: str, function: str, filename: str, whole_file: bool) -> str:
    """The text with empty lines in place of all statements that the function does not use.

    A file on its own (`whole_file`) also keeps imports of missing packages: the student must see that error.
    """
    bound = [name for statement in tree.body for name in _binds(statement)]
    if function not in bound:
        names = sorted({s.name for s in tree.body if isinstance(s, ast.FunctionDef)})
        found = f"it defines {', '.join(names[:6])}" if names else "it defines no function"
        raise SourceError(
            f"{filename} has no function {function}: {found}. Name your function {function}, or use --function NAME."
        )
    dropped: set[str] = set()
    kept: list[ast.stmt] = []
    imported = {n for s in ast.walk(tree) if isinstance(s, ast.Import | ast.ImportFrom) for n in _binds(s)}
    for statement in tree.body:
        if isinstance(statement, ast.Expr) and imported & set(_binds(statement)):
            continue  # such as torch.manual_seed(0), which changes no name
        if _allowed(statement, imported) and not _uses_course_tools(statement, dropped):
            kept.append(statement)
            dropped -= set(_binds(statement))
        else:
            dropped |= set(_binds(statement))
    lines = text.split("\n")
    needed = _needed(kept, lines, function)
    keep = set()
    for statement in kept:
        if id(statement) not in needed and not (whole_file and _missing(statement)):
            continue
        keep |= set(range(_first_line(statement), statement.end_lineno + 1))
    return "\n".join(line if number in keep else "" for number, line in enumerate(lines, 1))


def _allowed(statement: ast.stmt, imported: set[str]) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return True
        case ast.Expr():
            receiver = _receiver(statement)
            return receiver is not None and receiver not in imported
        case ast.For():
            return _all_allowed([*statement.body, *statement.orelse], imported)
        case ast.Try():
            parts = [*statement.body, *statement.orelse, *statement.finalbody]
            parts += [s for handler in statement.handlers for s in handler.body]
            return _all_allowed(parts, imported)
        case ast.If():
            main = any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(statement.test))
            return not main and _all_allowed([*statement.body, *statement.orelse], imported)
    return False


def _all_allowed(statements: list[ast.stmt], imported: set[str]) -> bool:
    return all(_allowed(s, imported) or isinstance(s, ast.Pass) for s in statements)


def _receiver(statement: ast.AST) -> str | None:
    """The name whose method the statement calls, as in ANSWERS.update(...); None for other statements."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name
    return None


def _uses_course_tools(statement: ast.stmt, dropped: set[str]) -> bool:
    """Whether the statement imports the course's own tools, or is an assignment that uses a dropped name."""
    if isinstance(statement, ast.Import):
        return all(alias.name.split(".")[0] in COURSE for alias in statement.names)
    if isinstance(statement, ast.ImportFrom):
        return (statement.module or "").split(".")[0] in COURSE
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return bool(_loads(statement) & (dropped | {"get_ipython"}))


def _loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _binds(statement: ast.stmt) -> list[str]:
    """The names that a statement defines or changes at the top level."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    found = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
        elif (receiver := _receiver(node)) is not None:
            found.append(receiver)
        elif node is not statement and isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            found += _binds(node)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            found += [n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)]
    return found


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])


def _uses(statement: ast.stmt, lines: list[str]) -> set[str]:
    """The names that a statement uses from the top level, without a function's own variables."""
    text = "\n".join(lines[_first_line(statement) - 1 : statement.end_lineno])
    try:
        table = symtable.symtable(text, "", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _loads(statement)
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    scopes = table.get_children()
    while scopes:
        scope = scopes.pop()
        found |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
        scopes += scope.get_children()
    return found


def _needed(statements: list[ast.stmt], lines: list[str], function: str) -> set[int]:
    """The ids of the statements that the function uses, and of those that change what it uses."""
    by_name: dict[str, list[ast.stmt]] = {}
    for statement in statements:
        for name in _binds(statement):
            by_name.setdefault(name, []).append(statement)
    found: set[int] = set()
    more = by_name.get(function, []) + by_name.get("*", [])
    more += [s for s in statements if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    while more:
        found |= _reached(more, lines, by_name).keys()
        more = [s for s in statements if id(s) not in found and _registers(s, lines, by_name, found)]
    return found


def _reached(statements: list[ast.stmt], lines: list[str], by_name: dict[str, list[ast.stmt]]) -> dict[int, ast.stmt]:
    """These statements and all top-level statements that they use, directly or through others; by their ids."""
    found: dict[int, ast.stmt] = {}
    todo = list(statements)
    while todo:
        statement = todo.pop()
        if id(statement) not in found:
            found[id(statement)] = statement
            todo += [s for name in _uses(statement, lines) for s in by_name.get(name, ())]
    return found


def _registers(statement: ast.stmt, lines: list[str], by_name: dict[str, list[ast.stmt]], found: set[int]) -> bool:
    """Whether this definition may be in a registry that the function uses: by a decorator or a base class of the student's."""
    if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    taken = [*statement.decorator_list, *getattr(statement, "bases", ())]
    first = [s for node in taken for name in _loads(node) for s in by_name.get(name, ())]
    reached = _reached(first, lines, by_name)
    return any(number in found and not isinstance(s, ast.Import | ast.ImportFrom) for number, s in reached.items())


def _missing(statement: ast.stmt) -> bool:
    """Whether it imports a package that can't be found. Nothing is imported to find out."""
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module] if statement.module and not statement.level else []
    elif isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    else:
        return False
    try:
        return any(importlib.util.find_spec(name.split(".")[0]) is None for name in names)
    except (ImportError, ValueError, AttributeError):
        return True
