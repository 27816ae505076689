"""The real steps of `verify` on the CPU, and planted faults that each of them must notice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from allranks.base.chapters import find
from allranks.machine.verify import (
    ALL_STEPS,
    Plan,
    Step,
    StepFailed,
    StepSkipped,
    chapters,
    choose,
    faults,
    machine,
    questions,
    sweeps,
    verify,
)
from allranks.machine.verify import calls as calls_steps
from allranks.machine.verify.steps import Context
from waiting import gone as ended
from waiting import until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[3]
ON_THE_CPU = [step for step in ALL_STEPS if step.phase in ("machine", "calls", "faults")]


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """The outcomes of the first three phases on three ranks, by (phase, name)."""
    folder = tmp_path_factory.mktemp("record")
    record = verify(choose(3, minutes=30), folder, steps=ON_THE_CPU)
    assert record.ended == "complete"
    return {(o.phase, o.name): o for o in record.outcomes}


@pytest.mark.parametrize("step", ON_THE_CPU, ids=[f"{step.phase}: {step.name}" for step in ON_THE_CPU])
def test_step_on_the_cpu(step, proved):
    outcome = proved[step.phase, step.name]
    if outcome.result == "skip":
        assert step.name in ("gpus", "nccl", calls_steps.LISTS)  # this machine may lack these
        pytest.skip(outcome.reason)
    assert outcome.result == "pass", f"{outcome.reason}\n{outcome.output}"


def test_what_the_steps_found(proved):
    figures = {key: outcome.figures for key, outcome in proved.items()}
    assert figures["machine", "host"]["torch"] and figures["machine", "host"]["cores"] >= 1
    # a worker, a fork server, a controller and three ranks
    assert figures["machine", "listening sockets"]["processes"] >= 6
    assert figures["calls", "start"]["seconds_to_ranks"] > 0
    assert [row["rank"] for row in figures["calls", "start"]["ranks"]] == [0, 1, 2]
    for name in calls_steps.COLLECTIVES.keys() - {calls_steps.LISTS}:
        assert set(calls_steps.DTYPES) <= set(figures["calls", name]["right"])
        assert "wrong" not in figures["calls", name]
    assert figures["calls", "trace"]["messages"] == 3
    assert figures["calls", "symmetric memory"]["with"] == questions.STAND_IN
    assert all(set(figures["faults", "panels"][kind].values()) == {"GPU"} for kind in questions.KINDS)
    assert "The world has fresh ranks now" in figures["faults", "device-side assert"]["report"]
    assert figures["faults", "settings of NCCL"]["seen"] == ["INIT", "ENV", None]
    report = figures["faults", "hang"]["report"]
    assert (
        "rank 1: in dist.all_reduce" in report and "rank 2: in dist.all_reduce" in report and "rank 0: done" in report
    )
    assert "planted by verify" in figures["faults", "error beside .item()"]["report"]
    assert "Rank 2 was killed by SIGKILL" in figures["faults", "kill"]["report"]
    assert "rank 1: does not answer" in figures["faults", "pause"]["report"]
    memory = figures["faults", "memory back"]
    assert memory["with_ranks_mib"] - memory["before_mib"] > 3 * 200


@pytest.fixture(scope="module", autouse=True)
def no_world_stays():
    yield
    Context(Plan(2, "gloo"), 1).stop_world()


@pytest.fixture
def context():
    """What a step gets, with two ranks of a world that the tests here share."""
    return Context(Plan(2, "gloo"), 100)


def all_reduce_that_forgets_the_last_rank(rank, ranks, kind):
    import torch
    import torch.distributed as dist

    real = dist.all_reduce

    def lossy(x, **options):
        return real(x.zero_() if dist.get_rank() == ranks - 1 else x, **options)

    dist.all_reduce = lossy
    try:
        return calls_steps.all_reduce(rank, ranks, kind)
    finally:
        dist.all_reduce = real
        del torch


def refuses_int8(rank, ranks, kind):
    if kind == "int8":
        raise RuntimeError("Invalid scalar type")
    return ""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (all_reduce_that_forgets_the_last_rank, r"float32, rank 0: wrong: SUM: \d+ of 12 elements are wrong"),
        (refuses_int8, "int8, rank 0: refused: Invalid scalar type"),
    ],
)
def test_wrong_results_are_found(context, call, said):
    with pytest.raises(StepFailed, match=said):
        calls_steps.compare_dtypes(context, call)


@pytest.mark.parametrize("kind", [*calls_steps.DTYPES, *calls_steps.OTHERS])
def test_the_inputs_have_one_sum_in_every_dtype_whatever_the_order(kind):
    """NCCL rounds to the dtype at each hop of its ring; with the numbers 0 to 3, eight ranks' sums in float8_e5m2 were 10 and not 12."""
    dtype = getattr(torch, kind)
    wide = dtype if dtype == torch.bool or dtype.is_complex else torch.float32
    for ranks in (2, 3, 4, 8, 16):
        inputs = [torch.tensor(calls_steps.numbers(rank, calls_steps.COUNT, kind)).to(wide) for rank in range(ranks)]
        wanted = sum(inputs[1:], inputs[0])
        for first in range(ranks):
            total = inputs[first].to(dtype)
            for hop in range(1, ranks):
                total = (total.to(wide) + inputs[(first + hop) % ranks]).to(dtype)
            assert total.to(wide).equal(wanted), (ranks, first)


