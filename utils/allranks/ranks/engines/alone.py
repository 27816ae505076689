"""What of this package a rank may import while it runs an answer: only what carries messages, not what knows answers.

A schedule of the course, or one of its exercises, would otherwise do the student's work, in the check though not in the marking.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, FrameType, MappingProxyType, ModuleType
from typing import Any, NoReturn

from allranks.base.errors import CourseError

PACKAGE = __name__.partition(".")[0]
# what runs in a rank beside the answer
SHOWN = ("base.errors", "base.notebook", "ranks.engines", "ranks.memory", "ranks.wire", "judge.in_rank")
_BY_PATH = ("wire",)  # the public name of one of them
_RULES = "ranks.nccl_rules"  # imported by a rank under NCCL's rules
# what finds the objects of a process, those of the judge too if it was forked from the judge
_SEARCHES = {
    "gc.get_objects": "gc.get_objects()",
    "gc.get_referrers": "gc.get_referrers()",
    "gc.get_referents": "gc.get_referents()",
    "sys._current_frames": "sys._current_frames()",
    "sys._current_exceptions": "sys._current_exceptions()",
}
_MAYBE_UNKNOWN = (dict, tuple)  # the collector knows all that is of a subclass
_FOLDER = os.path.realpath(os.path.join(__file__, "..", "..", ".."))


class SearchError(CourseError, PermissionError):
    """An answer looks for objects that nobody gave it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} can't be called when an answer is checked: it would find what belongs to the judge and to the other ranks"
        )


class _Refusing(MetaPathFinder):
    """Finds none of the course's modules that an answer may not have."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if _is_hidden(name):
            raise ModuleNotFoundError(f"the course's own {name} is not there when an answer is checked", name=name)


def _is_hidden(name: str) -> bool:
    package, _, inner = name.partition(".")
    if package != PACKAGE or not inner:
        return False
    # the packages on the way to one that is shown are there too
    return not any(
        f"{inner}.".startswith(f"{s}.") or f"{s}.".startswith(f"{inner}.") for s in (*SHOWN, *_BY_PATH, _RULES)
    )


_hidden: set[str] = set()  # the modules of this package that an answer may not have
_looked_at: tuple[int, str] | None = None  # how many modules there were at the last look, and the last of them


def remember_modules() -> None:
    """Looks for the modules that an answer may not have, by their files and among those that are imported: for a process that forks
    ranks.

    To go through `sys.modules` writes to the references of 2,000 names, and a fork must copy their memory.
    """
    global _looked_at
    if not _hidden:
        files = (os.path.join(folder, file) for folder, _, names in os.walk(_FOLDER) for file in names)
        _hidden.update(filter(_is_hidden, filter(None, map(_module_in, (f for f in files if f.endswith(".py"))))))
    now = len(sys.modules), next(reversed(sys.modules))
    if now != _looked_at:
        _hidden.update(filter(_is_hidden, list(sys.modules)))
        _looked_at = now


@contextlib.contextmanager
def without_the_course() -> Iterator[None]:
    """Hides the modules, those that this process has imported too. The code that they share with a rank's own goes on."""
    hidden = {name: sys.modules.pop(name) for name in _hidden if name in sys.modules}
    # each is also an attribute of the package that it is in
    attributes = []
    for name in hidden:
        package, _, inner = name.rpartition(".")
        within = vars(sys.modules[package]) if package in sys.modules else {}
        if inner in within:
            attributes.append((within, inner, within.pop(inner)))
    refuse_imports()
    try:
        yield
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder) is not _Refusing]
        sys.modules |= hidden
        for within, inner, module in attributes:
            within[inner] = module


def refuse_imports() -> None:
    """Puts what refuses the course's modules before all else that finds modules, where an answer has taken it away or got before it."""
    if not sys.meta_path or type(sys.meta_path[0]) is not _Refusing:
        sys.meta_path[:] = [_Refusing(), *(finder for finder in sys.meta_path if type(finder) is not _Refusing)]


def objects_made_here(held: bool = False) -> list[Any]:
    """The objects that this process has made since it was forked and that the collector knows: those before are frozen.

    With `held` what these hold, too, and the variables of the answer's functions that run: the collector does not know arrays, bytes and
    numbers by themselves, nor dicts and tuples of such things.
    """
    found = gc.get_objects()
    if not held:
        return found
    inside = gc.get_referents(*found, *_frames_of_others())
    everything, unknown = [*found, *inside], _of_unknown(inside)
    seen: set[int] = set()
    while unknown:
        seen.update(map(id, unknown))
        inside = gc.get_referents(*unknown)
        everything += inside
        unknown = [thing for thing in _of_unknown(inside) if id(thing) not in seen]
    return everything


def _of_unknown(things: Sequence[Any]) -> list[Any]:
    """Those that hold others, and that the collector does not know."""
    return [thing for thing in things if type(thing) in _MAYBE_UNKNOWN and not gc.is_tracked(thing)]


def _frames_of_others() -> list[Any]:
    """The functions that run in this thread and are not of this package."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in (PACKAGE, "torch", "threading"):
            found.append(frame)
        frame = frame.f_back
    return found


# names of events of sys.audit, each with what to call with the name and the event's arguments
Events = tuple[tuple[str, Callable[[str, tuple[Any, ...]], None]], ...]


def watch(events: Events) -> None:
    """From now on each of these events calls what stands beside it, for good.

    One hook for all, and a short one: Python tells every hook of every look at a frame, and with each message ranks look at twenty.
    """
    # nobody else holds it, and nobody can change it
    calls = MappingProxyType({event: tuple(call for name, call in events if name == event) for event, _ in events})

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in calls:
            for call in calls[event]:
                call(event, args)

    sys.addaudithook(hook)


@functools.cache  # once a process: such a hook stays
def refuse_searches(others: Callable[[], Events] = tuple) -> None:
    """From now on nothing in this process finds objects that it was not given, nor reads the files of modules that are hidden.

    `others` gives more events to watch.
    """
    watch((*others(), *_refused(objects_made_here.__code__)))
    gc.unfreeze = functools.partial(_refuse, "gc.unfreeze()")


def _refuse(what: str) -> NoReturn:
    raise SearchError(what)


def _refused(ours: CodeType) -> Events:
    """The events that are refused. `ours` is the function that may search all the same."""
    searches, real, frame_at = MappingProxyType(dict(_SEARCHES)), os.path.realpath, sys._getframe

    def search(event: str, args: tuple[Any, ...]) -> None:
        if frame_at(2).f_code is not ours:  # below this one and the hook
            raise SearchError(searches[event])

    def read(event: str, args: tuple[Any, ...]) -> None:
        if not isinstance(args[0], int):
            name = _module_in(real(os.fsdecode(args[0])))
            if name is not None and _is_hidden(name):
                raise PermissionError(f"the course's own {name} is not there when an answer is checked")

    return (*((event, search) for event in searches), ("open", read))


def _module_in(path: str) -> str | None:
    """The module that a file of this package has, also compiled; None for other files."""
    if not path.startswith(_FOLDER + os.sep):
        return None
    parts = [part for part in path[len(_FOLDER) + 1 :].split(os.sep) if part != "__pycache__"]
    parts[-1] = parts[-1].partition(".")[0]
    return ".".join([PACKAGE, *(part for part in parts if part != "__init__")])
