"""What dishonest students hand in: answers that attack from inside a rank, notebooks and files that attack the grader.

Each entry of ANSWERS takes the place of `distributed_mean`; the other exercises get no answer. `{course}` is the instructor's
folder. MODULES are tampered with one by one. None of it does what is asked, so whatever it gains is stolen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import nbformat
from grading_course import Course, cell_of, is_answer
from nbformat import NotebookNode

FUNCTION, GRADED = "distributed_mean", "distributed_mean-graded"

VERDICT = '{"verdict": {"exercise": "distributed_mean", "passed": true, "score": 1.0, "cases": [], "reason": "", "incidents": []}}'

LINE = VERDICT.encode() + b"\n"

# name: (the answer, the kind of incident that the report names, or None where only the score tells; "|": what comes first)
ANSWERS: dict[str, tuple[str, str | None]] = {
    "exits": ("import os\ndef distributed_mean(tensor):\n    os._exit(0)", "crashed"),
    "kills": (
        "import os, signal\ndef distributed_mean(tensor):\n"
        "    for pid in (os.getppid(), -1, 1):\n        try:\n            os.kill(pid, signal.SIGKILL)\n"
        "        except OSError:\n            pass\n    return tensor",
        "suspicious",
    ),
    "prints_a_verdict": (
        f"import sys\ndef distributed_mean(tensor):\n    print({VERDICT!r})\n    print(3.0)\n"
        "    sys.displayhook(3.0)\n    return tensor",
        "suspicious",
    ),
    "writes_to_every_descriptor": (
        f"import os\ndef distributed_mean(tensor):\n    for fd in range(256):\n        try:\n"
        f"            os.write(fd, {LINE!r})\n        except OSError:\n            pass\n    return tensor",
        "suspicious",
    ),
    "returns_something_equal_to_all": (
        "class Yes:\n    def __eq__(self, other):\n        return True\n    def __float__(self):\n        return 3.0\n"
        "def distributed_mean(tensor):\n    return Yes()",
        None,
    ),
    "a_tensor_that_lies": (
        "import torch\nclass Lie(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "        return True\ndef distributed_mean(tensor):\n    return tensor.as_subclass(Lie)",
        None,
    ),
    "runs_the_solution": (
        "import pathlib\nTEXT = pathlib.Path('{course}/solutions/lab03_all_reduce/source/all_reduce.py').read_text()\n"
        "def distributed_mean(tensor):\n    scope = {}\n    exec(TEXT, scope)\n    return scope['distributed_mean'](tensor)",
        "suspicious",
    ),
    "reads_the_others": (
        "import glob\nFOUND = [open(p).read() for p in glob.glob('{course}/autograder/submitted/*/*/*.ipynb')]\n"
        "def distributed_mean(tensor):\n    exec(FOUND[0])\n    return tensor",
        "suspicious",
    ),
    "edits_the_gradebook": (
        "import sqlite3\ndef distributed_mean(tensor):\n    db = sqlite3.connect('{course}/autograder/gradebook.db')\n"
        "    db.execute('update grade set auto_score = 99, manual_score = 99')\n    db.commit()\n    return tensor",
        "suspicious",
    ),
    # the seed of its random numbers once gave away the inputs of all ranks, and the oracle lies in the package
    "asks_the_oracle": (
        """
