"""The questions for a GPU: each finds the fault that it looks for. That they pass on the CPU, with stand-ins, is in test_steps."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from allranks.machine.verify import questions
from allranks.machine.verify.run import ALL_STEPS
from allranks.machine.verify.steps import Context, Plan, StepFailed, StepSkipped, as_user_code
from allranks.ranks.engines.usercode import in_library
from allranks.ranks.world import RanksError


class Asked(Context):
    """A context whose world answers as the test says."""

    def __init__(self, world, plan=None):
        super().__init__(plan or Plan(2, "nccl", 1), 30)
        self._world = world

    def world(self):
        return self._world


def world(run, **more):
    return SimpleNamespace(ranks=2, run=run, pids=[1, 2], **more)


def test_a_gloo_group_with_a_wrong_sum_is_found():
    found = world(lambda function, deadline: ["", "the sum over a gloo group of two is 1.0"])
    with pytest.raises(StepFailed, match="rank 1: the sum over a gloo group of two is"):
        questions.ask_gloo_sub_group(Asked(found))


def test_symmetric_memory_must_hold_the_neighbours_number():
    with pytest.raises(StepFailed, match=r"The ranks read \[1.0, 1.0\] instead of \[1.0, 0.0\]"):
        questions.ask_symmetric_memory(Asked(world(lambda *_, **__: [("torch", 1.0), ("torch", 1.0)])))
    questions.ask_symmetric_memory(Asked(world(lambda *_, **__: [("torch", 1.0), ("torch", 0.0)])))


@pytest.mark.parametrize(
    ("count", "reaches", "said"),
    [
        (1, [], "torch takes one rank a GPU here: 2 ranks see 1 GPU each."),  # or one MIG device each
        (2, [True], ""),
        (2, [False], "These GPUs have no P2P"),  # consumer GPUs
    ],
)
def test_gpus_whose_memory_can_not_be_mapped_skip_the_step(monkeypatch, count, reaches, said):
    asked = iter(reaches)
    for name, value in (("current_device", 0), ("device_count", count), ("can_device_access_peer", None)):
        monkeypatch.setattr(torch.cuda, name, lambda *_, v=value: next(asked) if v is None else v)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda x, op: None)
    monkeypatch.setattr(questions, "device", lambda: torch.device("cpu"))
    why = questions.no_symmetric_memory()
    assert bool(why) == bool(said) and why.startswith(said)
    if why:
        with pytest.raises(StepSkipped, match=said):
            questions.ask_symmetric_memory(Asked(world(lambda *_, **__: [("", said)] * 2)))


@pytest.mark.parametrize(("end", "fails"), [(0.2, False), (0.6, True), (None, True)])
def test_a_bar_that_ends_at_the_wait_is_found(end, fails):
    bars = [(0, 0.0, 0.2), (0, 0.5, 0.6), (1, 0.1, end), (1, 0.5, 0.6)]
    events = [SimpleNamespace(rank=rank, op="all_reduce", start=start, end=over) for rank, start, over in bars]
    asked = Asked(world(None, trace=lambda *_, **__: (None, SimpleNamespace(events=events))))
    if fails:
        with pytest.raises(StepFailed, match="On rank 1 the bar ends at"):
            questions.ask_end_of_a_bar(asked)
    else:
        questions.ask_end_of_a_bar(asked)


def test_a_blind_profiler_is_found():
    seen = [{"events": 9, "kernels": 2, "nccl": 1}, {"events": 9, "kernels": 0, "nccl": 0}]
    with pytest.raises(StepFailed, match=r"saw no kernels on the ranks \[1\]"):
        questions.ask_profiler(Asked(world(lambda *_, **__: seen)))


def test_a_rank_that_does_not_answer_or_says_that_it_computes_is_found(monkeypatch):
    monkeypatch.setattr(questions, "ASK_AFTER_S", 0.0)
    monkeypatch.setattr(questions, "ask_ranks", lambda sockets: {0: {"waits_for": "GPU"}, 1: {"line": 3}})
    silent = world(lambda *_, **__: None, _engines=SimpleNamespace(watch=lambda rank: rank))
    with pytest.raises(StepFailed, match="item, rank 1: does not answer; print, rank 1"):
        questions.ask_panels(Asked(silent))
    monkeypatch.setattr(questions, "ask_ranks", lambda sockets: {key: {"waits_for": "GPU"} for key in sockets})
    asked = Asked(silent)
    questions.ask_panels(asked)
    assert list(asked.figures) == list(questions.KINDS)


def test_ranks_that_stay_after_an_assert_are_found():
    def run(function, deadline=None):
        if function is questions.break_the_device:
            raise RanksError("AcceleratorError: CUDA error: device-side assert triggered", {})
        return [1.0, 1.0]

    with pytest.raises(StepFailed, match="were not replaced"):
        questions.ask_assert(Asked(world(run)))
    with pytest.raises(StepFailed, match="gave no error"):
        questions.ask_assert(Asked(world(lambda function, deadline=None: [1.0, 1.0])))


def test_settings_that_are_frozen_are_found(monkeypatch):
    monkeypatch.setenv(questions.SETTING, "ALL")
    with pytest.raises(StepFailed, match=r"have \['INIT', 'INIT', 'INIT'\]"):
        questions.ask_settings(Asked(world(lambda function: ["INIT", "INIT"])))
    assert os.environ[questions.SETTING] == "ALL", "the user's own is back"
    asked = Asked(world(lambda function: [os.environ.get(questions.SETTING)] * 2))
    questions.ask_settings(asked)
    assert asked.figures["seen"] == ["INIT", "ENV", None]


def test_the_slowest_ranks_floor_counts():
    assert questions.ask_floors(Asked(world(lambda *_, **__: [{"a_us": 1.23456}, {"a_us": 2.34567}]))) == {
        "a_us": 2.346
    }


def test_what_a_step_waits_in_reads_as_a_users_line():
    """Reports leave out the course's own lines; a wait in them would never be asked about."""
    assert in_library(questions.hold.__code__.co_filename)
    assert not in_library(as_user_code(questions.hold).__code__.co_filename)


def test_each_question_has_a_limit_and_stands_before_what_takes_longer():
    names = [step.name for step in ALL_STEPS]
    asked = (*questions.CALLS, *questions.FAULTS, *questions.SWEEPS)
    assert all(step in ALL_STEPS and step.limit_s <= 60 for step in asked)
    assert names.index("panels") < names.index("hang") and names.index("floors") < names.index(
        "all_gather", names.index("floors")
    )