def refuses_float8_for_good(rank, ranks, kind):
    if "float8" in kind:
        raise RuntimeError("NCCL Reduce failed in reduce_scatter: invalid argument \nNCCL Last Error: ")
    return ""


def test_a_refusal_that_breaks_the_group_gives_the_next_dtype_fresh_ranks(context):
    """float8 on A100s, with torch 2.15: the rank stays in NCCL's open group, and no later call of it is ever sent."""
    before = context.world().pids
    calls_steps.compare_dtypes(context, refuses_float8_for_good)
    assert context.figures["refused"] == ["float8_e4m3fn", "float8_e5m2"]
    assert "complex64" in context.figures["right"] and len(context.figures["right"]) == 11
    assert not set(before) & set(context.world().pids)


def test_only_the_lists_of_an_old_gloo_may_be_refused(context, monkeypatch):
    def refuses(rank, ranks, kind):
        raise RuntimeError("Backend gloo does not support alltoall")

    monkeypatch.setitem(calls_steps.COLLECTIVES, calls_steps.LISTS, refuses)
    with pytest.raises(StepSkipped, match="gloo of this torch has no all_to_all of lists"):
        calls_steps.every_dtype(calls_steps.LISTS, context)
    monkeypatch.setitem(calls_steps.COLLECTIVES, "gather", refuses)
    with pytest.raises(StepFailed, match="does not support alltoall"):
        calls_steps.every_dtype("gather", context)


def test_the_comparison_sees_nan_and_missing_elements():
    assert (
        calls_steps.differing([1.0, float("nan")], [1.0, 2.0])
        == "1 of 2 elements are wrong; element 1 is nan instead of 2"
    )
    assert calls_steps.differing([1.0], [1.0, 2.0]) == "1 elements instead of 2"
    assert calls_steps.differing([1.005], [1.0], 1e-2) == ""


def test_a_wrong_answer_of_one_rank_fails_the_step(context):
    def one_is_wrong():
        import torch.distributed as dist

        return "it lost a group" if dist.get_rank() == 1 else ""

    with pytest.raises(StepFailed, match="rank 1: it lost a group"):
        calls_steps.on_all_ranks(one_is_wrong, 1, context)


def test_a_socket_that_all_may_reach_is_found(context):
    with socket.socket() as door:
        door.bind(("0.0.0.0", 0))
        door.listen()
        with pytest.raises(StepFailed, match=rf"listen on more than loopback: 0\.0\.0\.0:{door.getsockname()[1]} \("):
            machine.listening(context)
    machine.listening(context)