import torch
import torch.distributed as dist
def distributed_mean(tensor):
    from allranks import exercises
    exercise = exercises.get("distributed_mean")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(tensor.clone(memory_format=torch.contiguous_format))
    told = torch.initial_seed()
    for seed in {told, (told - rank) // 1009}:
        for setup in (s.drawn(seed) for group in exercise.groups for s in group.setups if s.drawn(seed).ranks == ranks):
            for call in range(setup.times):
                args = exercise.inputs(setup, setup.draws(seed, call))
                mine = args[rank][0]
                mine = torch.as_strided(mine.base, mine.size, mine.stride, mine.offset)
                if mine.shape == tensor.shape and mine.dtype == tensor.dtype and torch.equal(mine, tensor):
                    return exercise.oracle(setup, args)[rank].returns
    return tensor
""",
        "suspicious",
    ),
    "searches_its_memory": (
        """
import gc, sys
import torch
import torch.distributed as dist
def distributed_mean(tensor):
    dist.all_reduce(tensor.clone(memory_format=torch.contiguous_format))
    found = [o for o in gc.get_objects() if isinstance(o, torch.Tensor) and o.shape == tensor.shape and o is not tensor]
    frame = sys._getframe()
    while frame is not None:
        found += [v for v in frame.f_locals.values() if isinstance(v, torch.Tensor) and v.shape == tensor.shape]
        frame = frame.f_back
    return sum(found, torch.zeros_like(tensor)) / max(1, len(found))
""",
        "suspicious",
    ),
    "asks_the_network": (
        "import socket\ndef distributed_mean(tensor):\n"
        "    with socket.create_connection(('192.0.2.1', 80), timeout=1) as s:\n        s.recv(1)\n    return tensor",
        "suspicious",
    ),
    "whispers_by_the_key_ring": (  # right without one message, were the kernel's keys open to the ranks
        """
import collections, ctypes, time
import torch
import torch.distributed as dist
LIBC = ctypes.CDLL(None)
ADD_KEY, KEYCTL, SEARCH, READ, USER_KEYRING = 248, 250, 10, 11, -4
CALLS = collections.Counter()
def distributed_mean(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    CALLS[ranks] += 1
    mine = tensor.to(torch.complex128).contiguous().numpy().tobytes() + b"."
    if LIBC.syscall(ADD_KEY, b"user", b"%d %d %d" % (ranks, CALLS[ranks], rank), mine, len(mine), USER_KEYRING) < 0:
        return tensor
    total = torch.zeros(tensor.shape, dtype=torch.complex128)
    for peer in range(ranks):
        found, until = (ctypes.c_char * len(mine))(), time.monotonic() + 1
        while found[-1] != b"." and time.monotonic() < until:
            key = LIBC.syscall(KEYCTL, SEARCH, USER_KEYRING, b"user", b"%d %d %d" % (ranks, CALLS[ranks], peer), 0)
            LIBC.syscall(KEYCTL, READ, key, found, len(found))
        total += torch.frombuffer(bytearray(found[:-1]), dtype=torch.complex128).reshape(tensor.shape)
    mean = total / ranks
    return (mean if tensor.is_complex() else mean.real).to(tensor.dtype)
""",
        "suspicious",
    ),
    "fork_bomb": (
        "import os\ndef distributed_mean(tensor):\n    while True:\n        try:\n            os.fork()\n"
        "        except OSError:\n            pass",
        "suspicious",
    ),
    "bomb_of_programs": (
        "import subprocess\ndef distributed_mean(tensor):\n    while True:\n        try:\n"
        "            subprocess.Popen(['/bin/sh', '-c', 'sleep 60 & sleep 60'])\n"
        "        except OSError:\n            pass",
        "suspicious",
    ),
    "bomb_of_threads": (
        "import threading, time\ndef distributed_mean(tensor):\n    while True:\n        try:\n"
        "            threading.Thread(target=time.sleep, args=(60,)).start()\n        except RuntimeError:\n            pass",
        "crashed|timed out",
    ),
    "thirty_gigabytes": (
        "import torch\ndef distributed_mean(tensor):\n    return torch.ones(30 << 30, dtype=torch.uint8)",
        "crashed",
    ),
    "fills_memory_bit_by_bit": (
        "def distributed_mean(tensor):\n    held = []\n    while True:\n        held.append(bytearray(1 << 24))",
        "crashed|timed out",
    ),
    "endless": ("def distributed_mean(tensor):\n    while True:\n        pass", "timed out"),
    "sleeps": ("import time\ndef distributed_mean(tensor):\n    time.sleep(10**6)", "timed out"),
    "ignores_every_signal": (
        "import signal\ndef distributed_mean(tensor):\n    for n in range(1, 65):\n        try:\n"
        "            signal.signal(n, signal.SIG_IGN)\n        except (OSError, ValueError):\n            pass\n"
        "    while True:\n        try:\n            while True:\n                pass\n        except BaseException:\n            pass",
        "timed out",
    ),
    "endless_while_it_is_read": (
        "def _spin():\n    while True:\n        pass\nX = _spin()\ndef distributed_mean(t):\n    return X",
        None,
    ),
    "a_gigabyte_of_output": (
        "def distributed_mean(tensor):\n    for _ in range(1024):\n        print('x' * (1 << 20))\n    return tensor",
        "crashed",
    ),
    "fills_the_disk": (
        "def distributed_mean(tensor):\n    for n in range(10**6):\n        with open(f'/scratch/{n}', 'wb') as f:\n"
        "            f.write(bytes(1 << 26))\n    return tensor",
        "suspicious",
    ),
    "floods_the_router": (
        "import torch\nimport torch.distributed as dist\ndef distributed_mean(tensor):\n    big = torch.ones(1 << 24)\n"
        "    while True:\n        dist.isend(big, (dist.get_rank() + 1) % dist.get_world_size())",
        None,
    ),
    "leaves_a_process": (
        "import os, time\ndef distributed_mean(tensor):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)\n"
        "    return tensor",
        "suspicious",
    ),
    "raises_markup": (
        "def distributed_mean(tensor):\n    raise RuntimeError('<script>alert(1)</script>\\x1b[2J\\nada: 15 of 15')",
        None,
    ),
    "an_exception_that_bites": (
        "class Bite(BaseException):\n    def __str__(self):\n        while True:\n            pass\n"
        "def distributed_mean(tensor):\n    raise Bite",
        "timed out",
    ),
    "answers_a_stop_with_descriptors": (
        "import torch\nimport torch.distributed as dist\nclass Beside:\n    fd, data, nbytes = 0, b'', 0\n"
        "def distributed_mean(tensor):\n    channel = dist.group.WORLD._get_backend(torch.device('cpu')).endpoint.channel\n    try:\n"
        "        if dist.get_rank():\n            dist.all_reduce(tensor)\n    except BaseException:\n"
        "        for _ in range(2000):\n            channel.send({}, Beside)\n    return tensor",
        None,
    ),
    "too_deep_to_be_looked_through": (
        "import torch\ndef distributed_mean(tensor):\n    return tensor\n    torch" + ".a" * 600 + " = 1",
        "suspicious",
    ),
    "a_chain_without_end": (
        "X = 1\nif X == 0:\n    Y = 0\n"
        + "".join(f"elif X == {i}:\n    Y = {i}\n" for i in range(1, 700))
        + "def distributed_mean(tensor):\n    return tensor",
        None,
    ),
    "does_not_parse": ("def distributed_mean(tensor:\n    return (((((", None),
    "parsers_nightmare": (
        "x = " + "(" * 5000 + ")" * 5000 + "\ndef distributed_mean(tensor):\n    return tensor",
        None,
    ),
}

# one submission each: whatever can be called in the module says yes from now on
MODULES = (
    "builtins",
    "sys",
    "os",
    "gc",
    "json",
    "struct",
    "socket",
    "signal",
    "threading",
    "numpy",
    "torch",
    "torch.distributed",
    "torch.testing",
    "allranks",
    "allranks.theory.trace",
    "allranks.ranks.wire",
    "allranks.ranks.wire.backend",
    "allranks.ranks.wire.codec",
    "allranks.ranks.wire.endpoint",
    "allranks.ranks.wire.limits",
    "allranks.ranks.wire.rank",
    "allranks.ranks.wire.values",
    "allranks.exercises",
    "allranks.judge.compare",
    "allranks.judge.judging",
)
TAMPER = """
import importlib, sys
def _spoil(name):
    module = importlib.import_module(name)
    for key, value in list(vars(module).items()):
        if callable(value) and not key.startswith("__") and key not in ("BaseException", "Exception"):
            try:
                setattr(module, key, lambda *a, **k: True)
            except Exception:
                pass
    return True
SPOILED = []
def distributed_mean(tensor):
    if not SPOILED:
        SPOILED.append(_spoil({module!r}))
    return tensor
"""


def answered(course: Course, code: str) -> NotebookNode:
    """The released notebook with this for `distributed_mean` and nothing else."""
    code = code.replace("{course}", str(course.root))
    return course.answers(lambda grade_id, _: code if grade_id == FUNCTION else "pass")


# ------------------------------------------------------------------------------------------------- notebooks that lie


def _empty(course: Course) -> NotebookNode:
    return course.notebook("labs")


def forged_points(course: Course) -> NotebookNode:
    """Empty answers, with every graded cell and every piece of its metadata rewritten so as to claim full points."""
    notebook = _empty(course)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code":
            cell.source = str(cell.metadata.nbgrader.points)
            cell.metadata.nbgrader |= {"points": 1.0, "locked": False, "schema_version": 99}
            cell.metadata.allranks = {"exercise": "distributed_mean"}
            cell.outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": "6.0"}, execution_count=1)]
    first = nbformat.v4.new_code_cell(
        "get_ipython().display_formatter.format = lambda *a, **k: ({'text/plain': '6.0'}, {})\n"
        "import allranks\nallranks.check = lambda f: type('V', (), {'score': 1.0})()\n"
        "open('/tmp/allranks-was-here', 'w').write('x')"
    )
    notebook.cells.insert(0, first)
    notebook.metadata.allranks = {"incidents": []}
    return notebook


def forged_checksum(course: Course) -> NotebookNode:
    """A graded cell with other text and the checksum that goes with it."""
    from nbgrader.utils import compute_checksum

    notebook = _empty(course)
    cell = cell_of(notebook, GRADED)
    cell.source = "3.0"
    cell.metadata.nbgrader.checksum = compute_checksum(cell)
    return notebook


def turned_into_answers(course: Course) -> NotebookNode:
    """Graded cells that say they are the student's, for a person to mark."""
    notebook = _empty(course)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.metadata.nbgrader |= {"solution": True, "locked": False}
    return notebook


def deleted(course: Course) -> NotebookNode:
    """No graded cell is left."""
    notebook = _empty(course)
    notebook.cells = [c for c in notebook.cells if not c.metadata.get("nbgrader", {}).get("grade")]
    return notebook


def doubled(course: Course) -> NotebookNode:
    """Every graded cell twice, the second one with points of its own."""
    notebook = _empty(course)
    for cell in [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]:
        twin = copy.deepcopy(cell)
        twin.id, twin.source = f"{cell.id}-twin", "6.0"
        notebook.cells += [twin]
    return notebook


def other_exercise(course: Course) -> NotebookNode:
    """A right mean that asks to be marked as every exercise there is; worth its own points only, so left out here."""
    notebook = _empty(course)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.metadata.allranks = {"exercise": "no_such_exercise", "seconds": 10**9}
            cell.metadata.nbgrader.points = 600
    return notebook


def graded_as_prose(course: Course) -> NotebookNode:
    """Graded cells turned into text."""
    notebook = _empty(course)
    notebook.cells = [
        nbformat.v4.new_markdown_cell("nothing to see", metadata=c.metadata)
        if c.metadata.get("nbgrader", {}).get("grade") and not is_answer(c)
        else c
        for c in notebook.cells
    ]
    return notebook


NOTEBOOKS: dict[str, Callable[[Course], NotebookNode]] = {
    f.__name__: f
    for f in (forged_points, forged_checksum, turned_into_answers, deleted, doubled, other_exercise, graded_as_prose)
}
