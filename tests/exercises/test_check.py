"""`check` in a notebook and `allranks check` on the command line: the verdict's form, its exit codes, its manners.

That doing nothing earns nothing is tried for every third exercise in a run of everything, and for all when this file or its folder
is named, and nightly.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from allranks import check, pipelines
from allranks.exercises import ExerciseError, get, names
from allranks.judge import diagnose, run
from allranks.judge.cases import Setup, plain, vectors
from allranks.judge.drawing import Draws
from allranks.judge.judging import MAX_RANKS, judge, judge_text
from allranks.judge.source import from_text
from allranks.judge.verdict import Case, Verdict
from allranks.ranks.wire import Program, Ranks

ROOT = Path(__file__).parents[2]
RIGHT = ROOT / "tests/exercises/right/ring_all_reduce/isend_recv.py"
WRONG = ROOT / "tests/exercises/wrong/ring_all_reduce"


def distributed_mean(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def sums(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total)
    return total


def cli(*args, cwd=None):
    code = "import sys; from allranks.cli import main; sys.argv = ['allranks', *sys.argv[1:]]; main()"
    command = [sys.executable, "-c", code, "check", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_check_finds_the_exercise_by_name():
    verdict = check(distributed_mean)
    assert verdict.passed, verdict.text()
    assert verdict.exercise == "distributed_mean"
    assert len(verdict.cases) >= 15


def test_check_takes_the_exercise_from_its_argument():
    verdict = check(sums, exercise="distributed_mean")
    assert not verdict.passed
    assert "the sum instead of the mean" in verdict.reason


def test_check_knows_what_is_no_exercise():
    with pytest.raises(ExerciseError, match="Did you mean ring_all_reduce"):
        check(sums, exercise="ring_allreduce")
    with pytest.raises(ExerciseError, match="takes the function itself"):
        check("ring_all_reduce")
    with pytest.raises(ExerciseError, match="lambda"):
        check(lambda tensor: None)
    with pytest.raises(ExerciseError, match="no exercise 'sums': name the exercise"):
        check(sums)
    with pytest.raises(ExerciseError, match="type partial has no name: name the exercise"):
        check(functools.partial(sums))


def test_a_notebooks_function_may_call_a_cached_one(monkeypatch):
    """From a kernel, which ranks are not forked from; in each run the cache is empty."""
    monkeypatch.setenv("ALLRANKS_WIRE_LAUNCH", "forkserver")
    source = """
import functools
import torch.distributed as dist

@functools.cache
def group(p):
    return dist.new_group(range(p))

def distributed_mean(tensor):
    total, p = tensor.clone().contiguous(), dist.get_world_size()
    dist.all_reduce(total, group=group(p))
    return total / p
