"""Reads the student's file, never runs it: which statements the ranks may execute, and where each line came from.

Only the definitions, imports and assignments that the function uses, directly or through others, are kept. Calls to
`check` and `World`, magics and prints are dropped, so that a student can hand in a whole notebook or percent script.
This file imports no torch.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import itertools
import json
import re
import symtable
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from allranks.base.errors import CourseError

MAX_NBYTES = 4 << 20
COURSE = ("allranks", "IPython", "ipywidgets", "ipyparallel")
CODE_MAGICS = ("%%ranks", "%%px", "%%time", "%%timeit", "%%capture", "%%prun")
MAX_TOKENIZED = 1_000_000  # characters: IPython's transformer reads the whole cell again for each magic
_MAGIC = re.compile(r"^(\s*)([%!]|\?|\w[\w.]*\?\s*$)")  # where there are too many for the transformer
PLOTTING = ("matplotlib", "pylab", "seaborn", "plotly", "bokeh", "altair")
_CELL = re.compile(r"^# ?%%", re.MULTILINE)  # a cell of a percent script
_MAGIC_CALL = re.compile(r"^(\s*)get_ipython\(\)\.run_line_magic\('time', (.*)\)$")
_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
_CHANGING = frozenset({"next", "setattr", "delattr"})  # builtins that change their first argument
_CHANGING_MODULES = frozenset({"random", "heapq", "bisect", "operator", "numpy", "torch"})  # functions of these may
_Compound = ast.With | ast.AsyncWith | ast.For | ast.AsyncFor | ast.While | ast.If | ast.Try | ast.TryStar | ast.Match


class SourceError(CourseError):
    """A file that can't be checked; the message says how to fix it. `line` is where, if it does not parse."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


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
        lines = self.text.split("\n")
        return lines[line - 1].strip() if line is not None and 1 <= line <= len(lines) else ""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last line of the function's definition; (0, 0) if it is no plain one."""
        for node in ast.parse(self.text).body:
            if isinstance(node, ast.FunctionDef) and node.name == self.function:
                return _first_line(node), node.end_lineno or node.lineno
        return 0, 0


def read_source(file: str | Path | dict, function: str, filename: str | None = None) -> Source:
    """The student's function with all that it uses, from a .py or .ipynb path or a notebook already parsed.

    Raises SourceError if there is nothing to check: no such file, no Python, or no function of that name.
    """
    if isinstance(file, dict):
        return _from_notebook(file, function, filename or "notebook.ipynb")
    found = _read(Path(file), filename or Path(file).name, function)
    if isinstance(found, dict):
        return _from_notebook(found, function, filename or Path(file).name)
    return from_text(found, function, filename or Path(file).name)


def plain_texts(file: str | Path) -> list[str]:
    """The Python of a .py file, or of each code cell of an .ipynb, without magics. Raises SourceError as `read_source` does."""
    found = _read(Path(file), Path(file).name, "the function")
    if isinstance(found, str):
        return [_plain_python(found)]
    cells = [c for c in _cells(found) or [] if isinstance(c, dict) and c.get("cell_type") == "code"]
    return [_plain_python(_without_cell_magic(_source_of(cell))) for cell in cells]


def _source_of(cell: dict) -> str:
    source = cell.get("source", cell.get("input", ""))  # its name in format 3
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _read(path: Path, name: str, function: str) -> str | dict:
    """The text of a .py file, or a notebook. `function` is for the words of the error."""
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
        return notebook if isinstance(notebook, dict) else {}
    return text


def from_text(text: str, function: str, filename: str) -> Source:
    """The student's function with all that it uses, from Python text. Raises SourceError as `read_source` does."""
    text = _plain_python(text)
    if not _parses(text) and _CELL.search(text):  # a cell that does not parse is nobody else's fault
        starts = [0, *(m.start() for m in _CELL.finditer(text)), len(text)]
        cells = [text[a:b] for a, b in itertools.pairwise(starts)]
        text = "".join(c if _parses(c) or _defines(c, function) else "\n" * c.count("\n") for c in cells)
    return Source(_keep(_parse(text, filename), text, function, Source(text, function, filename)), function, filename)


