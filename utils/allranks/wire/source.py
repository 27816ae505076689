"""The student's functions: which file they are from, how they travel, and what their lines say."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable

import cloudpickle

from allranks.wire.messages import Program
from allranks.wire.record import TextOf


def functions(fn) -> list[Callable]:
    """The functions in a callable: itself, or those that a partial binds, the student's before the one that drives it."""
    if isinstance(fn, functools.partial):
        bound = [f for value in (*fn.args, *fn.keywords.values()) if callable(value) for f in functions(value)]
        return [*bound, *functions(fn.func)]
    return [fn]


def filename_of(fn: Callable) -> str:
    for function in functions(fn):
        if hasattr(function, "__code__"):
            return function.__code__.co_filename
    return "<program>"


@contextlib.contextmanager
def by_value(fn):
    """Has functions of the caller's own modules pickled whole: a rank may not be able to import them, or has them older."""
    paths = sysconfig.get_paths()
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    importable = (paths["stdlib"], paths["purelib"], paths["platlib"], ours)
    registered = []
    for function in functions(fn):
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        path = os.path.abspath(getattr(module, "__file__", None) or "")
        known = ("__main__", *cloudpickle.list_registry_pickle_by_value())
        if module is not None and module.__name__ not in known and not path.startswith(importable):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def texts(fn, filename: str) -> TextOf:
    """Looks up a line of the student's. Reads no file but the function's own: the file names come from the ranks."""
    if isinstance(fn, Program):
        lines = fn.source.splitlines()
    else:
        lines = [line.rstrip("\n") for line in linecache.getlines(filename)]

    def text_of(file: str | None, line: int | None) -> str | None:
        if file is None or line is None:
            return None
        if file == filename:
            return lines[line - 1].strip() if 0 < line <= len(lines) else None
        known = linecache.cache.get(file)
        if known is None or len(known) < 3 or not 0 < line <= len(known[2]):
            return None
        return known[2][line - 1].strip()

    return text_of