"""
    main = ModuleType("__main__")
    exec(source, main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    verdict = check(main.distributed_mean)
    assert verdict.score == 1, verdict.text()


def test_a_notebooks_function_keeps_its_lines():
    def ring_all_reduce(tensor):
        dist.send(tensor, (dist.get_rank() + 1) % dist.get_world_size())

    verdict = check(ring_all_reduce)
    line = ring_all_reduce.__code__.co_firstlineno + 1
    assert f"line {line}" in verdict.reason, verdict.reason


def test_the_trace_is_the_students_own_run_with_chunks_and_contributions():
    verdict = judge_text(get("ring_all_reduce"), RIGHT.read_text(), "isend_recv.py")
    trace = verdict.trace
    assert (trace.ranks, trace.chunks, trace.steps) == (4, 4, 6)
    from allranks.theory.schedules import ring_all_reduce as schedule

    def moves(trace):
        return {(m.step, m.src, m.dst, m.chunks, m.reduce, m.contrib) for m in trace.messages()}

    right = schedule(ranks=4)
    right.verify()
    assert moves(trace) == moves(right.trace(96))


def test_a_deadlock_is_drawn():
    verdict = judge_text(get("ring_all_reduce"), (WRONG / "sends_before_receives.py").read_text())
    assert verdict.svg.startswith("<svg")
    assert verdict.svg in verdict.html()
    assert "→" in verdict.reason


def test_a_send_to_the_wrong_rank_is_not_called_a_wrong_order():
    text = (WRONG.parent / "ring_shift" / "sends_two_places_on.py").read_text()
    told = [case.reason for case in judge_text(get("ring_shift"), text).cases if "deadlock" in case.reason]
    assert told
    assert not [reason for reason in told if "sends before" in reason or "sends to" not in reason]


def test_padding_is_called_so_by_every_rule_that_it_breaks():
    text = (WRONG.parent / "all_gather_v" / "padded.py").read_text()
    broken = [case.reason for case in judge_text(get("all_gather_v"), text).cases if not case.passed]
    assert len(broken) == 2
    assert all("that is what padding to the longest part costs" in reason for reason in broken)


def test_the_verdict_as_html_escapes_and_as_json_is_closed():
    cases = (Case("a: <b>", False, "x < y", "a"), Case("a: c", True, "", "a"))
    verdict = Verdict("ring_all_reduce", False, 0.5, cases, "x < y & z")
    page = verdict._repr_mimebundle_()["text/html"]
    assert "<strong>&lt;b&gt;</strong>" in page and "<b>: x" not in page
    assert "x &lt; y &amp; z" in page
    assert "var(--ar-lost)" in page  # in both themes
    assert set(verdict.to_dict()) == {"exercise", "passed", "score", "cases", "reason"}
    assert verdict.to_dict()["cases"][0] == {"name": "a: <b>", "passed": False, "reason": "x < y"}
    assert "not yet, 50%" in verdict._repr_mimebundle_()["text/plain"]


def test_the_card_tells_the_last_checks_of_this_notebook(monkeypatch):
    monkeypatch.setattr("allranks.exercises._checks", {})

    def distributed_mean(tensor):
        return tensor

    first = check(distributed_mean)
    assert "Your last checks" not in first.html()

    def distributed_mean(tensor):
        dist.all_reduce(tensor)
        return tensor

    second = check(distributed_mean)
    assert [words for _, words in second.history] == [first.brief(), "wrong values"]
    assert second.brief() == "the sum instead of the mean"  # folded on its card
    assert "2 different mistakes: that is progress" in second.html()
    same = check(distributed_mean)
    assert [words for _, words in same.history][1:] == ["wrong values"] * 2 and "progress" not in same.html()

    def distributed_mean(tensor):
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total / dist.get_world_size()

    good = check(distributed_mean)
    assert [words for _, words in good.history] == [second.brief(), second.brief(), "passed"]
    assert "Your last checks" in good.html() and "progress" not in good.html()
    assert good.html().count('<i class="good" aria-hidden="true">✓</i><small>') == 1, (
        "the dot of what passed is another one"
    )

    def distributed_mean(tensor):
        return None

    later = check(distributed_mean)
    assert [words for _, words in later.history] == [second.brief(), "passed", "returns something of another kind"]
    assert "progress" not in later.html(), "what passed is no mistake"


def test_inputs_follow_from_the_secret():
    exercise, setup = get("ring_all_reduce"), Setup(3, 8, values="random")

    def made(secret):
        return torch.cat([args[0].tensor() for args in exercise.inputs(setup, setup.draws(secret))])

    assert torch.equal(made(1), made(1))
    assert not torch.equal(made(1), made(2))


@pytest.mark.parametrize("number", ["10**400", "-(10**400)", "float('inf')", "float('nan')", "True", "1j"])
def test_strange_numbers_are_wrong_and_no_accident(number):
    verdict = judge_text(get("fit_line"), f"def fit_line(points):\n    return {number}, {number}\n")
    assert verdict.score == 0 and len(verdict.cases) == 11


LEAKS = {
    "a text": "raise ValueError('inp' f'uts {tensor.tolist()}')",
    "an import's text": "raise ImportError('inp' f'uts {tensor.tolist()}')",
    "an exception's name": "raise type('inp' f'uts {tensor.tolist()}', (Exception,), {})()",
    "a type's name": "return type('inp' f'uts {tensor.tolist()}', (), {})()",
    "a returned text": "return 'inp' f'uts {tensor.tolist()}'",
    "a print": "print('inp' f'uts {tensor.tolist()}')",
    "an exit's text": "raise SystemExit('inp' f'uts {tensor.tolist()}')",
}


@pytest.mark.parametrize("way", LEAKS)
def test_a_secret_withholds_what_a_student_could_say_of_the_inputs(way):
    source = f"def ring_reduce_scatter(tensor):\n    {LEAKS[way]}\n"
    verdict = judge_text(get("ring_reduce_scatter"), source, secret=7)
    assert not verdict.passed
    assert not any("inputs" in c.reason or "[" in c.reason for c in verdict.cases)
    assert "inputs" not in verdict.html() + verdict.text()


def test_without_a_secret_the_students_own_text_is_told():
    source = "def ring_shift(tensor, k):\n    raise ValueError('my own words')\n"
    assert "my own words" in judge_text(get("ring_shift"), source).reason


def test_an_unwritten_exercise_is_called_so():
    verdict = judge_text(get("ring_shift"), "def ring_shift(tensor, k):\n    raise NotImplementedError()\n")
    assert "not written yet" in verdict.reason
    assert verdict.score == 0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if turn % 3 else ()) for turn, name in enumerate(names())]
)
def test_doing_nothing_earns_nothing(name, pool):
    verdict = judge_text(get(name), f"def {name}(*args):\n    return None\n", pool=pool)
    assert not verdict.passed
    assert verdict.score == 0, verdict.text()


@pytest.mark.core
def test_the_command_line_passes_a_right_file():
    done = cli("ring_all_reduce", RIGHT, "--json")
    verdict = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(verdict) == {"exercise", "passed", "score", "cases", "reason"}
    assert verdict["passed"] is True
    assert verdict["score"] == 1.0
    assert len(verdict["cases"]) >= 30
    assert done.stderr == ""


@pytest.mark.core
def test_the_command_line_fails_a_wrong_notebook(tmp_path):
    text = (WRONG / "mean.py").read_text()
    cells = [
        {
            "cell_type": "code",
            "source": "import torch\nimport torch.distributed as dist\nfrom allranks import World, check",
        },
        {"cell_type": "code", "source": "world = World(ranks=4)"},
        {"cell_type": "code", "source": text[text.index("def ring_all_reduce") :].replace("ring_all_reduce", "mine")},
        {"cell_type": "code", "source": "check(mine)"},
    ]
    path = tmp_path / "lab.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": cells}))
    done = cli("ring_all_reduce", path, "--function", "mine")
    assert done.returncode == 1
    assert "the mean instead of the sum" in done.stdout.lower()


@pytest.mark.parametrize(
    ("exercise", "text", "words"),
    [
        ("ring_all_reduce", "def other():\n    pass\n", "has no function ring_all_reduce"),
        ("ring_all_reduce", "def ring_all_reduce(:\n", "does not parse"),
        ("bruck_all_gathr", "def bruck_all_gathr():\n    pass\n", "Did you mean bruck_all_gather"),
    ],
)
def test_the_command_line_says_what_is_unusable(tmp_path, exercise, text, words):
    path = tmp_path / "a.py"
    path.write_text(text)
    for flag in ([], ["--json"]):
        done = cli(exercise, path, *flag)
        assert done.returncode == 2
        said = json.loads(done.stdout)["reason"] if flag else done.stderr
        assert words in said
        assert "Traceback" not in done.stderr


HOSTILE = {
    "exits": "import os\n    os._exit(0)",
    "raises SystemExit": "raise SystemExit(0)",
    "prints megabytes": "print('x' * (8 << 20))",
    "forks": "import os\n    os.fork()",
    "eats memory": "hoard = [bytearray(1 << 28) for _ in range(64)]",
    "kills itself": "import os\n    os.kill(os.getpid(), 9)",
    "returns nonsense": "return {'tensors': object()}",
    "changes the messenger": "import allranks.judge.in_rank.driver as d\n    d._state = lambda handle: 5",
    "patches the group": "import torch.distributed as dist\n    dist.get_world_size = lambda *a: 1",
    "sleeps": "import time\n    time.sleep(3600)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_functions_fail_with_one_reason_and_leave_nothing(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = _children()
    verdict = judge_text(get("ring_all_reduce"), f"def ring_all_reduce(tensor):\n    {HOSTILE[name]}\n", wall_s=4)
    assert not verdict.passed
    assert verdict.score < 0.1
    assert verdict.reason
    assert "Traceback" not in verdict.reason
    assert _children() <= before
    assert list(tmp_path.iterdir()) == []


def test_a_case_in_which_the_time_for_the_check_ends_is_told_as_not_run():
    shift = "import time\nimport torch.distributed as dist\n\ndef ring_shift(tensor, k):\n    time.sleep(1.5)\n    return tensor\n"
    verdict = judge_text(get("ring_shift"), shift, wall_s=4)
    ended = [case.reason for case in verdict.cases if "had not ended" in str(case.reason)]
    assert ended == [], "no call takes longer than it may"
    assert any("time for this check is used up" in str(case.reason) for case in verdict.cases)


def _children() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if parent == os.getpid():
                found.add(int(entry.name))
    return found


def test_a_cause_that_has_two_forms_has_one_vote():
    text = (
        RIGHT.read_text()
        + """