def _from_notebook(notebook: dict, function: str, filename: str) -> Source:
    cells = _cells(notebook) if isinstance(notebook, dict) else None
    if cells is None:
        raise SourceError(f"{filename} is not a notebook of format 3 or 4: open it in JupyterLab and save it again.")
    # line 1 collects the imports from __future__: a notebook may have them in any cell, a file only at its start
    lines = [""]
    starts, features = [], set()
    number = 0
    for cell in cells:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        number += 1
        text = _plain_python(_without_cell_magic(_source_of(cell)))
        starts.append((len(lines) + 1, number))
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if _defines(text, function):
                raise SourceError(_syntax(error, filename, f"cell {number}")) from None
            text = "\n" * text.count("\n")  # another cell may have any mistake
        text, found = _without_future(text)
        features |= found
        lines += text.split("\n")
    if features:
        lines[0] = f"from __future__ import {', '.join(sorted(features))}"
    whole = "\n".join(lines)
    if not _defines(whole, function):
        _of_another_kind(cells, function, filename)
    kept = _keep(_parse(whole, filename), whole, function, Source(whole, function, filename, tuple(starts)))
    return Source(kept, function, filename, tuple(starts))


def _of_another_kind(cells: list, function: str, filename: str) -> None:
    """Raises SourceError if the function stands in a cell that is no code cell: a key changes the kind of a cell by accident."""
    for place, cell in enumerate(cells, 1):
        kind = cell.get("cell_type") if isinstance(cell, dict) else None
        text = _source_of(cell) if kind in ("markdown", "raw", "heading") else ""
        before = re.split(rf"\bdef\s+{re.escape(function)}\b", text, maxsplit=1)[0]
        if _defines(text, function) and "```" not in before:  # in a fence it is an example
            name = {"markdown": "Markdown"}.get(str(kind), kind)
            raise SourceError(
                f"{function} stands in a {name} cell of {filename} (cell {place} from the top, all kinds counted), so that it is text, not "
                "code. Make it a code cell again: click beside the cell and press Y."
            )


def _cells(notebook: dict) -> list | None:
    """The cells of a notebook of format 4, or of format 3, which has them in worksheets."""
    cells = notebook.get("cells")
    if cells is None and isinstance(sheets := notebook.get("worksheets"), list):
        cells = [c for s in sheets if isinstance(s, dict) and isinstance(s.get("cells"), list) for c in s["cells"]]
    return cells if isinstance(cells, list) else None


def _without_future(text: str) -> tuple[str, set[str]]:
    """The text of a cell with `pass` in place of its imports from __future__, and the names that they import."""
    lines, found = text.split("\n"), set()
    for node in reversed(ast.parse(text).body):  # the last first, so that columns stay right
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            found |= {alias.name for alias in node.names}
            _pass(lines, node)
    return "\n".join(lines), found


def _pass(lines: list[str], node: ast.stmt) -> None:
    """Puts `pass` in place of a statement; the number of lines stays."""
    first, last = _first_line(node) - 1, (node.end_lineno or node.lineno) - 1
    column = node.col_offset if first == node.lineno - 1 else len(lines[first]) - len(lines[first].lstrip())
    before = lines[first].encode()[:column].decode()
    after = lines[last].encode()[node.end_col_offset :].decode()
    lines[first : last + 1] = [f"{before}pass{after}", *[""] * (last - first)]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _defines(text: str, function: str) -> bool:
    """Whether text that does not parse seems to define the function."""
    return re.search(rf"\bdef\s+{re.escape(function)}\b", text) is not None


def _without_cell_magic(text: str) -> str:
    """The cell without the line of its magic; nothing but empty lines if the magic takes no Python."""
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    code = text.lstrip("\n")
    if not code.startswith("%%"):
        return text
    first, _, rest = code.partition("\n")
    if first.split()[0] not in CODE_MAGICS:
        return "\n" * text.count("\n")
    return _without_cell_magic("\n" * (len(text) - len(code) + 1) + rest)


