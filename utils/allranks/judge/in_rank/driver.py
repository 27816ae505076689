"""Runs inside a rank: builds the arguments, calls the student's function, hands back the results.

A rank may hand back anything; the trusted process checks and compares it.
"""

from __future__ import annotations

import functools
import numbers
import os
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from allranks.judge.in_rank.arguments import KINDS, Argument, Handle, build

WRAPPER = "__allranks_call__"
LONGEST_TEXT = 40  # more of a returned text is not read
_TAIL = "__import__('allranks.judge.in_rank.driver', fromlist=['at_end']).at_end(globals(), {function!r})"
_END = """
def {wrapper}(case):
    from allranks.judge.in_rank.driver import call
    return call({function}, case)
"""


_earlier: list[tuple[Any, list]] = []  # what the calls of this run before returned, and their tensors


def wrapped(text: str, function: str) -> str:
    """The student's text followed by the wrapper that a rank calls; the student's line numbers stay."""
    return f"{text}\n\n{_TAIL.format(function=function)}\n"


def at_end(program: dict, function: str) -> None:
    """Adds the wrapper to the program, which ends with a call of this."""
    exec(_end(function), program)


@functools.lru_cache(maxsize=1)
def _end(function: str) -> CodeType:
    end = _END.format(wrapper=WRAPPER, function=function)
    return compile(end, "<frozen allranks>", "exec")  # a file name of our own, so that no message names these lines


def call(function: Callable, case: dict) -> dict:
    """What the student's function returned on this rank's arguments, and every tensor after the call.

    The last of several calls also hands back what the earlier ones returned, as it is now: `earlier`.
    """
    if case["call"] == 0:
        _earlier.clear()
    for name, value in case["environ"].items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    handles: list[Handle] = []
    given: list = []
    after: list[Callable] = []
    for described in case["args"]:
        made = build(described, handles, given)
        (given if KINDS.get(described[0], Argument).is_argument else after).append(made)
    held = _items(given)
    returned = function(*given)
    changed = [place for place, (now, was) in enumerate(zip(given, held, strict=True)) if not _unchanged(now, was)]
    for done in after:
        done(returned)
    _earlier.append((returned, handles))
    result = {"returned": _plain(returned), "tensors": [_state(handle) for handle in handles], "lists": changed}
    if case["last"]:
        result["earlier"] = [
            {"returned": _plain(value), "tensors": [_state(handle) for handle in held]} for value, held in _earlier[:-1]
        ]
        _earlier.clear()
    return result


def _items(value: Any) -> Any:
    """A list, tuple or dict with the same items in it; anything else as it is."""
    if isinstance(value, dict):
        return {key: _items(item) for key, item in value.items()}
    return type(value)(map(_items, value)) if type(value) in (list, tuple) else value


def _unchanged(now: Any, was: Any) -> bool:
    """Whether lists and dicts hold what they held: the same objects, or equal plain ones. What is in a tensor is not looked at."""
    if now is was or type(now) is not type(was):
        return now is was
    if isinstance(was, list | tuple):
        return len(now) == len(was) and all(map(_unchanged, now, was))
    if isinstance(was, dict):
        return list(now) == list(was) and all(_unchanged(now[key], was[key]) for key in was)
    return isinstance(was, bool | int | float | str) and now == was


def _state(handle: Handle) -> list:
    """The tensor's values now, and the storage that it was a window on before the call."""
    tensor, base, _, of_grad = handle
    now = tensor.grad if of_grad else tensor
    return [None if now is None else now.detach().clone(), base]


def _plain(value: Any) -> Any:
    """The returned value as plain data: ["tensor", t], ["list", [...]], ["number", n], ["text", s], or ["other", its type's name]."""
    if isinstance(value, torch.Tensor):
        return ["tensor", value.detach().cpu().clone()]
    if isinstance(value, tuple | list):
        return ["tuple" if isinstance(value, tuple) else "list", [_plain(item) for item in value]]
    if value is None or isinstance(value, bool | int | float):
        return ["number", value]
    if isinstance(value, numbers.Real):  # such as NumPy's
        return ["number", int(value) if isinstance(value, numbers.Integral) else float(value)]
    if isinstance(value, str):
        return ["text", str(value[:LONGEST_TEXT])]
    return ["other", type(value).__name__]