right = ring_all_reduce

def ring_all_reduce(tensor):
    right(tensor)
    if dist.get_world_size() == 1:
        tensor.mul_(2)
"""
    )
    reason = judge_text(get("ring_all_reduce"), text).reason
    assert "own contribution was added twice" in reason, reason


def test_a_mistake_that_fits_single_numbers_only_is_no_cause():
    # a 1 element tensor of -7 that ended as -3 on 3 ranks: the floor of the mean, by chance
    verdict = judge_text(
        get("ring_all_reduce"),
        RIGHT.read_text().replace(
            "(rank + 1 - step) % p, (rank - step) % p", "(rank - step) % p, (rank - step - 1) % p"
        ),
    )
    assert not verdict.passed
    assert not [case.reason for case in verdict.cases if "mean instead of the sum" in case.reason]


def test_nothing_changed_is_said_only_where_no_rank_changed_anything():
    def shift(tensor):
        rank, p = dist.get_rank(), dist.get_world_size()
        arriving = torch.empty_like(tensor.contiguous())
        if p > 1:
            sending = dist.isend(tensor.contiguous(), (rank + 1) % p)
            dist.recv(arriving, (rank - 1) % p)
            sending.wait()

    def zeroed_but_on_rank_0(tensor):
        shift(tensor)
        if dist.get_rank():
            tensor.zero_()

    assert "nothing changed: the function must write" in check(shift, exercise="ring_all_reduce").reason
    reason = check(zeroed_but_on_rank_0, exercise="ring_all_reduce").reason
    assert "nothing changed" not in reason


@pytest.mark.parametrize(
    ("told", "read"),
    [
        (["list", [["int", 1], ["tuple", [["int", 2]]]]], [1, (2,)]),
        (["list", 5], 5),
        (["list"], None),
        (["tuple", None], None),
        ("list", None),
        (5, None),
    ],
)
def test_what_a_rank_says_it_returned_is_read_warily(told, read):
    assert run._read_returned(told) == read


@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool"])
def test_doing_nothing_is_never_right_by_chance(dtype):
    for secret in range(300):
        first, second = vectors(Setup(2, 1, dtype), Draws(secret))
        assert not torch.equal(plain(first[0]), plain(second[0])), secret


def test_what_wrong_answers_return_is_not_kept(monkeypatch):
    kept, choose = [], diagnose.choose
    monkeypatch.setattr(diagnose, "choose", lambda cases: (kept.extend(cases), choose(cases))[1])
    check(sums, exercise="distributed_mean")
    assert any(not entry.passed for entry in kept)
    for entry in kept:
        assert entry.run.outcome.results == []
        assert all((result is None) == (not entry.passed) for call in entry.run.results for result in call)


def test_what_torch_imports_for_functional_collectives_is_no_time_of_the_answer(monkeypatch):
    """They import torch's compiler at their first call, for longer than an answer may compute."""
    monkeypatch.setattr("allranks.judge.run.CPU_S", 0.5)
    path = ROOT / "tests/exercises/right/distributed_mean/functional.py"
    verdict = judge_text(get("distributed_mean"), path.read_text(encoding="utf-8"))
    assert verdict.passed, verdict.text()