@pytest.mark.parametrize(
    ("words", "loopback"),
    [("127.0.0.1:80", True), ("::1:80", True), ("::ffff:127.0.0.1:80", True), ("0.0.0.0:80", False), (":::80", False)],
)
def test_what_is_loopback(words, loopback):
    assert machine._is_loopback(words) is loopback


def test_a_fault_without_a_report_fails(monkeypatch, context):
    monkeypatch.setattr(faults, "one_is_absent", faults.add)  # everybody comes
    with pytest.raises(StepFailed, match="A rank that does not come gave no error"):
        faults.hang(context)
    monkeypatch.setattr(faults, "SOON_S", 0.0)  # a report at the deadline comes later than this
    with pytest.raises(StepFailed, match="was not seen before the deadline"):
        faults.error_beside_item(context)


def test_memory_that_stays_is_found(monkeypatch, context):
    sizes = iter([150 << 20, 100 << 20, 100 << 20, 900 << 20])  # the first: ranks that have not quite ended
    monkeypatch.setattr(faults, "used_bytes", lambda on_gpus: next(sizes, 900 << 20))
    monkeypatch.setattr(faults, "GIVEN_BACK_S", 2.0)
    with pytest.raises(StepFailed, match="800 MiB more than before are in use"):
        faults.memory_back(context)


def test_the_floors_are_measured_on_the_cpu_too(context):
    found = questions.ask_floors(context)
    assert found["all_reduce_4_bytes_us"] > 0 and found["wait_alone_us"] >= 0


def test_a_sweep_keeps_rows_and_fits(context):
    context.plan = Plan(2, "gloo", max_bytes=4096)
    sweeps.sweep("all_reduce", context)
    found = context.figures
    assert [row["size"] for row in found["rows"]] == [8, 32, 128, 512, 2048, 4096]
    assert found["largest_bytes"] == 4096 and found["wrong"] == 0
    assert found["fit"] == "as ring" and len(found["alpha_us"]) == 3


def test_a_sweep_with_wrong_sums_fails(context, monkeypatch):
    real = sweeps.bench.sweep

    def spoilt(*args, **options):
        from dataclasses import replace

        found = real(*args, **options)
        return replace(found, rows=tuple(replace(row, wrong=5) for row in found.rows))

    monkeypatch.setattr(sweeps.bench, "sweep", spoilt)
    context.plan = Plan(2, "gloo", max_bytes=32)
    with pytest.raises(StepFailed, match="10 elements are wrong"):
        sweeps.sweep("broadcast", context)


NCCL_TESTS = """# nThread 1 nGpus 8 minBytes 8 maxBytes 128 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    33.24    0.00    0.00      0    32.90    0.00    0.00      0
   536870912     134217728     float     sum      -1   2087.4  257.20  450.10      0   2080.1  258.10  451.68    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 225.445
"""


def test_nccl_tests_stands_beside(monkeypatch, tmp_path, context):
    program = tmp_path / sweeps.PROGRAM
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{NCCL_TESTS}END\n")
    program.chmod(0o755)
    context.plan = Plan(8, "nccl", max_bytes=1 << 30)
    monkeypatch.setattr(sweeps, "largest", lambda context: 1 << 30)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StepSkipped, match="not on the PATH"):
        sweeps.nccl_tests(context)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    sweeps.nccl_tests(context)
    assert context.figures["command"] == "all_reduce_perf -b 8 -e 1073741824 -f 4 -g 8"
    assert context.figures["best_busbw_gb_per_s"] == 450.10
    assert context.figures["rows"][0] == {"size": 8, "time_us": 33.24, "busbw_gb_per_s": 0.0, "wrong": 0}
    program.write_text("#!/bin/sh\necho 'Test NCCL failure: unhandled cuda error' >&2\nexit 3\n")
    with pytest.raises(StepFailed, match="exited with 3: Test NCCL failure: unhandled cuda error"):
        sweeps.nccl_tests(context)


