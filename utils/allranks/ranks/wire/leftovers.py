"""What a program can leave behind in its process for the next one: other functions of torch or Python, and settings."""

from __future__ import annotations

import builtins
import ctypes
import functools
import gc
import math
import operator
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional
from torch.distributed import distributed_c10d

_NAMESPACES = (
    builtins,
    torch,
    torch.Tensor,
    torch.nn,
    torch.nn.functional,
    dist,
    distributed_c10d,
    dist.P2POp,
    numpy,
    math,
    operator,
    os,
    random,
    time,
)
_INHERITED = frozenset(dir(torch._C.TensorBase))
_SETTINGS: tuple[Callable[[], Any], ...] = (
    torch.get_default_dtype,
    torch.get_num_threads,
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.are_deterministic_algorithms_enabled,
    torch.is_anomaly_enabled,
    torch._C._len_torch_function_stack,  # a default device is a mode of torch's too
    torch._C._len_torch_dispatch_stack,
    numpy.geterr,
    sys.getrecursionlimit,
    sys.gettrace,
    sys.getprofile,
    gc.isenabled,
    os.getcwd,
    lambda: list(sys.path),
    lambda: [sys.modules.get(name) for name in ("torch", "torch.distributed", "numpy")],
    lambda: list(warnings.filters),
    lambda: (id(sys.stdout), sys.stdout.closed),
)


class Leftovers:
    """Remembers a process as it is now. What a program only adds, such as a module that torch imports late, is none."""

    def __init__(self) -> None:
        remember_functions()
        self.functions = dict(_known)
        self.settings = [setting() for setting in _SETTINGS]

    def found(self) -> bool:
        """Whether something is not as it was.

        Example:
            >>> before = Leftovers()
            >>> kept, torch.zeros = torch.zeros, None
            >>> before.found()
            True
            >>> torch.zeros = kept
            >>> before.found()
            False
        """
        try:
            return any(map(self._differ, _NAMESPACES)) or [setting() for setting in _SETTINGS] != self.settings
        except Exception:  # one of them is gone, or another one raises
            return True

    def _differ(self, namespace: Any) -> bool:
        """Whether the functions of a namespace are others."""
        names, tag, get, values, version = self.functions[namespace]
        now = None if tag is None else tag.value
        if now is not None and now == version:
            return False
        if get(names) != values:
            return True
        self.functions[namespace] = names, tag, get, values, now
        return False


def remember_functions() -> None:
    """Looks functions up, where that has not been done since they changed: for a process that forks ranks.

    To look at 3,053 functions writes to each one's count of references, so that a fork must copy 1,340 pages of memory (5 to
    7 ms). A fork of a process that has done it reads only the versions of 14 dictionaries.
    """
    for namespace in _NAMESPACES:
        if namespace not in _known:
            names = vars(namespace)
            # a class has a proxy of its dictionary; a rank that runs an answer may not search for what is behind it
            names = names if type(names) is dict else gc.get_referents(names)[0]
            _known[namespace] = names, _tag(names) if _TAGS else None, tuple, (), None
        names, tag, _, _, version = _known[namespace]
        now = None if tag is None else tag.value
        if now is None or now != version:
            get: Callable[[Any], tuple] = operator.itemgetter(
                *(name for name, value in names.items() if callable(value))
            )
            if namespace is torch.Tensor:
                get = functools.partial(_of_tensor, get)
            _known[namespace] = names, tag, get, get(names), now


def _of_tensor(get: Callable[[Any], tuple], names: Any) -> tuple:
    """The functions of torch.Tensor, and how many of those that it inherits are hidden by its own."""
    return (*get(names), sum(map(_INHERITED.__contains__, names)))


# of each namespace its dictionary, the tag of that (None where the interpreter has none), how to get its functions, what they
# are, and the tag's value when they were got
_known: dict[Any, tuple[Any, ctypes.c_uint64 | None, Callable[[Any], tuple], tuple, int | None]] = {}


def _tag(names: dict) -> ctypes.c_uint64:
    """What CPython up to 3.13 counts up at each change of a dictionary, `ma_version_tag` behind the number of its items."""
    return ctypes.c_uint64.from_address(id(names) + object.__basicsize__ + ctypes.sizeof(ctypes.c_ssize_t))


def _has_tags() -> bool:
    """Whether this interpreter has such tags: newer ones have not, and then all functions are compared."""
    if sys.implementation.name != "cpython":
        return False
    tried: dict[str, int | None] = {"one": 1}
    seen = [_tag(tried).value, _tag(tried).value]
    for value in (2, None):
        tried["one"] = value
        seen.append(_tag(tried).value)
    return seen[0] == seen[1] and len(set(seen)) == 3


_TAGS = _has_tags()