def by_a_helper(tensor):
    import torch.distributed._functional_collectives as funcol

    return funcol.all_reduce(tensor.contiguous(), "sum", dist.group.WORLD)


def mean_with_helper(tensor):
    return by_a_helper(tensor) / dist.get_world_size()


def by_autograd(tensor):
    return torch.autograd.grad(tensor, tensor, tensor)


IN_TEXT = "import torch\n\ndef distributed_mean(tensor):\n    {}\n"


@pytest.mark.parametrize(
    ("exercise", "answer", "imported"),
    [
        ("distributed_mean", mean_with_helper, "import_compiler"),
        ("distributed_mean", distributed_mean, None),
        ("distributed_mean", by_autograd, "import_autograd"),
        ("distributed_mean", IN_TEXT.format("torch.ones(2).backward(tensor)"), "import_autograd"),
        ("distributed_mean", IN_TEXT.format("backward = tensor"), None),
        ("tensor_parallel_mlp", distributed_mean, "import_autograd"),  # the judge differentiates what it returns
    ],
)
def test_what_ranks_would_import_is_imported_once_and_only_for_answers_that_use_it(
    monkeypatch, exercise, answer, imported
):
    asked = []
    for name in ("import_compiler", "import_autograd"):
        monkeypatch.setattr(Ranks, name, lambda self, name=name: asked.append(name))
    if isinstance(answer, str):
        answer = from_text(answer, exercise, "answer.py")
    with Ranks(1) as pool:
        run.CaseRunner(get(exercise), answer, pool, secret=0, wall_s=60)
    assert asked == ([imported] if imported else [])


