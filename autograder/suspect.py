"""Finds code in an answer that no exercise needs. It is a reason for a teacher to look, and never changes a grade.

Such code gains no points: the sandbox and the judge prevent that. It is reported because a teacher should know, for
example, that a student tried to read the gradebook.
"""

from __future__ import annotations

import ast

from allranks.judge.source import Source

EXPECTED = frozenset(
    "__future__ torch math cmath typing collections itertools functools operator dataclasses enum numbers numpy bisect "
    "heapq statistics random time warnings copy abc contextlib string re textwrap pprint json decimal fractions datetime "
    "logging traceback struct matplotlib pandas scipy IPython ipywidgets tqdm einops typing_extensions".split()
)
REACHING = frozenset("open exec eval compile __import__ globals vars breakpoint input exit quit get_ipython".split())
# Modules with access to the system or to Python itself. Other modules hold them under these names (torch.os). Some are left
# out, because their names have other meanings too: copy, random, types, code, operator, select, signal, queue, io.
OUTSIDE = frozenset(
    "os sys gc ctypes _ctypes posix socket subprocess multiprocessing importlib builtins inspect mmap fcntl resource threading "
    "_thread pathlib shutil tempfile glob pickle marshal faulthandler runpy pkgutil linecache sqlite3 asyncio pdb".split()
)
# names with _ that an honest program may need: those in torch's documentation and examples, and namedtuple's
HARMLESS = frozenset(
    "_utils _flatten_dense_tensors _unflatten_dense_tensors _functional_collectives _coalescing_manager _all_gather_base "
    "_reduce_scatter_base _assert _version _replace _asdict _fields _make _field_defaults".split()
)
_BY_NAME = frozenset({"attrgetter", "methodcaller"})  # functions of operator that take a name as text
MAX_TOLD = 12
MAX_CHARACTERS = 120


def oddities(source: Source) -> list[str]:
    """One phrase for each use of a module, a function or a name that no exercise needs, with the student's line."""
    found: dict[str, None] = {}
    try:
        tree = ast.parse(source.text)
        imports = [alias for node in ast.walk(tree) for alias in _aliases(node)]
        modules = {alias.asname or alias.name.split(".")[0] for alias in imports}
        anything = any(alias.name == "*" for alias in imports)
        for node in ast.walk(tree):
            for words in [*_words(node, modules), *_reached(node, anything)]:
                found.setdefault(_sentence(words, source.where(getattr(node, "lineno", None))))
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        found.setdefault("is nested too deeply to be examined")
    told = list(found)
    return told if len(told) <= MAX_TOLD else [*told[:MAX_TOLD], f"and {len(told) - MAX_TOLD} more of the kind"]


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


def _sentence(words: str, place: str) -> str:
    """The phrase with its place, cut to one line."""
    place = f" ({place})"
    room = max(0, MAX_CHARACTERS - len(place))
    return ((words if len(words) <= room else f"{words[: max(0, room - 4)]} ...") + place)[:MAX_CHARACTERS]


def _words(node: ast.AST, modules: set[str]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [f"imports {a.name}" for a in names if _strange(a.name)]
        case ast.ImportFrom(module=module) if module and _strange(module):
            return [f"imports {module}"]
        case ast.ImportFrom(module=module, names=names):
            return [
                f"imports {a.name} from {module}" for a in names if a.name in OUTSIDE | {"signal"} or _private(a.name)
            ]
        case ast.Attribute(ctx=ast.Store()) if _root(node) in modules:
            return [f"replaces {ast.unparse(node)}"]
        case ast.Call(func=ast.Name(id="setattr" | "delattr" as name)):
            return [f"uses {name}"]
        case ast.Call(func=ast.Name(id="getattr"), args=[_, asked, *_]) if not isinstance(asked, ast.Constant):
            return ["uses getattr with a name that it makes"]
    return []


def _reached(node: ast.AST, anything: bool) -> list[str]:
    """Phrases for names that give access beyond the answer.

    `anything`: there is a star import, which may bring any name.
    """
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            far = name in REACHING or (name.startswith("__") and name != "__name__") or (anything and name in OUTSIDE)
            return [f"uses {name}"] if far else []
        case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")), attr=name):
            names = [name] if name in OUTSIDE or (_private(name) and name.endswith("__") and name != "__init__") else []
        case ast.Attribute(attr=name):
            names = [name]
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            names = [name]
        case ast.MatchClass(kwd_attrs=names):
            pass
        case _:
            return []
    return [f"uses {name}" for name in names if name in OUTSIDE or name in _BY_NAME or _private(name)]


def _strange(module: str) -> bool:
    """Whether no exercise needs this import."""
    first, *rest = module.split(".")
    return first not in EXPECTED or any(part in OUTSIDE or _private(part) for part in rest)


def _private(name: str) -> bool:
    """Whether the name is internal to Python (except __name__) or to a library."""
    return (
        name.startswith("_")
        and name not in HARMLESS
        and not name.startswith("_foreach_")
        and name != "__name__"
        and name != "_"
    )


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
