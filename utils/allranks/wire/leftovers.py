"""What a program can leave behind in its process for the next one: other functions of torch or Python, and settings."""

from __future__ import annotations

import builtins
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
    lambda: sum(map(_INHERITED.__contains__, vars(torch.Tensor))),  # what is new there hides what it inherits
)


class Leftovers:
    """Remembers a process as it is now. What a program only adds, such as a module that torch imports late, is none."""

    def __init__(self) -> None:
        self.functions = [_functions(namespace) for namespace in _NAMESPACES]
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
            return (
                any(get(names) != values for names, get, values in self.functions)
                or [setting() for setting in _SETTINGS] != self.settings
            )
        except Exception:  # one of them is gone, or another one raises
            return True


def _functions(namespace: Any) -> tuple[Any, Callable[[Any], tuple], tuple]:
    """The names of a module or class, what looks up those of its functions, and these."""
    names = vars(namespace)
    get = operator.itemgetter(*(name for name, value in names.items() if callable(value)))
    return names, get, get(names)