def by_the_course(rank, stages, micro_batches):
    return pipelines.order("1f1b", rank, stages, micro_batches)


ITS_OWN = "The course's own tools are not available when your function is checked: write this part yourself."
IN_PIPELINE = "def zero_bubble_order(rank, stages, micro_batches):\n    {}\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            by_the_course,
            f"The program imports the course's own package, which is not there when an answer is checked. {ITS_OWN}",
        ),
        (
            IN_PIPELINE.format("from allranks import pipelines"),
            f"The program imports the course's own package in line 2, which is not there when an answer is checked. {ITS_OWN}",
        ),
        (IN_PIPELINE.format("import allranks\n    allranks.pipelines"), "in line 3, which is not there"),
        (IN_PIPELINE.format("import allranks.schedules.ring"), "in line 2, which is not there"),
        (IN_PIPELINE.format("from allranks.judge.judging import judge"), "in line 2, which is not there"),
        (IN_PIPELINE.format("import sys\n    sys.modules['allranks.pipelines']"), "KeyError: 'allranks.pipelines'"),
    ],
)
def test_the_courses_own_package_is_not_there_when_an_answer_is_checked(answer, said):
    exercise = get("zero_bubble_order")
    if isinstance(answer, str):
        answer = from_text(answer, "zero_bubble_order", "answer.py")
    with Ranks(MAX_RANKS) as pool:
        verdict = judge(exercise, answer, pool=pool)
        assert said in verdict.reason
        assert verdict.score == 0.0
        # it is there again for programs that are no answers
        assert (
            pool.run(
                Program("def f():\n    from allranks import pipelines\n    return pipelines.__name__", "f"), 2
            ).results
            == ["allranks.theory.pipelines"] * 2
        )


def test_ranks_are_started_only_as_many_as_a_case_needs(monkeypatch):
    asked = []
    ensure = Ranks._ensure
    monkeypatch.setattr(Ranks, "_ensure", lambda self, ranks: (asked.append(ranks), ensure(self, ranks)))
    with Ranks(17) as pool:
        run.CaseRunner(get("distributed_mean"), distributed_mean, pool, secret=0, wall_s=60).run(Setup(3, 2))
        assert len(pool.pids) == 3
    assert asked == [3]


MISSING = {
    "at the top": ("import no_such_package\ndef mirror(tensor):\n    return no_such_package.f(tensor)\n", 1),
    "in the function": ("def mirror(tensor):\n    from no_such_package.a import f\n    return f(tensor)\n", 2),
}


@pytest.mark.parametrize("secret", [0, 7])
@pytest.mark.parametrize("text, line", MISSING.values(), ids=MISSING)
def test_a_missing_package_is_named_with_its_line(text, line, secret):
    verdict = judge_text(get("mirror"), text, secret=secret)
    assert f"The program needs the package no_such_package in line {line}, which is not installed" in verdict.reason
    assert "only one file is handed in" in verdict.reason


@pytest.mark.parametrize(
    "line",
    [
        "raise ModuleNotFoundError('x', name='no_such_package' if tensor.sum() > 0 else 'no_such_other')",
        "raise ModuleNotFoundError(str(tensor), name='torch')",
        "__import__('x' + str(tensor.numel()))",
    ],
)
def test_with_a_secret_only_a_package_that_the_line_imports_is_named(line):
    text = f"if False:\n    import no_such_package, no_such_other\ndef mirror(tensor):\n    {line}\n"
    verdict = judge_text(get("mirror"), text, secret=7)
    assert "raised ModuleNotFoundError (line 4)" in verdict.reason
    assert "no_such" not in verdict.reason