def test_the_record_names_the_nccl_that_torch_calls(context, monkeypatch):
    """Not the one for which torch was built, nor another one that is mapped."""
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.cuda.nccl.version", lambda: (2, 28, 9))
    monkeypatch.setattr(machine.libraries, "nccl_in_use", lambda: ((2, 30, 7), "/kit/libnccl.so.2"))
    found = machine.nccl(context)
    assert (found["version"], found["file"], found["built_for"]) == ("2.30.7", "/kit/libnccl.so.2", "2.28.9")
    monkeypatch.setattr(machine.libraries, "nccl_in_use", lambda: None)
    monkeypatch.setattr(machine.libraries, "candidates_of", lambda library: ["libnccl.so.2"])
    with pytest.raises(StepFailed, match="no NCCL of it answers"):
        machine.nccl(context)
    monkeypatch.setattr(machine.libraries, "candidates_of", lambda library: None)
    assert machine.nccl(context)["file"] == "a part of torch's own library"


CELLS = {
    "start": "from allranks import World\nworld = World(ranks=4)\nworld.ranks, world.backend",
    "meant": "raise RuntimeError('on purpose')",
    "quiet": "1 + 1",
    "broken": "1 / 0",
    "after": "world.run(lambda: 7)",
}


@pytest.fixture
def course(tmp_path):
    """A course with one chapter of five cells."""
    cells = [nbformat.v4.new_code_cell(source, id=name) for name, source in CELLS.items()]
    for cell in cells:
        if cell.id in ("meant", "quiet"):
            cell.metadata["tags"] = [chapters.RAISES]
    path = tmp_path / find("04_all_reduce").path
    path.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return tmp_path


def test_a_chapter_runs_to_its_end_and_tells_meant_errors_from_others(course, tmp_path):
    step = next(step for step in chapters.STEPS if step.name == "04_all_reduce")
    [outcome] = verify(Plan(3, "gloo", course=str(course)), tmp_path / "out", steps=[step]).outcomes
    assert outcome.result == "fail"
    assert outcome.reason == (
        "1 of 5 cells raised an error that is not meant, first broken: ZeroDivisionError: division by zero"
    )
    figures = outcome.figures
    assert (figures["cells"], figures["done"]) == (5, 5)
    assert figures["meant_errors"] == {"meant": "RuntimeError: on purpose"}
    assert figures["meant_without_error"] == ["quiet"]


def test_a_cell_that_the_steps_time_cuts_off_is_no_failure(course, monkeypatch):
    path = course / find("04_all_reduce").path
    cells = [nbformat.v4.new_code_cell("import time; time.sleep(60)", id="long")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    with pytest.raises(StepSkipped, match="The time was over after 0 of 1 cells"):
        chapters.run_notebook(path, Context(Plan(2, "gloo"), 4))
    monkeypatch.setattr(chapters, "CELL_S", 2)
    with pytest.raises(StepFailed, match="long: The cell did not end within 2 s"):
        chapters.run_notebook(path, Context(Plan(2, "gloo"), 100))


def test_a_chapter_has_the_ranks_of_the_run():
    source = "World(ranks=4); World(); World(ranks=4, backend='gloo')"
    shared = Context(Plan(2, "nccl", gpus=1), 1)
    assert chapters.in_this_world(source, shared) == (
        "World(ranks=2, backend='nccl', gpus=1); World(ranks=2, backend='nccl', gpus=1); World(ranks=4, backend='gloo')"
    )


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(2, "gloo"), "There is no folder chapters/ here"),
        (Plan(2, "gloo", course="/nowhere"), "The course's folder has no chapters/1_first_hours/04_all_reduce.ipynb."),
        (Plan(1, "gloo", course=str(ROOT)), "A chapter needs 2 ranks, and this run has 1."),
    ],
)
def test_a_chapter_that_can_not_run_is_skipped(plan, said):
    with pytest.raises(StepSkipped, match=said):
        chapters.chapter("04_all_reduce", Context(plan, 10))


