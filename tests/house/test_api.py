"""Every public name has a docstring and an example, every example runs, and docs/api.md lists each name.

Public is what `allranks.__all__` names, and what the `__all__` of each module among these names. A class or function is
described by its docstring, a constant by the comment above it. `Example:` stands before an example that runs by itself,
`Example (needs ranks):` before one that uses `world`, `torch` and `dist` or starts ranks.
"""

import doctest
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import allranks
import pytest
from allranks import World

pytestmark = pytest.mark.core
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "sphinx"))
from public_names import comment_above  # noqa: E402

NEEDS_RANKS = "Example (needs ranks):"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@dataclass(frozen=True)
class Entry:
    """One public name: `address` is what follows `allranks.`, `module` the module whose `__all__` lists it."""

    address: str
    value: Any
    module: ModuleType

    @property
    def kind(self) -> str:
        """ "class", "function" or "constant"."""
        if inspect.isclass(self.value):
            return "class"
        return "function" if inspect.isroutine(self.value) else "constant"

    @cached_property
    def doc(self) -> str:
        """The docstring, or the comment above a constant; "" where there is none."""
        if self.kind == "constant":
            return comment_above(self.module, self.address.rpartition(".")[2])
        own = self.value.__doc__ if self.kind == "function" else vars(self.value).get("__doc__")
        return inspect.cleandoc(own or "")

    def docs(self) -> Iterator[tuple[str, str]]:
        """(address, docstring) of the name, and of the public methods and properties that a class defines itself."""
        yield self.address, self.doc
        if self.kind != "class" or issubclass(self.value, enum.Enum):
            return
        kinds = (property, cached_property, classmethod, staticmethod)
        for name, member in vars(self.value).items():
            shown = not name.startswith("_") or name == "__getitem__"
            if not shown or not (inspect.isfunction(member) or isinstance(member, kinds)):
                continue
            # not what a base class of another library writes into its subclasses, as matplotlib's Figure does
            function = function_of(member)
            if function.__module__.split(".")[0] == "allranks":
                yield f"{self.address}.{name}", inspect.cleandoc(function.__doc__ or "")


def function_of(member: Any) -> Callable:
    """The function behind a method or a property."""
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, cached_property) else getattr(member, "__func__", member)


def entries() -> list[Entry]:
    """Every public name once."""
    names = [name for name in allranks.__all__ if name not in allranks._MODULES]
    found = [Entry(name, getattr(allranks, name), importlib.import_module(allranks._FROM[name])) for name in names]
    taken = {id(entry.value) for entry in found if entry.kind != "constant"}
    for module_name in allranks._MODULES:
        module = getattr(allranks, module_name)
        values = [(name, getattr(module, name)) for name in module.__all__]
        found += [Entry(f"{module_name}.{name}", value, module) for name, value in values if id(value) not in taken]
    return found


ENTRIES = entries()


def named(entries: list) -> list:
    return [pytest.param(entry, id=entry.address) for entry in entries]


def called(entries: list) -> list:
    """Those that somebody calls: errors are caught, constants and enumerations are read."""
    return [
        e
        for e in entries
        if not (e.kind == "constant" or (e.kind == "class" and issubclass(e.value, (Exception, enum.Enum))))
    ]


def examples(doc: str, address: str, names: dict) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(doc, names, address, None, 0)


def failures(entry, with_ranks: bool, names: dict) -> str:
    """What doctest reports of the entry's examples that need ranks, or of the others; "" where all are right."""
    report, runner = [], doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    for address, doc in entry.docs():
        if (NEEDS_RANKS in doc) == with_ranks:
            runner.run(examples(doc, address, dict(names)), out=report.append)
    return "".join(report)


def public_names() -> dict:
    return {name: getattr(allranks, name) for name in allranks.__all__}


def test_the_page_lists_every_name_once():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   (\w+)$", page, flags=re.M)
    assert sorted(listed) == sorted(allranks.__all__)


@pytest.mark.parametrize("entry", named(ENTRIES))
def test_a_public_name_is_described_by_a_sentence(entry):
    for address, doc in entry.docs():
        first = doc.split("\n\n")[0]
        assert first if entry.kind == "constant" else first.endswith((".", ":")), f"{address}: {first!r}"


@pytest.mark.parametrize("entry", named(called(ENTRIES)))
def test_a_public_name_has_an_example(entry):
    assert any(examples(doc, address, {}).examples for address, doc in entry.docs())


@pytest.mark.parametrize("entry", named([entry for entry in ENTRIES if any(">>>" in doc for _, doc in entry.docs())]))
def test_an_example_runs(entry):
    assert not failures(entry, False, public_names())


@pytest.mark.live
def test_the_examples_that_need_ranks_run_in_one_world():
    """Each gets the names that the head of the page promises."""
    import torch
    import torch.distributed as dist

    names = public_names() | {"torch": torch, "dist": dist}
    entries = [entry for entry in ENTRIES if any(NEEDS_RANKS in doc for _, doc in entry.docs())]
    assert len(entries) > 10
    try:
        # World gives the running world; only the doctor's example ends it
        reports = [failures(entry, True, names | {"world": World(ranks=4, backend="gloo")}) for entry in entries]
    finally:
        World(ranks=4, backend="gloo").stop()
    assert not any(reports), "\n".join(reports)


def test_a_wrong_example_and_a_missing_docstring_are_found():
    def wrong():
        """One.

        Example:
            >>> 1 + 1
            3
        """

    entry = Entry("wrong", wrong, inspect.getmodule(wrong))
    assert "Expected:\n    3\nGot:\n    2" in failures(entry, False, {})
    wrong.__doc__ = None
    assert list(Entry("wrong", wrong, inspect.getmodule(wrong)).docs()) == [("wrong", "")]
