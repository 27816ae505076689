"""Tells the user's code from that of libraries, and sends the user's functions to the ranks."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_HERE = str(Path(__file__).resolve().parents[2])
_ROOTS = {_HERE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
_LIBRARIES = ("<frozen ", *(root.rstrip(os.sep) + os.sep for root in _ROOTS))
# folders that only installers write into, wherever they are: of this environment, the system's, the user's, another one's
_INSTALLED = ("site-packages", "dist-packages")
# what runs between the user's code and the ranks; a build of torch can be imported from its source tree
_KNOWN = "torch torchgen functorch triton numpy IPython ipykernel ipyparallel cloudpickle traitlets tornado zmq".split()


_Cached = type(functools.lru_cache(int))


@functools.cache
def in_library(file: str) -> bool:
    """Whether a source file belongs to Python, an installed package or this course, and not to the user.

    A package is installed where an installer's folder holds it, or a `*.dist-info` beside it lists it (`pip install
    --target`). A user's package in a folder of PYTHONPATH, or installed with `pip install -e`, is the user's.
    """
    if file.startswith(_LIBRARIES):
        return True
    if not os.path.isabs(file):
        return False
    return not set(_INSTALLED).isdisjoint(file.split(os.sep)) or _is_known(file) or _is_listed(file)


def _is_known(file: str) -> bool:
    """Whether a file is of one of the packages that the course itself uses, where they were imported from."""
    roots = [root for name in _KNOWN for root in getattr(sys.modules.get(name), "__path__", ())]
    return file.startswith(tuple(str(root).rstrip(os.sep) + os.sep for root in roots))


def _is_listed(file: str) -> bool:
    """Whether an installed distribution in a folder of sys.path lists the file's package or module."""
    for entry in map(os.path.abspath, sys.path):
        folder = entry.rstrip(os.sep) + os.sep
        if file.startswith(folder):
            name = file[len(folder) :].split(os.sep)[0].removesuffix(".py")
            if name in _installed_in(entry):
                return True
    return False


@functools.cache
def _installed_in(folder: str) -> frozenset[str]:
    """The names of the modules and packages that the `*.dist-info` of a folder list."""
    names: set[str] = set()
    with contextlib.suppress(OSError):
        for about in os.listdir(folder):
            if about.endswith(".dist-info"):
                with (
                    contextlib.suppress(OSError),
                    open(os.path.join(folder, about, "RECORD"), encoding="utf-8") as record,
                ):
                    names |= {line.split(",")[0].split("/")[0].removesuffix(".py") for line in record}
    return frozenset(name for name in names if not name.startswith((".", "__")) and not name.endswith(".dist-info"))


def functions(fn: Any) -> list[Callable[..., Any]]:
    """The functions in a callable: itself or, for a partial, the callables among its arguments, then its function."""
    if isinstance(fn, functools.partial):
        bound = [f for value in (*fn.args, *fn.keywords.values()) if callable(value) for f in functions(value)]
        return [*bound, *functions(fn.func)]
    return [fn]


def _reduce_cached(cached: Any) -> Any:
    """How to pickle a user's function behind functools.cache: whole, with an empty cache. cloudpickle sends its name."""
    file = getattr(sys.modules.get(cached.__module__ or ""), "__file__", None)
    if cached.__module__ != "__main__" and file is not None and in_library(os.path.abspath(file)):
        return cached.__qualname__
    return _cached, (cached.__wrapped__, cached.cache_parameters())


def _cached(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    cached: Callable[..., Any] = functools.lru_cache(**options)(function)
    return cached


@contextlib.contextmanager
def by_value(fn: object) -> Iterator[None]:
    """Pickles functions of the user's modules whole: a rank may be unable to import them, or has an older version."""
    import cloudpickle

    reducers = cloudpickle.Pickler.dispatch_table  # of cloudpickle only; pickle itself does not change
    ours = _Cached not in reducers
    if ours:
        reducers[_Cached] = _reduce_cached
    registered = []
    for function in functions(fn):
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        known = ("__main__", *cloudpickle.list_registry_pickle_by_value())
        if (
            module is not None
            and file is not None
            and module.__name__ not in known
            and not in_library(os.path.abspath(file))
        ):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        if ours:
            reducers.pop(_Cached, None)
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def user_line() -> int | None:
    """The line of the user's code that led to this call; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and in_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_lineno if frame is not None else None
