"""A part of Sphinx for the pages of docs/api.md: what autodoc leaves out of our docstrings, or takes from others'."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import allranks


def comment_above(module: ModuleType, name: str) -> str:
    """The comment directly above the assignment of `name`, which `module` makes or imports; "" where there is none."""
    text = Path(inspect.getfile(module)).read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            first = last = node.lineno - 1
            while first and lines[first - 1].startswith("# "):
                first -= 1
            return " ".join(line[2:] for line in lines[first:last])
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names] and node.module:
            return comment_above(importlib.import_module(node.module), name)
    return ""


def constants() -> dict[str, list[str]]:
    """The names in each public module's `__all__` that are no class and no function; autodoc leaves them out."""
    values = {f"allranks.{name}": getattr(allranks, name) for name in allranks._MODULES}
    return {
        address: [n for n in module.__all__ if not callable(getattr(module, n))] for address, module in values.items()
    }


def describe(app: Any, what: str, address: str, value: Any, options: Any, lines: list[str]) -> None:
    """Describes a constant by the comment above it, with its keys or, where it is short, its value.

    In all others an indented paragraph that is no example becomes a block of code, as the course's docstrings mean it.
    """
    if what != "data":
        for place in reversed(range(1, len(lines))):
            if not lines[place - 1] and lines[place].startswith("    ") and not lines[place].lstrip().startswith(">>>"):
                lines[place:place] = ["::", ""]
        return
    place, _, name = address.rpartition(".")
    where = allranks._FROM[name] if place == "allranks" else place
    lines[:] = [comment_above(importlib.import_module(where), name), ""]
    if isinstance(value, dict):
        lines.append(f"Its keys: {', '.join(f'``{key!r}``' for key in value)}.")
    elif len(text := repr(value)) < 400:
        lines.append(f"Its value: ``{text}``.")


def left_out(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Keeps the members of an enumeration, which have no docstring; leaves out what has a page of its own, and what a
    base class of another library writes into its subclasses, as matplotlib's Figure does.
    """
    if what == "module":
        return True if getattr(allranks, name, None) is value else None
    if isinstance(value, enum.Enum):
        return False
    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
    home = getattr(function, "__module__", None)
    return True if home and home.split(".")[0] != "allranks" else None


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.config.autosummary_context["constants"] = constants()
    app.connect("autodoc-process-docstring", describe)
    app.connect("autodoc-skip-member", left_out)
    return {"parallel_read_safe": True}
