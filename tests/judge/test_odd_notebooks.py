"""Honest notebooks and files in odd clothes: the function must work in a rank as it did in Jupyter."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
from allranks.judge.source import SourceError, imported_at, read_source

TABLE = "TABLE = {}\n"
USES_TABLE = "def f():\n    return TABLE['a']"
USES_ONE = "def f():\n    return ONE"
# each is a notebook's cells; its function f must return 5
NOTEBOOKS = {
    # IPython's own syntax
    "question behind": ["import math\nmath.sqrt??\nONE = 5", USES_ONE],
    "question before": ["?print\nONE = 5", USES_ONE],
    "question in the answer's cell": ["import torch\ntorch.ones??\ndef f():\n    return 5"],
    "shell assignment": ["files = !ls\ndef f():\n    return 5"],
    "magic assignment": ["x = %pwd\ndef f():\n    return 5"],
    "continued timeit": ["%timeit \\\n    sum(range(3))\ndef f():\n    return 5"],
    "timeit with options": ["def f():\n    return 5\n%timeit -n 1 -r 1 f()"],
    "timeit cell": ["%%timeit\nf()", "def f():\n    return 5"],
    "time of a definition": ["%time ONE = 5", USES_ONE],
    "time cell": ["%%time\nONE = 5", USES_ONE],
    "two cell magics": ["%%capture out\n%%time\nONE = 5", USES_ONE],
    "pip": ["!pip install torch\ndef f():\n    return 5"],
    "pip magic": ["%pip install torch\nimport torch\ndef f():\n    return int(torch.tensor(5))"],
    "matplotlib": ["%matplotlib inline\n%load_ext autoreload\n%autoreload 2\nONE = 5", USES_ONE],
    "shell in the function": ["def f():\n    !ls\n    return 5"],
    "magic in a loop": ["def f():\n    for i in range(6):\n        %who\n        x = i\n    return x"],
    "call without brackets": ["def g(x):\n    return x\n/g 3\n,g a b\n;g a b\ndef f():\n    return 5"],
    "semicolon": ["ONE = 5; print(ONE);", "def f():\n    return ONE;"],
    "bash cell": ["%%bash\nls | wc", "%%html\n<b>def f(</b>", "%%writefile x.py\ndef f(", "def f():\n    return 5"],
    "ranks cell": ["%%ranks --ranks 4\nONE = 5", "%%px\ndef f():\n    return ONE"],
    "await": ["import asyncio\nawait asyncio.sleep(0)\nONE = 5", USES_ONE],
    "await assigned": ["import asyncio\nx = await asyncio.sleep(0)\ndef f():\n    x = 5\n    return x"],
    "prompts": [">>> ONE = 5\n>>> def f():\n...     return ONE\n"],
    "indented cell": ["    ONE = 5\n    def f():\n        return ONE"],
    "percent in a text": ['def f():\n    """\n%d of\n!that?\n"""\n    return 5\n!ls'],
    # statements at the top level
    "with": ["import torch\nwith torch.no_grad():\n    ONE = torch.tensor(5)", "def f():\n    return int(ONE)"],
    "while": ["ONE = 0\nwhile ONE < 5:\n    ONE += 1\n    print(ONE)", USES_ONE],
    "match": [
        "import sys\nmatch sys.byteorder:\n    case 'none':\n        ONE = 3\n    case order:\n        ONE = 5",
        USES_ONE,
    ],
    "captured by match": ["match [1, 5]:\n    case [_, ONE]:\n        pass\n    case _:\n        ONE = 0\n", USES_ONE],
    "unpacking": ["(a, ONE), *rest = (1, 5), 2, 3", USES_ONE],
    "walrus": ["print(ONE := 5)", USES_ONE],
    "try else": ["try:\n    import no_such_package\nexcept ImportError:\n    ONE = 5\nelse:\n    ONE = 3", USES_ONE],
    "for else": ["for i in range(3):\n    print(i)\nelse:\n    ONE = 5", USES_ONE],
    "loop that prints": [TABLE + "for k in 'ab':\n    TABLE[k] = 5\n    print(k)\n    display(k)", USES_TABLE],
    "loop that checks": [
        f"from allranks import check\n{TABLE}for k in 'ab':\n    check(f)\n    TABLE[k] = 5",
        USES_TABLE,
    ],
    "assert": ["ONE = 5\nassert ONE == 4\nif ONE:\n    assert ONE == 3\n    TWO = ONE", "def f():\n    return TWO"],
    "type checking": [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import Tensor\nONE = 5",
        USES_ONE,
    ],
    "deep method": ["class C:\n    pass\nC.rows = []\nC.rows.append(5)\ndef f():\n    return C.rows[0]"],
    "method of an entry": ["TABLE = {'a': []}\nTABLE['a'].append(5)\ndef f():\n    return TABLE['a'][0]"],
    "deleted entry": ["T = [4, 5]\ndel T[0]\ndef f():\n    return T[0]"],
    "deleted name": ["def sum(x):\n    return 3\ndel sum\ndef f():\n    return sum([2, 3])"],
    "set up by a call": ["def build():\n    global ONE\n    ONE = 5\nbuild()", USES_ONE],
    "filled by a call": [TABLE + "def fill(t, key):\n    t[key] = 5\nfill(TABLE, 'a')", USES_TABLE],
    "filled by keyword": [TABLE + "def fill(key, t):\n    t.update({key: 5})\nfill(t=TABLE, key='a')", USES_TABLE],
    "changed by a library": ["import heapq\nT = [9, 5]\nheapq.heapify(T)\nprint(T)\ndef f():\n    return T[0]"],
    "setattr": ["class C:\n    one = 3\nsetattr(C, 'one', 5)\ndef f():\n    return C.one"],
    "two on a line": ["from allranks import check\nONE = 5; check(f)", USES_ONE],
    "trial that counts": ["CALLS = []\ndef f():\n    CALLS.append(1)\n    return 4 + len(CALLS)\nf()\nprint(f())"],
    "trial by a helper": [
        "CALLS = []\ndef f():\n    CALLS.append(1)\n    return 4 + len(CALLS)\ndef demo():\n    CALLS.append(f())\ndemo()"
    ],
    "communication": [
        "import torch, torch.distributed as dist\nT = [5]\ndef try_it():\n    T.append(dist.get_rank())\ntry_it()\n"
        "dist.init_process_group('gloo')\ndef f():\n    return T[-1]"
    ],
    # definitions
    "last definition": ["def f():\n    return 3", "def f():\n    return 5"],
    "wrapped later": ["def f():\n    return 4", "def more(g):\n    return lambda: g() + 1\nf = more(f)"],
    "lambda": ["f = lambda: 5"],
    "partial": ["import functools\ndef g(x):\n    return x\nf = functools.partial(g, 5)"],
    "object": ["class G:\n    def __call__(self):\n        return 5\nf = G()"],
    "no grad": ["import torch\n@torch.no_grad()\ndef f():\n    return int(torch.tensor(5))"],
    "recursion": ["def f():\n    def g(n):\n        return 0 if n == 0 else 1 + g(n - 1)\n    return g(5)"],
    "counter": ["N = 4\ndef f():\n    global N\n    N += 1\n    return N"],
    "dataclass": [
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 5\ndef f():\n    return P().x"
    ],
    "enum": ["from enum import Enum\nclass E(Enum):\n    A = 5\ndef f():\n    return E.A.value"],
    "main": ["def f():\n    return 5\nif __name__ == '__main__':\n    raise SystemExit(f())"],
    "star": ["from math import *\ndef f():\n    return int(sqrt(25))"],
    "star of plots": ["from matplotlib.pyplot import *\nfrom math import *\ndef f():\n    return int(sqrt(25))"],
    "other letters": ["größe = 5\nπ = 3\ndef f():\n    return größe"],
    "long line": [f"T = [{'1, ' * 40000}5]\ndef f():\n    return T[-1]"],
    "form feed": ["ONE = 5\n\f\ndef f():\n    x = '\x0c'\n    return ONE\n!ls"],
    "tabs": ["def f():\n\tif True:\n\t\treturn 5\n!ls"],
    "plots in a helper": ["import no_such_package as plt\ndef show():\n    plt.plot()\ndef f():\n    return 5"],
}


def notebook(cells: list[str], **more: object) -> dict:
    return {"nbformat": 4, "cells": [{"cell_type": "code", "source": c, **more} for c in cells]}


def result(text: str) -> object:
    module = sys.modules["__odd__"] = ModuleType("__odd__")  # a dataclass looks up there where it stands
    exec(compile(text, "text", "exec"), module.__dict__)  # the text of this test, not a student's
    return module.f()


@pytest.mark.parametrize("cells", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_an_honest_notebook_works(cells):
    source = read_source(notebook(cells), "f")
    assert result(source.text) == 5
    lines = source.text.split("\n")
    for number, cell in enumerate(cells, 1):  # every line that was kept stands where the student has it
        for n, line in enumerate(cell.split("\n"), 1):
            if line.strip().startswith("return "):
                places = [source.where(at) for at, text in enumerate(lines, 1) if text.strip() == line.strip("; ")]
                assert not places or f"cell {number}, line {n}" in places or lines.count(line) == 0


@pytest.mark.parametrize("cells", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_the_number_of_lines_stays(cells):
    source = read_source(notebook(cells), "f")
    assert len(source.text.split("\n")) == 1 + sum(len(cell.split("\n")) for cell in cells)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_end_of_line_and_a_mark_at_the_start(tmp_path, end):
    path = tmp_path / "a.py"
    path.write_bytes("\ufeffONE = 5\n!ls\ndef f():\n    return ONE\n".replace("\n", end).encode())
    source = read_source(path, "f")
    assert result(source.text) == 5
    assert source.line_text(4) == "return ONE"
    cell = "\ufeffONE = 5\n!ls\ndef f():\n    return ONE".replace("\n", end)
    assert result(read_source(notebook([cell]), "f").text) == 5


def test_notebooks_of_any_format():
    text = ["x = !ls\n", "def f():\n", "    return 5"]
    third = {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": text, "language": "python"}]}]}
    for form in (third, {"nbformat": 4, "nbformat_minor": 0, "cells": [{"cell_type": "code", "source": text}]}):
        assert result(read_source(json.loads(json.dumps(form)), "f").text) == 5


def test_magics_in_a_file_of_cells(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("# %%\n%matplotlib inline\nONE = 5\n# %%\nno python here\n# %%\n%%time\ndef f():\n    return ONE\n")
    source = read_source(path, "f")
    assert result(source.text) == 5
    assert source.line_text(9) == "return ONE"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("dist.x??\nfiles = !ls\n%timeit \\\n  sum(\\\n  3)\n\ndef f():\n    return 5", 8),
        ("\n\n%time ONE = 5\n!ls \\\n  -l\ndef f():\n    return ONE", 7),
        ("x = %pwd\n\n%%px is no cell here\n!ls\n!!ls\n%who\n?x\nx?\ndef f():\n    return 5", 10),
    ],
)
def test_lines_stay_where_they_are(text, line):
    source = read_source(notebook(["1", text]), "f")
    at = next(n for n, kept in enumerate(source.text.split("\n"), 1) if kept.strip().startswith("return"))
    assert source.where(at) == f"cell 2, line {line}"


@pytest.mark.parametrize("where", ["from .helpers import g\ndef f():\n    return g()", "def f():\n    from . import g"])
def test_a_relative_import_is_refused_with_its_line(where):
    with pytest.raises(SourceError, match=r"imports from a file beside it \(cell 1, line [12]\), and only this one"):
        read_source(notebook([where]), "f")
    assert "from" not in read_source(notebook([where.replace("f()", "g()"), "def f():\n    return 5"]), "f").text


def test_too_many_magics_for_the_transformer(monkeypatch):
    monkeypatch.setattr("allranks.judge.source.MAX_TOKENIZED", 100_000)
    text = "".join(f"%who {n}\n" for n in range(3000))
    assert result(read_source(notebook([text, "def f():\n    return 5"]), "f").text) == 5


def test_the_packages_that_a_line_imports():
    text = "import a.b, c\nfrom d.e import (\n    f,\n)\nx = 1\n"
    assert [imported_at(text, line) for line in (1, 3, 5, None)] == [{"a", "c"}, {"d"}, set(), set()]


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_a_function_in_a_cell_that_is_no_code_is_named_as_such(kind):
    cells = [
        {"cell_type": "code", "source": "import torch\n"},
        {"cell_type": kind, "source": "def ring_shift(tensor, k):\n    return tensor\n"},
    ]
    with pytest.raises(SourceError, match=r"ring_shift stands in a \w+ cell of hand_in.ipynb \(cell 2 from the top"):
        read_source({"nbformat": 4, "cells": cells}, "ring_shift", "hand_in.ipynb")


def test_an_example_in_a_text_is_not_taken_for_the_answer():
    text = "Write it like this:\n```python\ndef ring_shift(tensor, k):\n    ...\n```\n"
    with pytest.raises(SourceError, match="it defines no function"):
        read_source(
            {"nbformat": 4, "cells": [{"cell_type": "markdown", "source": text}]}, "ring_shift", "hand_in.ipynb"
        )
