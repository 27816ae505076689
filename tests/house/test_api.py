"""docs/api.md is what the docstrings say; every public name is described there, and every example on it runs."""

import doctest
import importlib.util
import inspect
import sys
from enum import Enum
from pathlib import Path

import allranks
import pytest
from allranks import World

pytestmark = pytest.mark.core
ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("allranks_api", ROOT / "tools" / "api.py")
api = sys.modules["allranks_api"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(api)

ENTRIES = api.entries()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def named(entries: list) -> list:
    return [pytest.param(entry, id=entry.address) for entry in entries]


def called(entries: list) -> list:
    """Those that somebody calls: errors are caught, constants and enumerations are read."""
    return [
        e
        for e in entries
        if not (e.kind == "constant" or (e.kind == "class" and issubclass(e.value, (Exception, Enum))))
    ]


def examples(doc: str, address: str, names: dict) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(doc, names, address, None, 0)


def failures(entry, with_ranks: bool, names: dict) -> str:
    """What doctest reports of the entry's examples that need ranks, or of the others; "" where all are right."""
    report, runner = [], doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    for address, doc in entry.docs():
        if (api.NEEDS_RANKS in doc) == with_ranks:
            runner.run(examples(doc, address, dict(names)), out=report.append)
    return "".join(report)


def public_names() -> dict:
    return {name: getattr(allranks, name) for name in allranks.__all__}


def test_the_page_is_what_the_docstrings_say():
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "run `make api` and commit docs/api.md"


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
    entries = [entry for entry in ENTRIES if not entry.runs_without_ranks()]
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

    entry = api.Entry("wrong", wrong, inspect.getmodule(wrong))
    assert "Expected:\n    3\nGot:\n    2" in failures(entry, False, {})
    wrong.__doc__ = None
    assert list(api.Entry("wrong", wrong, inspect.getmodule(wrong)).docs()) == [("wrong", "")]


def test_every_name_of_the_front_door_has_a_section(monkeypatch):
    monkeypatch.setattr(allranks, "__all__", [*allranks.__all__, "newcomer"])
    with pytest.raises(api.ApiError, match="newcomer"):
        api.entries()