def test_chapters_need_their_packages(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(StepSkipped, match="Chapters need matplotlib: pip install"):
        chapters.chapter("04_all_reduce", Context(Plan(2, "gloo", course=str(ROOT)), 10))


def test_the_chapters_are_those_of_the_course():
    assert [name for name in chapters.CHAPTERS if not (ROOT / find(name).path).is_file()] == []


def test_steps_have_names_of_their_own():
    assert len({(step.phase, step.name) for step in ALL_STEPS}) == len(ALL_STEPS)
    assert all(
        isinstance(step, Step) and step.limit_s > 0 and step.function.__doc__
        for step in ALL_STEPS
        if not hasattr(step.function, "func")
    )


# ------------------------------------------------------------------------------------------------------- the command


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "allranks.cli", "verify", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_json_is_one_object_and_equals_the_record(tmp_path):
    process = command("--only", "machine", "--ranks", "1", "--out", str(tmp_path), "--json")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.count("\n") == 1
    [file] = tmp_path.glob("*.json")
    assert json.loads(out) == json.loads(file.read_text())
    assert json.loads(out)["plan"]["ranks"] == 1


def test_every_step_is_printed_as_it_ends(tmp_path):
    process = command("--only", "machine", "--ranks", "2", "--out", str(tmp_path))
    first = process.stdout.readline()
    assert first.startswith("pass") and "machine: host" in first
    assert process.poll() is None  # it is not at its end yet
    rest = process.communicate(timeout=200)[0].splitlines()
    assert len(rest) == len(machine.STEPS)
    assert rest[-1].startswith(("5 passed, 0 failed, 2 skipped", "6 passed, 0 failed, 1 skipped"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "chapter"], "There is no phase 'chapter'; there are machine, calls, faults, sweeps, chapters.\n"),
        (["--minutes", "0"], "--minutes 0: it is a number of minutes above 0, for example 10.\n"),
        (["--ranks", "0"], "ranks=0: a world needs at least one rank; World(ranks=4) starts four.\n"),
        (["--out", "/proc/nowhere"], "The record can't be written to /proc/nowhere: No such file or directory. "),
    ],
)
def test_a_run_that_can_not_begin_is_one_sentence(arguments, said):
    process = command(*arguments)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(said) and err.count("\n") == 1


def test_a_signal_ends_the_run_with_its_record_and_without_its_ranks(tmp_path):
    process = command("--only", "faults", "--ranks", "2", "--out", str(tmp_path), start_new_session=True)
    assert "panels" in process.stdout.readline()
    at_step(process, tmp_path, "faults, error beside .item()")
    below = until(lambda: len(found := children(process)) >= 3 and found)  # the step's worker starts
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert ", then stopped" in out
    [file] = tmp_path.glob("*.json")
    data = json.loads(file.read_text())
    names = [step.name for step in ALL_STEPS if step.phase == "faults"]
    done = [step["name"] for step in data["steps"]]
    assert done[0] == "panels" and done == names[: len(done)]
    assert data["ended"] == "stopped" and data["now"] == f"faults, {names[len(done)]}"
    gone(below)


def test_a_killed_run_leaves_its_record_and_no_process(tmp_path):
    process = command("--only", "faults", "--ranks", "2", "--out", str(tmp_path), start_new_session=True)
    process.stdout.readline()
    below = children(process)
    left = set()  # a killed run can't remove its run directory
    for child in below:
        with contextlib.suppress(psutil.Error, KeyError):  # it may be ending, or have no environment of its own yet
            left.add(child.environ()["ALLRANKS_RUN_DIR"])
    process.kill()
    process.communicate()
    gone(below)
    left.discard(os.environ.get("ALLRANKS_RUN_DIR"))  # of a child that was only a copy of its parent yet
    for directory in left:
        shutil.rmtree(directory)
    [file] = tmp_path.glob("*.json")
    data = json.loads(file.read_text())
    assert data["ended"] == "running" and [step["name"] for step in data["steps"]] == ["panels"]


def at_step(process, folder, name):
    """Waits until the record says that this step runs: a step is said before the next one begins."""

    def there() -> bool:
        assert process.poll() is None
        return [json.loads(file.read_text())["now"] for file in folder.glob("*.json")] == [name]

    until(there)


def children(process):
    return psutil.Process(process.pid).children(recursive=True)


def gone(processes):
    until(lambda: not any(p.is_running() and not ended(p.pid) for p in processes), says=processes)