def _plain_python(text: str) -> str:
    """The text with Python in place of IPython's own syntax, line for line; as it is if it is Python already.

    IPython's transformer turns magics, shell commands and questions into calls of get_ipython(); nothing runs.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    if _parses(text):
        return text
    from IPython.core import inputtransformer2  # here, since it takes time to import and most texts are Python

    code = re.sub(r"^\f+", "", text.lstrip("\n"), flags=re.MULTILINE)  # IPython's tokens count form feeds as columns
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", code)  # not splitlines, which also splits at form feeds
    for clean in (inputtransformer2.leading_indent, inputtransformer2.classic_prompt, inputtransformer2.ipython_prompt):
        lines = clean(lines) if lines else lines
    transformer = inputtransformer2.TransformerManager()
    changed = True
    for _ in range(MAX_TOKENIZED // max(1, len(text))):
        if not changed:
            break
        try:
            changed, after = transformer.do_one_token_transform(lines)
        except (SyntaxError, RecursionError, MemoryError):
            break
        at = next((n for n, (a, b) in enumerate(zip(lines, after, strict=False)) if a != b), len(after) - 1)
        lines = [*after[:at], *map(_timed, after[at : at + 1]), *["\n"] * (len(lines) - len(after)), *after[at + 1 :]]
    if changed:
        lines = [_MAGIC.sub(r"\1pass #", line) for line in lines]
    plain = "\n" * (len(text) - len(text.lstrip("\n"))) + "".join(lines)
    return plain if text.endswith("\n") else plain.removesuffix("\n")


def _timed(line: str) -> str:
    """The code that %time runs, which may define names. Other magics inside a function become `pass`."""
    found = _MAGIC_CALL.match(line.rstrip("\n"))
    if found is not None:
        code = ast.literal_eval(found[2])
        if _parses(code):
            return f"{found[1]}{code}\n"
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}pass\n" if indent and line.lstrip().startswith("get_ipython()") else line


def _syntax(error: Exception, filename: str, place: str = "") -> str:
    line = getattr(error, "lineno", None)
    where = ", ".join(filter(None, (place, f"line {line}" if line else "")))
    reason = getattr(error, "msg", None) or str(error) or type(error).__name__
    return f"{filename} does not parse{f' ({where})' if where else ''}: {reason}."


def _parse(text: str, filename: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceError(_syntax(error, filename), getattr(error, "lineno", None)) from None


def _keep(tree: ast.Module, text: str, function: str, place: Source) -> str:
    """The text with empty lines in place of all statements that the function does not use.

    `place` says where a line of the text stands in the student's file. Raises SourceError if the function is missing.
    """
    names = _Names(tree, function)
    if not any(function in names.bound(statement) for statement in tree.body):
        defined = sorted({s.name for s in tree.body if isinstance(s, ast.FunctionDef)})
        found = f"it defines {', '.join(defined[:6])}" if defined else "it defines no function"
        raise SourceError(f"{place.filename} has no function {function}: {found}. Name your function {function}.")
    useful = [statement for statement in tree.body if names.keeps(statement)]
    lines = text.split("\n")
    for statement in sorted(names.cut, key=lambda s: (s.lineno, s.col_offset), reverse=True):
        _pass(lines, statement)
    needed = _needed(useful, lines, function, names)
    kept = [s for s in useful if id(s) in needed]
    for node in (n for s in kept for n in ast.walk(s) if isinstance(n, ast.ImportFrom) and n.level):
        raise SourceError(
            f"{place.filename} imports from a file beside it ({place.where(node.lineno)}), and only this one file is "
            "handed in: put what you use of the other one into it."
        )
    keep = {number for s in kept for number in range(_first_line(s), s.end_lineno + 1)}
    shared = [s for s in tree.body if id(s) not in needed and keep & {s.lineno, s.end_lineno}]
    for statement in reversed(shared):  # such as the second one in `X = 2; check(f)`
        _pass(lines, statement)
        keep.add(_first_line(statement))
    return "\n".join(line if number in keep else "" for number, line in enumerate(lines, 1))


class _Names:
    """Which names each top-level statement binds or changes, and which statements the ranks can't have.

    A statement that uses the course's tools, or a name that such a statement binds, is left out. In a compound
    statement only those parts are left out (`cut`), and the calls in it that change no name, such as print.
    """

    def __init__(self, tree: ast.Module, function: str) -> None:
        self.modules: dict[str, str] = {}  # each imported name, and the module that it is or comes from
        self.definitions: dict[str, ast.FunctionDef] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.modules |= {
                    a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
                }
            elif isinstance(node, ast.ImportFrom):
                self.modules |= {a.asname or a.name: f"{node.module or ''}.{a.name}" for a in node.names}
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                self.definitions[statement.name] = statement
        self.function = function
        self.dropped: set[str] = {"get_ipython"}
        self.cut: list[ast.stmt] = []
        self._cut: set[int] = set()
        self._bound: dict[int, list[str]] = {}
        self._changes: dict[str, tuple[set[str], list[str]]] = {}  # by the name of a function

    def keeps(self, statement: ast.stmt) -> bool:
        """Whether the ranks may have this statement, if the function uses it."""
        if self._keeps(statement):
            self.dropped -= set(self.bound(statement))
            return True
        self.dropped |= set(self.bound(statement))
        return False

    def _keeps(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Import(names=aliases):
                return not all(alias.name.split(".")[0] in COURSE for alias in aliases)
            case ast.ImportFrom(module=module, level=0):
                return (module or "").split(".")[0] not in COURSE
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ImportFrom():
                return True
            case ast.If(test=test) if any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(test)):
                return False
            case _ if isinstance(statement, _Compound):
                return self._keeps_part(statement)
        if any(isinstance(node, ast.Await | ast.Yield | ast.YieldFrom) for node in _outside_functions(statement)):
            return False  # IPython awaits at the top level, a module can't
        return bool(self.bound(statement)) and not _loads(statement) & self.dropped

    def _keeps_part(self, statement: ast.stmt) -> bool:
        """Whether something is left of a compound statement without the parts that the ranks can't have."""
        if isinstance(statement, ast.AsyncWith | ast.AsyncFor) or _loads_of_head(statement) & self.dropped:
            return False
        left = False
        for part in _parts(statement):
            if isinstance(part, ast.Pass | ast.Break | ast.Continue | ast.Global | ast.Raise):
                continue
            if self.keeps(part):
                left = True
            else:
                self.cut.append(part)
                self._cut.add(id(part))
        return left

    def bound(self, statement: ast.stmt) -> list[str]:
        """The names that a statement defines or changes at the top level."""
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return [statement.name]
            case ast.Import() | ast.ImportFrom():
                return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
        known = self._bound.get(id(statement))
        if known is None:
            nodes = _outside_functions(statement, self._cut)
            known = list(dict.fromkeys(name for node in nodes for name in self._bound_by(node)))
            if not isinstance(statement, _Compound):  # of which parts may still be cut
                self._bound[id(statement)] = known
        return known

    def _bound_by(self, node: ast.AST) -> list[str]:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                return [name]
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                return [n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
                return self.bound(node)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                return [name]
            case ast.MatchMapping(rest=str(name)):
                return [name]
            case ast.Expr(value=ast.Call() as call):
                return self._changed_by_call(call)
        return []

    def _changed_by_call(self, call: ast.Call) -> list[str]:
        """The names whose objects a call may change whose result nobody takes: TABLE.append(1), fill(TABLE), setup()."""
        given = [n for argument in call.args for n in [_root(argument)] if n] + [
            n for word in call.keywords if word.arg == "out" for n in [_root(word.value)] if n
        ]
        match call.func:
            case ast.Name(id=name) if name in self.definitions:
                return self._changed_by(name, call)
            case ast.Name(id=name):
                module = self.modules.get(name, "").split(".")[0]
                return given[:1] if name in _CHANGING or module in _CHANGING_MODULES else []
            case ast.Attribute(attr=method):
                name = _root(call.func)
                if name is None:
                    return []
                if name not in self.modules:
                    return [name]
                away = method in ("save", "seed", "manual_seed") or _is_distributed(call.func, self.modules)
                return given if self.modules[name].split(".")[0] in _CHANGING_MODULES and not away else []
        return []

    def _changed_by(self, name: str, call: ast.Call) -> list[str]:
        """The names that a call of the student's own function changes: global ones, and those that it is given."""
        if name not in self._changes:
            self._changes[name] = set(), []  # if it calls itself
            self._changes[name] = self._changes_of(self.definitions[name])
        changed, parameters = self._changes[name]
        given = dict(zip(parameters, map(_root, call.args), strict=False))
        given |= {word.arg: _root(word.value) for word in call.keywords if word.arg}
        return [*(changed - set(parameters)), *(n for p, n in given.items() if p in changed and n)]

    def _changes_of(self, definition: ast.FunctionDef) -> tuple[set[str], list[str]]:
        """The names of global objects and of parameters that a call changes, and all its parameters.

        Nothing if it calls the function that is checked, or communicates: that is a trial, not a part of the answer.
        """
        used, nodes = _loads(definition), [n for s in definition.body for n in ast.walk(s)]
        parameters = [a.arg for a in (*definition.args.posonlyargs, *definition.args.args, *definition.args.kwonlyargs)]
        trial = self.function in {*used, definition.name} or used & self.dropped
        if trial or any(_is_distributed(n, self.modules) for n in nodes):
            return set(), parameters
        announced = {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        changed = {n for node in nodes for n in self._bound_by(node)}
        return changed - (stored - announced - set(parameters)), parameters


def _root(node: ast.AST) -> str | None:
    """The name that an expression begins with, as TABLE in TABLE["a"].rows; None for others."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_distributed(node: ast.AST, modules: dict[str, str]) -> bool:
    """Whether a name or an attribute is torch.distributed, or comes from it."""
    if isinstance(node, ast.Attribute):
        if node.attr == "distributed" and modules.get(_root(node) or "") == "torch":
            return True
        return _is_distributed(node.value, modules)
    return isinstance(node, ast.Name) and modules.get(node.id, "").startswith("torch.distributed")


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    """The statements directly in a compound one."""
    parts = [s for field in ("body", "orelse", "finalbody") for s in getattr(statement, field, ())]
    for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        parts += branch.body
    return parts


def _loads_of_head(statement: ast.stmt) -> set[str]:
    """The names that a compound statement uses outside its parts."""
    parts = {id(n) for part in _parts(statement) for n in ast.walk(part)}
    nodes = [n for n in ast.walk(statement) if id(n) not in parts]
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _outside_functions(node: ast.AST, without: Collection[int] = ()) -> Iterator[ast.AST]:
    """The node and those below it that belong to the same scope."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    below = [node.iter, *node.ifs] if isinstance(node, ast.comprehension) else ast.iter_child_nodes(node)
    for child in below:
        if id(child) not in without:
            yield from _outside_functions(child, without)


def _loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


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


def _needed(statements: list[ast.stmt], lines: list[str], function: str, names: _Names) -> set[int]:
    """The ids of the statements that the function uses, and of those that change what it uses."""
    by_name: dict[str, list[ast.stmt]] = {}
    for statement in statements:
        for name in names.bound(statement):
            by_name.setdefault(name, []).append(statement)
    found: dict[int, ast.stmt] = {}
    more = list(by_name.get(function, []))
    more += [s for s in statements if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    more += [s for s in by_name.get("*", []) if not _only_plots(s)]
    while more:
        found |= _reached(more, lines, by_name)
        more = [s for s in statements if id(s) not in found and _registers(s, lines, by_name, found.keys())]
    used = {name for s in found.values() for name in _uses(s, lines)}
    if used - by_name.keys() - _BUILTINS:  # they come from an import of everything, if from anywhere
        found |= _reached(by_name.get("*", []), lines, by_name)
    return set(found)


def _only_plots(statement: ast.stmt) -> bool:
    """Whether it imports from a package that can be left out unless a name is missing."""
    package = (getattr(statement, "module", None) or "").split(".")[0]
    return package in PLOTTING or not is_installed(package)


def is_installed(package: str) -> bool:
    """Whether there is a package of that name. Nothing is imported to find out."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def imported_at(text: str, line: int | None) -> set[str]:
    """The packages that the statement in this line of the text imports."""
    tree = ast.parse(text)
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    here = [n for n in nodes if line is not None and n.lineno <= line <= (n.end_lineno or n.lineno)]
    modules = [
        m for n in here for m in ([n.module or ""] if isinstance(n, ast.ImportFrom) else [a.name for a in n.names])
    ]
    return {module.split(".")[0] for module in modules}


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


def _registers(
    statement: ast.stmt, lines: list[str], by_name: dict[str, list[ast.stmt]], found: Collection[int]
) -> bool:
    """Whether this definition may be in a registry that the function uses: by a decorator or a base class of the student's."""
    if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    taken = [*statement.decorator_list, *getattr(statement, "bases", ())]
    first = [s for node in taken for name in _loads(node) for s in by_name.get(name, ())]
    reached = _reached(first, lines, by_name)
    return any(number in found and not isinstance(s, ast.Import | ast.ImportFrom) for number, s in reached.items())
