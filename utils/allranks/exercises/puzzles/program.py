"""The reader's code, made ready to run: every statement first says which line it is, so that a loop without an end has one."""

from __future__ import annotations

import ast
import builtins
import random
from collections.abc import Callable
from functools import cache
from types import CodeType, ModuleType
from typing import Any

from allranks.base.errors import CourseError
from allranks.ranks.wire.failures import FailureKind

FILE = "<puzzle>"
MODULES = (
    "bisect cmath collections copy dataclasses enum fractions functools heapq itertools math operator random statistics "
    "string textwrap time typing __future__"
).split()
MOST_SOURCE = 64 * 1024  # bytes
_LINE = ".line"  # no name that somebody could write
_METHODS = frozenset("__init__ __name__ __doc__ __str__ __repr__ __len__ __iter__ __next__ __call__".split())
_FRAMES = ("tb_", "f_", "gi_", "cr_", "ag_", "co_")  # how Python names what leads from a function to who called it
_FRAME_PARTS = frozenset("frame next back globals locals builtins code await running yieldfrom consts names".split())
_LEADS_OUT = frozenset(
    "attrgetter methodcaller Formatter get_type_hints ForwardRef".split()
)  # they read names from texts


class Fault(CourseError):
    """Why there is nothing to run: a sentence, the line, and which kind of failure it is."""

    def __init__(self, kind: FailureKind, sentence: str, line: int | None = None) -> None:
        super().__init__(sentence)
        self.kind, self.sentence, self.line = kind, sentence, line


class _Mark(ast.NodeTransformer):
    """Puts a call that names the line before every statement, and into every comprehension."""

    def _call(self, line: int) -> ast.Call:
        return ast.Call(ast.Name(_LINE, ast.Load()), [ast.Constant(line)], [])

    def _before(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            told = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not told and not (isinstance(statement, ast.Global | ast.Nonlocal)):
                made.append(ast.copy_location(ast.Expr(self._call(statement.lineno)), statement))
            made.append(statement)
        return made

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for part in ("body", "orelse", "finalbody"):
            inner = getattr(node, part, None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                setattr(node, part, self._before(inner))
        if isinstance(node, ast.comprehension):
            node.ifs.insert(0, ast.copy_location(self._call(node.target.lineno), node.target))
        return node


def compiled(code: str, function: str) -> CodeType:
    """The code, ready to run. Raises Fault if it can't be read, or does not define the function."""
    if len(code.encode("utf-8", "replace")) > MOST_SOURCE:
        raise Fault(FailureKind.SYNTAX, "The code is longer than 64 KiB; a puzzle needs some twenty lines.")
    try:
        tree = ast.parse(code, FILE)
        found = any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)
        other = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
        assigned = any(
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == function
            for node in ast.walk(tree)
        )
        if not found and not assigned:
            named = f" Here it is called {other.name}." if other is not None else ""
            line = other.lineno if other is not None else None
            raise Fault(FailureKind.NO_FUNCTION, f"The code defines no function {function}.{named}", line)
        for node in ast.walk(tree):
            inside = next(filter(_leads_inside, (getattr(node, "attr", ""), *getattr(node, "kwd_attrs", ()))), None)
            if inside is not None:
                line = getattr(node, "lineno", None)
                raise Fault(FailureKind.FORBIDDEN_OP, f"Line {line} uses {inside}: {_INSIDE}.", line)
        return compile(ast.fix_missing_locations(_Mark().visit(tree)), FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise Fault(FailureKind.SYNTAX, f"Python can't read line {error.lineno}: {error.msg}.", error.lineno) from None
    except (RecursionError, MemoryError):
        raise Fault(FailureKind.SYNTAX, "Python can't read the code: it is nested too deep.") from None
    except ValueError as error:
        raise Fault(FailureKind.SYNTAX, f"Python can't read the code: {error}.") from None


_INSIDE = "what leads into Python's inside is not for a puzzle, which needs send, recv and arithmetic only"


def _leads_inside(name: str) -> bool:
    """Whether an attribute leads from a function or an error to its surroundings, and so to the judge."""
    if name.startswith("__") and name.endswith("__"):
        return name not in _METHODS
    return name.startswith(_FRAMES) and name.partition("_")[2] in _FRAME_PARTS


class Missing(CourseError, ImportError):
    """A module that is not there."""


def _importing(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
    top = name.partition(".")[0]
    if top in ("torch", "numpy", "allranks"):
        raise Missing(f"there is no {top} here: its names stand alone, such as send, recv and empty_like", name=top)
    if level or top not in MODULES:
        raise Missing(f"there is no module {name or '.'} here; a puzzle needs none", name=top)
    if top == "time":
        return _clock()
    return _alone(builtins.__import__(name, globals, locals, fromlist, level))


@cache
def _alone(module: ModuleType) -> ModuleType:
    """A module's own names, without the modules that it imports: several lead to files, and to the judge."""
    made = ModuleType(module.__name__)
    for name, value in vars(module).items():
        if isinstance(value, ModuleType):
            if value.__name__.startswith(f"{module.__name__}."):
                setattr(made, name, _alone(value))
        elif not name.startswith("_") and name not in _LEADS_OUT:
            setattr(made, name, value)
    if hasattr(module, "__all__"):
        vars(made)["__all__"] = [name for name in module.__all__ if hasattr(made, name)]
    return made


def _clock() -> ModuleType:
    """A time that stands still: a program that is run again must do the same again."""
    made = ModuleType("time")
    vars(made).update({name: lambda *_: 0.0 for name in ("time", "monotonic", "perf_counter", "process_time")})
    vars(made).update(sleep=lambda _: None, time_ns=lambda: 0, monotonic_ns=lambda: 0, perf_counter_ns=lambda: 0)
    return made


def _refusing(name: str, why: str) -> Callable:
    def call(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"{name}() does not work here: {why}")

    return call


def _by_name(function: Callable) -> Callable:
    """getattr and the like, for the names that may also stand behind a dot."""

    def call(thing: Any, name: str, *more: Any) -> Any:
        if _leads_inside(name):
            raise AttributeError(f"{name}: {_INSIDE}")
        return function(thing, name, *more)

    return call


_OWN = {  # Python's own names, without files and without a keyboard; made once, since a rank is run again at each wait
    **{name: value for name, value in vars(builtins).items() if not name.startswith("__")},
    "__import__": _importing,
    "__build_class__": builtins.__build_class__,
    **{name: _by_name(getattr(builtins, name)) for name in ("getattr", "setattr", "hasattr", "delattr")},
    **{name: _refusing(name, "name the variables that you mean") for name in ("globals", "locals", "vars")},
    "open": _refusing("open", "there are no files"),
    **{name: _refusing(name, "nobody answers") for name in ("input", "breakpoint", "help")},
    **{name: _refusing(name, "write the code out") for name in ("eval", "exec", "compile")},  # they might never end
}


def names(given: dict[str, Any], line: Callable[[int], bool], printing: Callable[..., None]) -> dict[str, Any]:
    """The names that the code finds: Python's own, in a dictionary that the code may change, and `given`."""
    return {"__builtins__": _OWN | {"print": printing}, "__name__": "puzzle", _LINE: line, **given}


def draw_the_same() -> None:
    """Puts the random numbers where each run begins with them."""
    random.seed(0)
