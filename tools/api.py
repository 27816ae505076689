"""Writes docs/api.md, the page of every public name, from the docstrings: `make api`. `--check` compares instead of writing.

Public is what `allranks.__all__` names, and what the `__all__` of each module among these names. A class or function is
described by its docstring, a constant by the comment above it. In a docstring an indented block is code; `Example:` stands
before one that runs by itself, `Example (needs ranks):` before one that uses `world`, `torch` and `dist` or starts ranks.
tests/house/test_api.py runs both.
"""

from __future__ import annotations

import argparse
import ast
import enum
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import allranks

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
NEEDS_RANKS = "Example (needs ranks):"
WIDTH = 100  # of a signature; a longer one gets a line for each argument
# what `from allranks import ...` gives, by what it is for; the modules follow
SECTIONS = (
    ("Live ranks", ("World", "RankStatus", "SharedMemory", "OneSided")),
    ("Exercises", ("check", "as_student", "Verdict", "VariantError", "join_board", "leave_board", "BoardError")),
    ("Schedules, machines and runs", ("Schedule", "Topology", "Trace", "Event", "Message", "Player")),
    ("Simulated and real runs of a schedule", ("simulate", "Simulation", "run_schedule", "execute", "Executor")),
    ("What a run waits for", ("CriticalPath", "Leg", "WhatIf")),
    (
        "Questions and tables for notebooks",
        ("predict", "predictions", "done", "Prediction", "Quiz", "Question", "Drill", "SITUATIONS", "CheatSheet"),
    ),
    (
        "The price of a training step",
        ("plan", "Plan", "Model", "MODELS", "training_step", "TrainingStep", "ranked_plans", "my_model", "MyModel"),
    ),
    (
        "Errors",
        (
            *("CourseError", "WorldError", "RanksError", "RanksStuck", "RankDied", "DeviceError", "ExerciseError"),
            *(
                "NcclRuleError",
                "MemoryFault",
                "SimulateError",
                "TraceError",
                "PlayerError",
                "DrillError",
                "PredictionError",
            ),
        ),
    ),
)
HEAD = """# Every public name

`make api` writes this page from the docstrings; edit those. What is not on this page is private: it may change without notice.

Import every name from `allranks` itself: `from allranks import World, check, cost`. Use the names of a module through the
module: `cost.price(...)`. In the examples, the names of this page are imported already. Where an example needs ranks, these lines ran first:

```python
import torch
import torch.distributed as dist

world = World(ranks=4)
```

Sizes are in bytes (`nbytes`) and times in seconds unless a name ends in another unit; 1 GB/s is 10^9 bytes a second. All errors of
the course derive from `CourseError`; a notebook shows them as one line.
"""


class ApiError(Exception):
    """The page can't be written; the message says what to fix."""


