"""A run of `verify`: each way in which a step can fail is written down as a failure, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace

import psutil
import pytest
from allranks.machine.verify import (
    PHASES,
    Outcome,
    Plan,
    Record,
    Step,
    StepFailed,
    StepSkipped,
    VerifyError,
    choose,
    verify,
    worker,
)
from allranks.machine.verify.run import _ends, _no_legacy, _phases, record_folder
from allranks.machine.verify.worker import Worker
from allranks.ranks.engines import gpu_processes
from allranks.ranks.engines.devices import Gpu, Inventory
from waiting import until

GIB = 1 << 30
PLAN = Plan(2, "gloo")


def right(context):
    return {"figure": 7}


def wrong(context):
    context.note(seen=3)
    print("what the step printed")
    raise StepFailed("Three is not four.")


def breaks(context):
    return {}["no such key"]


def sleeps(context):
    context.note(cell="third")
    time.sleep(60)


def holds_the_interpreter(context):
    import ctypes

    ctypes.PyDLL(None).sleep(60)  # no other thread of this process runs meanwhile


def dies(context):
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves(context):
    raise StepSkipped("There is no moon tonight.")


def hangs_with_ranks(context):
    """A world whose ranks wait in C++, and a step that never looks at them again."""
    world = context.world()
    context.note(pids=world.pids)
    world.run(_wait_for_nobody, deadline=500)


def _wait_for_nobody():
    import torch
    import torch.distributed as dist

    dist.recv(torch.ones(1), 0) if dist.get_rank() else time.sleep(1000)


def sums(context):
    def add():
        import torch
        import torch.distributed as dist

        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    return {"sums": context.world().run(add)}


def step(function, limit_s=100.0, phase="calls"):
    return Step(phase, function.__name__, function, limit_s)


@pytest.mark.live
def test_every_kind_of_failure_is_one_and_the_run_goes_on(tmp_path):
    written = []

    def say(outcome):
        [file] = tmp_path.glob("*.json")
        written.append(json.loads(file.read_text()))

    slow = [step(sleeps, 4.0), step(holds_the_interpreter, 1.0)]
    steps = [step(right), step(wrong), step(breaks), *slow, step(dies), step(leaves), step(right)]
    record = verify(PLAN, tmp_path, steps=steps, say=say)

    found = {o.name: o for o in record.outcomes}
    results = [(o.name, o.result) for o in record.outcomes]
    assert results == [
        ("right", "pass"), ("wrong", "fail"), ("breaks", "fail"), ("sleeps", "fail"), ("holds_the_interpreter", "fail"),
        ("dies", "fail"), ("leaves", "skip"), ("right", "pass"),
    ]  # fmt: skip
    assert found["right"].figures == {"figure": 7}
    assert found["wrong"].reason == "Three is not four." and found["wrong"].figures == {"seen": 3}
    assert found["wrong"].output == "what the step printed\n"
    assert found["breaks"].reason == "KeyError: 'no such key'"
    assert found["sleeps"].reason == "The step did not end within 4 s." and found["sleeps"].figures == {"cell": "third"}
    assert found["holds_the_interpreter"].reason == "The step did not end within 1 s."
    assert found["dies"].reason == "The process of the step was killed by SIGSEGV."
    assert found["leaves"].reason == "There is no moon tonight."

    # a step's result was on the disk before it was said, and the record names that step
    assert [len(data["steps"]) for data in written] == list(range(1, len(steps) + 1))
    assert written[3]["now"] == "calls, sleeps" and written[3]["ended"] == "running"
    [file] = tmp_path.glob("*.json")
    data = json.loads(file.read_text())
    assert data["ended"] == "complete" and data["counts"] == {"pass": 2, "fail": 5, "skip": 1}
    [page] = tmp_path.glob("*.md")
    assert "| wrong | **FAIL** |" in page.read_text() and "what the step printed" in page.read_text()


def test_the_driver_keeps_the_gpus_started_from_the_first_step_to_the_last(tmp_path, monkeypatch):
    """Else it starts all of them for each look, 1 to 3 s each without persistence mode: with eight GPUs more than a step has."""
    open_now, seen = set(), []

    def keep(uuids):
        open_now.update(uuids)
        return open_now.clear

    monkeypatch.setattr(gpu_processes, "keep_initialized", keep)
    monkeypatch.setattr(Inventory, "of_this_machine", lambda: Inventory((CARD,), 4, OLD))
    say = lambda outcome: seen.append((outcome.result, set(open_now)))  # noqa: E731
    verify(Plan(2, "nccl"), tmp_path, steps=[step(right)], say=say)
    assert seen == [("pass", {"GPU-0"})] and not open_now


@pytest.mark.live
def test_ranks_of_a_step_that_hangs_are_gone_before_the_next_one(tmp_path, monkeypatch):
    expect, hanging = Worker._expect, []

    def soon_over(self, timeout_s, otherwise):  # its time counts from the start of its ranks on, which may be slow
        message = expect(self, 2.0 if self in hanging else timeout_s, otherwise)
        if message[0] == "figures" and "pids" in message[1]:
            hanging.append(self)
        return message

    monkeypatch.setattr(Worker, "_expect", soon_over)
    record = verify(PLAN, tmp_path, steps=[step(hangs_with_ranks), step(sums)])
    hung, after = record.outcomes
    assert hung.reason == "The step did not end within 100 s."  # no word of processes that had to be killed
    assert len(hung.figures["pids"]) == 2
    assert not any(psutil.pid_exists(pid) for pid in hung.figures["pids"])
    assert after.figures == {"sums": [2.0, 2.0]}


def test_an_interrupt_keeps_what_was_found(tmp_path):
    def send():
        until(lambda: [json.loads(file.read_text())["now"] for file in tmp_path.glob("*.json")] == ["calls, sleeps"])
        os.kill(os.getpid(), signal.SIGINT)

    def interrupt(outcome):
        threading.Thread(target=send, daemon=True).start()

    record = verify(PLAN, tmp_path, steps=[step(right), step(sleeps, 60.0), step(right)], say=interrupt)
    assert record.ended == "stopped" and [o.result for o in record.outcomes] == ["pass"]
    [page] = tmp_path.glob("*.md")
    assert "It was stopped in calls, sleeps." in page.read_text()


def test_a_phase_ends_at_its_minute(tmp_path, monkeypatch):
    monkeypatch.setattr("allranks.machine.verify.run._ends", lambda phases, seconds: {"machine": 1.0, "calls": 100.0})
    steps = [step(right, phase="machine"), step(right)]
    found = verify(PLAN, tmp_path, steps=steps).outcomes
    assert [o.result for o in found] == ["skip", "pass"]
    assert found[0].reason == "The time of the phase machine was over; --minutes takes more than 10."


def test_a_step_that_its_phase_cuts_off_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("allranks.machine.verify.run._ends", lambda phases, seconds: {"machine": 6.0, "calls": 100.0})
    steps = [step(sleeps, 60.0, phase="machine"), step(wrong)]
    found = verify(PLAN, tmp_path, steps=steps).outcomes
    assert [o.result for o in found] == ["skip", "fail"]
    assert found[0].reason == "Cut off by the end of the phase machine; --minutes takes more than 10."


def test_a_slow_start_is_no_phases_time(tmp_path, monkeypatch):
    """The first import from a network disk takes longer than the first phase of a short run."""
    wait = Worker.wait
    monkeypatch.setattr(Worker, "wait", lambda self, most_s: (time.sleep(7), wait(self, most_s)))
    monkeypatch.setattr("allranks.machine.verify.run._ends", lambda phases, seconds: {"machine": 6.0})
    found = verify(replace(PLAN, minutes=2), tmp_path, steps=[step(right, phase="machine")]).outcomes
    assert [o.result for o in found] == ["pass"]


def test_a_worker_that_does_not_start_is_not_waited_for_twice(tmp_path, monkeypatch, no_ghosts):
    passed_s, monotonic = [0.0], time.monotonic

    def expect(self, timeout_s, otherwise):
        passed_s[0] += timeout_s
        raise StepFailed(f"The step {otherwise}.")

    monkeypatch.setattr(worker.time, "monotonic", lambda: monotonic() + passed_s[0])
    monkeypatch.setattr(Worker, "_expect", expect)
    made = Worker(PLAN, tmp_path / "steps.log", dict(os.environ))
    made.wait(600)
    outcome = made.run(step(right), 60)
    assert (outcome.result, outcome.reason) == ("fail", "The step did not start.")
    assert passed_s[0] <= worker.START_S


def test_phases_share_the_minutes():
    assert _ends(set(PHASES), 600) == {"machine": 90, "calls": 210, "faults": 390, "sweeps": 480, "chapters": 600}
    assert _ends({"sweeps", "faults"}, 450) == {"faults": 300, "sweeps": 450}


def test_one_rank_leaves_the_time_of_the_chapters_to_the_others():
    steps = [step(right, phase=phase) for phase in PHASES]
    assert _phases(steps, Plan(1, "nccl")) == set(PHASES) - {"chapters"} and _phases(steps, PLAN) == set(PHASES)


CARD = Gpu(0, "GPU-0", "NVIDIA H100 80GB HBM3", 80 * GIB)
NEW, OLD = (2, 30, 7), (2, 28, 9)


@pytest.mark.parametrize(
    ("have", "asked", "plan"),
    [
        (Inventory((), 4, None), (None, None), (4, "gloo", None)),
        (Inventory((), 4, NEW), (2, None), (2, "gloo", None)),
        (Inventory((CARD,), 4, NEW), (None, None), (2, "nccl", 1)),
        (Inventory((CARD,), 4, OLD), (None, None), (1, "nccl", 1)),
        (Inventory((CARD,), 4, NEW), (4, 1), (4, "nccl", 1)),
        (Inventory((CARD,), 4, NEW), (4, None), (4, "nccl", 1)),
        (Inventory((CARD, Gpu(1, "GPU-1", "NVIDIA H100", 80 * GIB)), 4, OLD), (None, None), (2, "nccl", None)),
    ],
)
def test_the_plan_uses_the_gpus_that_are_there(have, asked, plan):
    found = choose(*asked, inventory=have)
    assert (found.ranks, found.backend, found.gpus) == plan


def test_several_ranks_on_one_gpu_need_a_new_nccl():
    from allranks.ranks.engines.devices import DeviceError

    with pytest.raises(DeviceError, match=r"NCCL 2\.28\.9 takes one rank a GPU"):
        choose(2, 1, inventory=Inventory((CARD,), 4, OLD))


def test_an_unknown_phase_is_refused(tmp_path):
    with pytest.raises(VerifyError, match="There is no phase 'chapter'; there are machine, calls"):
        verify(PLAN, tmp_path, only=["chapter"])


def test_the_second_pass_says_why_there_is_none(tmp_path, monkeypatch):
    record = verify(PLAN, tmp_path, steps=[step(right), step(right, phase="machine")], legacy=True)
    assert [(o.phase, o.legacy, o.result) for o in record.outcomes] == [
        ("calls", False, "pass"), ("machine", False, "pass"), ("calls", True, "skip"),
    ]  # fmt: skip
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.11.0+cu130")
    assert _no_legacy(Plan(2, "nccl")) == "torch 2.11.0+cu130 has only the older backend: the first pass was with it."
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.15.0+cu132")
    assert _no_legacy(Plan(2, "nccl")) == ""


def legacy_setting(context):
    return {"setting": os.environ.get("TORCH_DIST_USE_NCCL2"), "on_ranks": context.world().run(_setting)}


def _setting():
    return os.environ.get("TORCH_DIST_USE_NCCL2")


@pytest.mark.live
def test_the_second_pass_sets_the_older_backend_on_the_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr("allranks.machine.verify.run._no_legacy", lambda plan: "")
    first, second = verify(PLAN, tmp_path, steps=[step(legacy_setting, 60)], legacy=True).outcomes
    assert first.figures == {"setting": None, "on_ranks": [None, None]}
    assert second.figures == {"setting": "0", "on_ranks": ["0", "0"]} and second.legacy


def test_a_record_names_no_folder_and_no_host(tmp_path, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node17.example")
    monkeypatch.setenv("HOME", "/home/ada")
    record = Record(Plan(2, "gloo", course="/srv/all-ranks"), "2026-01-02 03:04", "cpu")
    text = 'File "/srv/all-ranks/chapters/x.py" on node17.example, /home/ada/y, /opt/env/lib/python3.12/site-packages/torch/z.py'
    clean = record.add(Outcome("calls", "a", "fail", reason=text, figures={"deep": [{"file": text}]}, output=text))
    wanted = 'File "COURSE/chapters/x.py" on HOST, ~/y, site-packages/torch/z.py'
    assert (clean.reason, clean.figures["deep"][0]["file"], clean.output) == (wanted,) * 3
    assert "course" not in record.to_dict()["plan"]


def test_the_record_goes_to_the_course_if_it_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "docs" / "verified").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert record_folder(tmp_path, None) == tmp_path / "docs" / "verified"
    assert record_folder(None, None) == tmp_path
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert record_folder(tmp_path, None) == tmp_path
    assert record_folder(tmp_path, tmp_path / "out") == tmp_path / "out"


def test_a_record_is_replaced_whole(tmp_path, monkeypatch):
    record = Record(PLAN, "2026-01-02 03:04", "cpu")
    record.write(tmp_path)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(before) == {"verify-cpu-2-ranks-202601020304.json", "verify-cpu-2-ranks-202601020304.md"}
    record.add(Outcome("calls", "a", "pass"))
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        record.write(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
