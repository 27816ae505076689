"""What in an answer no exercise asks for: reasons for a teacher to look, never for a grade.

The sandbox and the judge see to it that nothing of this gains a point. It is named all the same, since who tries to read
the gradebook has told their teacher something.
"""

from __future__ import annotations

import ast

from allranks.exercises.checking.source import Source

EXPECTED = frozenset(
    "__future__ torch math cmath typing collections itertools functools operator dataclasses enum numbers numpy bisect "
    "heapq statistics random time warnings copy abc".split()
)
REACHING = frozenset("open exec eval compile __import__ globals vars breakpoint input exit quit get_ipython".split())
MAX_TOLD = 12


def oddities(source: Source) -> list[str]:
    """One phrase for each use of a module, a function or a name that no exercise needs, with the student's line."""
    found: dict[str, None] = {}
    try:
        tree = ast.parse(source.text)
        modules = {alias.asname or alias.name.split(".")[0] for n in ast.walk(tree) for alias in _aliases(n)}
        for node in ast.walk(tree):
            for words in _words(node, modules):
                found.setdefault(f"{words} ({source.where(getattr(node, 'lineno', None))})")
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        found.setdefault("is nested too deeply to be looked through")
    told = list(found)
    return told if len(told) <= MAX_TOLD else [*told[:MAX_TOLD], f"and {len(told) - MAX_TOLD} more of the kind"]


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


def _words(node: ast.AST, modules: set[str]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [f"imports {a.name}" for a in names if a.name.split(".")[0] not in EXPECTED]
        case ast.ImportFrom(module=module) if module and module.split(".")[0] not in EXPECTED:
            return [f"imports {module}"]
        case ast.Name(id=name, ctx=ast.Load()) if name in REACHING:
            return [f"uses {name}"]
        case ast.Attribute(attr=name, ctx=ast.Load()) if name.startswith("__") and name != "__name__":
            return [f"uses {name}"]
        case ast.Attribute(ctx=ast.Store()) if _root(node) in modules:
            return [f"replaces {ast.unparse(node)}"]
        case ast.Call(func=ast.Name(id="setattr" | "delattr" as name)):
            return [f"uses {name}"]
    return []


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