class _Text:
    """An annotation that is printed as it was written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Entry:
    """One public name: `address` is what follows `allranks.`, `module` the module whose `__all__` lists it."""

    address: str
    value: Any
    module: ModuleType

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.address.rpartition(".")[2]

    @property
    def kind(self) -> str:
        """ "class", "function" or "constant"."""
        if inspect.isclass(self.value):
            return "class"
        return "function" if inspect.isroutine(self.value) else "constant"

    @property
    def heading(self) -> str:
        """The heading, without its marks; unlike names are told apart by their kind, whatever their capitals."""
        return f"{self.address} ({self.kind})"

    @property
    def anchor(self) -> str:
        """The heading's anchor, by the rule of GitHub and of MyST."""
        return "".join(c for c in self.heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")

    @cached_property
    def doc(self) -> str:
        """The docstring, or the comment above a constant; "" where there is none."""
        if self.kind == "constant":
            return comment_above(self.module, self.name)
        own = self.value.__doc__ if self.kind == "function" else vars(self.value).get("__doc__")
        return inspect.cleandoc(own or "")

    @property
    def members(self) -> dict[str, Any]:
        """The public methods and properties that a class defines itself, by name."""
        if self.kind != "class" or issubclass(self.value, enum.Enum):
            return {}
        shown = {n: v for n, v in vars(self.value).items() if not n.startswith("_") or n == "__getitem__"}
        kinds = (property, cached_property, classmethod, staticmethod)
        methods = {n: v for n, v in shown.items() if inspect.isfunction(v) or isinstance(v, kinds)}
        # not those that a base class of another library writes into its subclasses, as matplotlib's Figure does
        return {n: v for n, v in methods.items() if function_of(v).__module__.split(".")[0] == "allranks"}

    def docs(self) -> Iterator[tuple[str, str]]:
        """(address, docstring) of the name and of its members."""
        yield self.address, self.doc
        for name, member in self.members.items():
            yield f"{self.address}.{name}", inspect.cleandoc(function_of(member).__doc__ or "")

    def runs_without_ranks(self) -> bool:
        """Whether no example of it needs ranks."""
        return not any(NEEDS_RANKS in doc for _, doc in self.docs())


def function_of(member: Any) -> Callable:
    """The function behind a method or a property."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    return getattr(member, "__func__", member)


def entries() -> list[Entry]:
    """Every public name once, in the order of the page. Raises ApiError where SECTIONS does not fit `allranks.__all__`."""
    listed = [name for _, names in SECTIONS for name in names]
    modules = list(allranks._MODULES)
    if wrong := set(allranks.__all__) ^ {*listed, *modules}:
        raise ApiError(
            f"{', '.join(sorted(wrong))}: SECTIONS of tools/api.py must list each name of allranks.__all__ once."
        )
    found = [Entry(name, getattr(allranks, name), importlib.import_module(allranks._FROM[name])) for name in listed]
    taken = {id(entry.value) for entry in found if entry.kind != "constant"}
    for module_name in modules:
        module = getattr(allranks, module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if id(value) not in taken:
                found.append(Entry(f"{module_name}.{name}", value, module))
    return found


def comment_above(module: ModuleType, name: str) -> str:
    """The comment directly above the assignment of `name`, which `module` makes or imports; "" where there is none."""
    path = Path(inspect.getfile(module))
    text = path.read_text(encoding="utf-8")
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


def signature(function: Callable, name: str, skip_first: bool = False) -> str:
    """The call as it is written in the source, with one argument a line where it is long; the name alone without a signature."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return name
    parameters = list(found.parameters.values())[skip_first:]
    plain = []
    for parameter in parameters:
        if isinstance(parameter.annotation, str):
            parameter = parameter.replace(annotation=_Text(parameter.annotation))
        if inspect.isroutine(parameter.default):  # by name: its repr has an address, which differs in each process
            parameter = parameter.replace(default=_Text(parameter.default.__name__))
        plain.append(parameter)
    result = found.return_annotation
    back = f" -> {result}" if isinstance(result, str) and result != "None" else ""
    call = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    if len(name + call + back) <= WIDTH:
        return name + call + back
    # the signature again, cut where one argument ends: never within a bracket
    parts, depth = [""], 0
    for character in call[1:-1]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return "\n".join([f"{name}(", *(f"    {part.strip()}," for part in parts), f"){back}"])


def call_of(entry: Entry) -> str:
    """How a class is made or a function is called; the type of a constant."""
    if entry.kind == "constant":
        return constant(entry.address, entry.value)
    if entry.kind == "function":
        return signature(entry.value, entry.address)
    if issubclass(entry.value, enum.Enum):
        return f"class {entry.address}: {', '.join(entry.value.__members__)}"
    if issubclass(entry.value, BaseException):
        base = next(base for base in entry.value.__mro__[1:] if not base.__name__.startswith("_"))
        return f"class {entry.address}({base.__name__})"
    # the nearest class that says how it is made: `inspect` prefers a library's `__new__(*args)` in some versions of Python
    maker = next((base for base in entry.value.__mro__ if "__init__" in vars(base)), None)
    if maker and maker.__module__.split(".")[0] == "allranks" and not is_dataclass(entry.value):
        return signature(maker.__init__, entry.address, skip_first=True)
    return signature(entry.value, entry.address)


def constant(address: str, value: Any) -> str:
    """A constant with its value; of a long one its type, and the keys of a dict."""
    if isinstance(value, dict):
        return textwrap.fill(f"{address}: a dict with the keys {', '.join(map(repr, value))}", WIDTH)
    text = f"{address} = {value!r}"
    return text if len(text) <= 4 * WIDTH else f"{address}: {type(value).__name__}, {len(value)} entries"


def markdown(doc: str) -> str:
    """A docstring as Markdown: each indented block, and each example with its output, becomes a block of code."""
    blocks: list[tuple[bool, list[str]]] = []
    example = False
    for line in doc.splitlines():
        example = bool(line) and (example or line.startswith(">>>"))
        code = line.startswith("    ") or example or (not line and bool(blocks) and blocks[-1][0])
        if not blocks or blocks[-1][0] != code:
            blocks.append((code, []))
        blocks[-1][1].append(line)
    found = []
    for code, lines in blocks:
        text = textwrap.dedent("\n".join(lines)).strip("\n")
        if code:
            language = "pycon" if ">>>" in text else "python"
            text = f"\n```{language}\n{text}\n```\n"
        found.append(text)
    return "\n".join(found).strip("\n")


def shown(entry: Entry) -> str:
    """The part of the page about one name."""
    lines = [f"### {entry.heading}", "", "```python", call_of(entry), "```", "", markdown(entry.doc)]
    for name, member in entry.members.items():
        function = function_of(member)
        doc = inspect.cleandoc(function.__doc__ or "")
        if not doc:
            continue
        is_method = inspect.isfunction(member) or isinstance(member, classmethod)
        call = signature(function, f".{name}", skip_first=True) if is_method else f".{name}"
        if isinstance(member, staticmethod):
            call = signature(function, f".{name}")
        elif not is_method:
            result = inspect.signature(function).return_annotation
            call += f": {result}" if isinstance(result, str) else ""
        call = " ".join(line.strip() for line in call.splitlines()).replace("( ", "(").replace(",)", ")")
        lines += ["", f"**`{call}`**", "", markdown(doc)]
    return "\n".join(lines)


def page() -> str:
    """The whole page. Raises ApiError."""
    found = entries()
    by_address = {entry.address: entry for entry in found}
    known = {id(entry.value): entry for entry in reversed(found) if entry.kind != "constant"}
    parts = [(title, "", [by_address[name] for name in names]) for title, names in SECTIONS]
    for module_name in allranks._MODULES:
        module = getattr(allranks, module_name)
        own = [by_address[a] for name in module.__all__ if (a := f"{module_name}.{name}") in by_address]
        again = [name for name in module.__all__ if f"{module_name}.{name}" not in by_address]
        links = ", ".join(f"[{name}](#{known[id(getattr(module, name))].anchor})" for name in again)
        about = markdown((module.__doc__ or "").split("\n\n")[0]) + (f"\n\nAlso here: {links}." if links else "")
        parts.append((f"Module {module_name}", about, own))
    contents = [f"- {title}: {', '.join(f'[{e.name}](#{e.anchor})' for e in own)}" for title, _, own in parts]
    lines = [HEAD, *contents]
    for title, about, own in parts:
        lines += ["", f"## {title}", "", *([about, ""] if about else []), "\n\n".join(map(shown, own))]
    return "\n".join(lines).rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is not fresh")
    options = parser.parse_args(arguments)
    try:
        text = page()
    except ApiError as error:
        print(error, file=sys.stderr)
        return 2
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print(
            f"{PAGE.relative_to(ROOT)} is not what the docstrings say. Run `make api` and commit it.", file=sys.stderr
        )
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
