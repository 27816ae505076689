"""Reading a student's file: what is kept for the ranks, where lines come from, and what is refused."""

from __future__ import annotations

import json

import pytest
from allranks.judge.source import SourceError, from_text, read_source


def notebook(*cells: str) -> dict:
    return {"nbformat": 4, "cells": [{"cell_type": "code", "source": c.splitlines(keepends=True)} for c in cells]}


def kept(text: str, function: str = "f") -> list[str]:
    return [line for line in from_text(text, function, "x.py").text.splitlines() if line]


def test_calls_of_the_course_stay_behind():
    text = "\n".join(
        [
            "import torch",
            "from allranks import World, check",
            "world = World(ranks=4)",
            "print('hello')",
            "SCALE = 2",
            "def f(x):",
            "    return SCALE * torch.ones(1)",
            "result = world.run(f)",
            "check(f)",
        ]
    )
    assert kept(text) == ["import torch", "SCALE = 2", "def f(x):", "    return SCALE * torch.ones(1)"]


def test_helpers_are_kept_through_several_hands():
    text = "def a():\n    return b()\ndef b():\n    return TABLE[0]\nTABLE = [0]\nTABLE[0] = 5\nother = 3\ndef f():\n    return a()\n"
    assert "TABLE[0] = 5" in kept(text)
    assert "def b():" in kept(text)
    assert "other = 3" not in kept(text)


def test_a_table_filled_by_a_loop_or_a_call_is_kept_whole():
    text = "\n".join(
        [
            "import torch",
            "TABLE = {}",
            "for name in ['a', 'b']:",
            "    TABLE[name] = len(name)",
            "TABLE.update(c=3)",
            "torch.manual_seed(0)",
            "for i in range(3):",
            "    torch.manual_seed(i)",
            "for name in TABLE:",
            "    print(name)",
            "other = []",
            "other.append(1)",
            "def f():",
            "    return torch.ones(TABLE['c'])",
        ]
    )
    lines = text.splitlines()
    assert kept(text) == lines[:5] + lines[-2:]


def test_a_name_that_the_function_gives_itself_reaches_nothing():
    text = "x = rank\ntotal = x.exp()\nSCALE = 2\ndef f(x, *, top=SCALE):\n    total = [x for x in range(top)]\n    return total\n"
    assert kept(text) == [*text.splitlines()[2:]]
    text = "x = 1\ndef f():\n    def g():\n        global x\n        x += 1\n    return g\n"
    assert kept(text) == text.splitlines()


def test_line_numbers_stay():
    source = from_text("x = 1\n\nprint(x)\n@staticmethod\ndef f():\n    return x\n", "f", "x.py")
    assert source.text.splitlines()[3:6] == ["@staticmethod", "def f():", "    return x"]
    assert source.where(6) == "line 6"
    assert source.line_text(6) == "return x"


def test_a_notebook_names_cells():
    cells = notebook(
        "import torch",
        "%%ranks\nimport os\n",
        "%matplotlib inline\ndef g():\n    return 1",
        "def f():\n    return g()",
        "f()",
    )
    source = read_source(cells, "f")
    namespace: dict = {}
    exec(source.text, namespace)  # the text of this test, not a student's
    assert namespace["f"]() == 1
    line = source.text.splitlines().index("    return g()") + 1
    assert source.where(line) == "cell 4, line 2"


def test_a_function_in_a_ranks_cell_counts():
    source = read_source(notebook("%%ranks\ndef f():\n    return 7"), "f")
    assert source.where(source.text.splitlines().index("    return 7") + 1) == "cell 1, line 3"


def test_any_cell_may_import_from_the_future():
    cells = notebook(
        "x = 1\nx",
        "from __future__ import annotations; y = 2\nfrom __future__ import (\n    division,\n)\n",
        "def f(a: NoSuchName = 0):\n    return x + y",
    )
    source = read_source(cells, "f")
    assert source.text.splitlines()[0] == "from __future__ import annotations, division"
    namespace: dict = {}
    exec(source.text, namespace)  # the text of this test, not a student's
    assert namespace["f"]() == 3
    line = source.text.splitlines().index("    return x + y") + 1
    assert source.where(line) == "cell 3, line 2"


@pytest.mark.parametrize(
    "text",
    [
        "NOTED = []\n\ndef note(g):\n    NOTED.append(g)\n    return g\n\n@note\ndef g():\n    return 5\n\ndef f():\n    return NOTED[0]()\n",
        "from functools import singledispatch\n\n@singledispatch\ndef g(x):\n    return 1\n\n@g.register\ndef _(x: int):\n    return 5\n\n"
        "def f():\n    return g(3)\n",
        "class Base:\n    pass\n\nclass One(Base):\n    value = 5\n\ndef f():\n    return Base.__subclasses__()[0].value\n",
    ],
    ids=["registry", "singledispatch", "subclasses"],
)
def test_what_a_decorator_or_a_base_class_notes_is_kept(text):
    namespace: dict = {}
    exec("\n".join(kept(text)), namespace)  # the text of this test, not a student's
    assert namespace["f"]() == 5


def test_a_decorated_definition_that_the_function_never_meets_stays_behind():
    text = "def timed(g):\n    return g\n\n@timed\ndef play():\n    return f()\n\ndef f():\n    return 5\n"
    assert kept(text) == ["def f():", "    return 5"]


def test_another_cell_that_does_not_parse_does_no_harm():
    assert "def f():" in read_source(notebook("this is no python", "def f():\n    pass"), "f").text


def test_only_imports_that_the_function_needs_are_kept():
    text = "import json\nimport no_such_package\ndef show():\n    no_such_package.plot()\ndef f():\n    pass\n"
    assert kept(text) == ["def f():", "    pass"]
    assert kept(text.replace("pass", "show()"))[0] == "import no_such_package"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.py", "def f(:\n", "does not parse (line 1)"),
        ("a.py", "def g():\n    pass\n", "has no function f: it defines g"),
        ("a.py", "", "has no function f: it defines no function"),
        ("a.txt", "def f(): pass", "neither a .py nor an .ipynb"),
        ("a.ipynb", "{", "is not a notebook"),
        ("a.ipynb", "[]", "is not a notebook of format 3 or 4"),
        ("a.ipynb", json.dumps(notebook("def f(:\n    pass")), "does not parse (cell 1, line 1)"),
        ("a.py", "x = " + "(" * 5000, "does not parse"),
        ("a.py", "\0", "does not parse"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(SourceError) as error:
        read_source(path, "f")
    assert words in str(error.value)


def test_no_such_file_and_folders_and_binaries(tmp_path):
    with pytest.raises(SourceError, match="no file"):
        read_source(tmp_path / "none.py", "f")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(SourceError, match="folder"):
        read_source(tmp_path / "folder.py", "f")
    (tmp_path / "deep.ipynb").write_text("[" * 100_000)
    with pytest.raises(SourceError, match="no valid JSON"):
        read_source(tmp_path / "deep.ipynb", "f")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match="UTF-8"):
        read_source(tmp_path / "binary.py", "f")


def test_nothing_of_the_file_runs_here(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        f"open({str(tmp_path / 'trace')!r}, 'w')\nX = open({str(tmp_path / 'trace2')!r}, 'w')\ndef f():\n    return X\n"
    )
    read_source(path, "f")
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]
