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
    returned = function(*given)
    for done in after:
        done(returned)
    _earlier.append((returned, handles))
    result = {"returned": _plain(returned), "tensors": [_state(handle) for handle in handles]}
    if case["last"]:
        result["earlier"] = [
            {"returned": _plain(value), "tensors": [_state(handle) for handle in held]} for value, held in _earlier[:-1]
        ]
        _earlier.clear()
    return result


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
