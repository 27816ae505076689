"""What a teacher is told that an answer used and no exercise asks for: no right answer of ours, and no detour to a module."""

from __future__ import annotations

from pathlib import Path

import pytest
from allranks.judge.source import from_text

from autograder.suspect import MAX_CHARACTERS, oddities

RIGHT = Path(__file__).parents[1] / "exercises" / "right"
HEAD = "import torch\nimport torch.distributed as dist\n"


def told(code: str, imports: str = "") -> list[str]:
    """What is told of a function of one line, which is line 4 (or 5, with `imports`)."""
    return oddities(from_text(f"{HEAD}{imports}def f(t):\n    {code}\n", "f", "answer.py"))


def test_of_right_answers_nothing_is_told():
    for path in sorted(RIGHT.glob("*/*.py")):
        assert oddities(from_text(path.read_text(), path.parent.name, path.name)) == [], path


@pytest.mark.parametrize(
    "name", ["os", "sys", "gc", "ctypes", "socket", "subprocess", "multiprocessing", "importlib", "builtins", "inspect"]
)
def test_a_module_is_named_by_whatever_way_it_came(name):
    used = [f"uses {name} (line 4)"]
    assert told(f"torch.{name}.x(1)") == used
    assert told(f"getattr(torch, '{name}').x(1)") == used
    assert told(f"x = torch.{name}") == used
    assert told(f"{name}.x(1)", f"from torch import {name}\n") == [f"imports {name} from torch (line 3)"]
    assert told("x.y(1)", f"from torch.serialization import {name} as x\n") == [
        f"imports {name} from torch.serialization (line 3)"
    ]
    assert told(f"{name}.x(1)", "from torch.distributed import *\n") == [f"uses {name} (line 5)"]


def test_a_module_below_torch_or_in_a_pattern_is_named():
    assert told("mp.spawn(1)", "import torch.multiprocessing as mp\n") == ["imports torch.multiprocessing (line 3)"]
    assert told("match torch:\n        case object(os=x):\n            x.kill(1, 9)") == ["uses os (line 5)"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("dist.group.WORLD._get_backend(t.device)._collective('x')", {"_get_backend", "_collective"}),
        ("torch._C._x", {"_C", "_x"}),
        ("__builtins__['open']", {"__builtins__"}),
        ("t.__class__", {"__class__"}),
        ("operator.attrgetter('os.kill')(torch)", {"attrgetter"}),
        ("getattr(torch, 'o' + 's')", {"getattr with a name that it makes"}),
        ("getattr(dist.group.WORLD, '_get_backend')", {"_get_backend"}),
    ],
)
def test_what_is_not_for_others_is_named(code, names):
    assert set(told(code, "import operator\n")) == {f"uses {name} (line 5)" for name in names}


def test_private_modules_and_names_are_named_when_they_are_imported():
    assert told("x(t)", "from torch._C import x\n") == ["imports torch._C (line 3)"]
    assert told("_x(t)", "from torch.distributed import _x\n") == ["imports _x from torch.distributed (line 3)"]


@pytest.mark.parametrize(
    ("code", "imports"),
    [
        ("torch._foreach_add_([t], [t])", ""),
        ("dist._coalescing_manager()", ""),
        ("x(t)", "from torch._utils import _flatten_dense_tensors as x\n"),
        ("x.all_reduce(t)", "import torch.distributed._functional_collectives as x\n"),
        ("t.copy().random.types.code.operator.numbers.select.bisect.heapq.queue.signal", ""),
        ("getattr(dist, 'all_gather_into_tensor')(t, t)", ""),
        ("self._x = self._y + self.__z + super().__init__()", ""),
        ("_, _x = _f(t)", ""),
        ("t._replace(x=1)", ""),
    ],
)
def test_of_what_programs_need_nothing_is_told(code, imports):
    assert told(code, imports) == []


def test_what_is_told_fits_a_line():
    (short,) = told(f"torch.{'a' * 500} = 1")
    assert len(short) == MAX_CHARACTERS
    assert short.startswith("replaces torch.aaa")
    assert short.endswith("aaa ... (line 4)")


HONEST = (
    "import matplotlib.pyplot as plt",
    "import pandas as pd",
    "import numpy as np",
    "from ipywidgets import IntSlider",
    "from IPython.display import display, HTML",
    "from tqdm.auto import tqdm",
    "from typing import Any, NamedTuple",
    "from dataclasses import dataclass, field",
    "from functools import partial, reduce",
    "import logging, datetime, json, re, string, textwrap, pprint, contextlib, traceback, random, time",
    "from torch.nn.functional import pad",
)


@pytest.mark.parametrize("line", HONEST)
def test_of_imports_in_honest_notebooks_nothing_is_told(line):
    assert told("return t", f"{line}\n") == []


def test_nothing_that_a_student_writes_is_called_tampering():
    """A kind of incident is a name that students and teachers may read."""
    from autograder.judge import INCIDENTS
    from autograder.rows import KINDS

    assert {kind for kind, _ in INCIDENTS.values()} <= set(KINDS)
    assert not any("tamper" in word or "cheat" in word for word in (*KINDS, *KINDS.values()))
