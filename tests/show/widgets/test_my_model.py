"""My model: the figures are the cost model's, each chapter opens an axis more, and what a reader chose comes back."""

from __future__ import annotations

import json

import pytest
from allranks import MODELS, my_model, plan, training_step
from allranks.base import kept
from allranks.show.widgets import my_model_story as story
from allranks.theory.cost.workload import WorkloadError


@pytest.fixture(autouse=True)
def notebooks(tmp_path, monkeypatch):
    """A folder of the reader's own, as the kernel of a notebook has it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_step_is_that_of_the_plan():
    found = my_model("sharded_training")
    split = plan("my model", "dgx-h100", dp=64, zero_stage=1, bucket_nbytes=250 << 20, batch=256)
    assert (found.plan, found.step) == (split, training_step(split))
    assert found.set(zero_stage=2, tp=8).plan.dp == 8
    assert found.text().endswith("% MFU.")
    wide = my_model(model="LLaMA 65B", ranks=64, tokens=1 << 22, bucket=25 << 20, zero_stage=1, tp=4, pp=2)
    assert wide.step == training_step(plan("LLaMA 65B", "dgx-h100", dp=8, tp=4, pp=2, zero_stage=1, batch=2048))


def test_with_experts_it_is_another_model():
    dense, spread = my_model("your_own_job"), my_model("mixture_of_experts")
    assert (dense.plan.model.experts, spread.plan.model.experts) == (0, 8)
    many = MODELS["my model, 8 experts"]
    one_mlp = 32 * 3 * 4096 * 11008
    assert many.parameters - MODELS["my model"].parameters == 7 * one_mlp and many.expert_parameters == 8 * one_mlp
    with pytest.raises(WorkloadError, match="7B has no experts"):
        my_model(model="7B", ep=2)


def test_each_chapter_opens_an_axis_and_keeps_those_before():
    opened = [my_model(chapter).data["opened"] for chapter in story.OPENED_BY]
    assert opened == [1, 2, 3, 4, 5, 6, 7, 7] and my_model().data["opened"] == 7
    for axis in story.AXES:
        before, after = story.values_wanted(axis.chapter), story.values_at(axis.chapter)
        assert before[axis.key] != after[axis.key], f"{axis.name} is chosen where it is opened"
        locked = story.AXES[story.OPENED_BY[axis.chapter] :]
        assert all(after[later.key] == story.START[later.key] for later in locked if later.key != "ranks")


def test_it_fits_from_the_third_axis_on_and_each_axis_wins_something():
    """What the story says: until ZeRO it does not fit; then every axis makes something possible or shorter."""
    steps = [story.step_of(story.values_at(axis.chapter)) for axis in story.AXES]
    assert [step.fits for step in steps] == [False, False, True, True, True, True, True]
    assert steps[1].seconds < steps[0].seconds < story.step_of(story.START).seconds
    for chapter in ("tensor_parallel", "context_parallel"):
        with pytest.raises(WorkloadError):
            story.step_of(story.values_wanted(chapter))
    assert steps[4].seconds < story.step_of(story.values_wanted("pipelines")).seconds
    assert not story.step_of(story.values_wanted("mixture_of_experts")).fits


def test_what_is_impossible_says_why():
    with pytest.raises(WorkloadError, match="no chapter 'tensor' opens an axis; there are data_parallel, overlap"):
        my_model("tensor")
    with pytest.raises(WorkloadError, match="there is no value 'dp'; there are model, machine"):
        my_model(dp=8)
    with pytest.raises(WorkloadError, match="does not divide"):
        my_model(ranks=1024)
    assert my_model("data_parallel").set(tp=3).text().startswith("This split is impossible: tp x pp x cp is 3")


def test_only_a_reader_keeps_something(notebooks):
    found = my_model("pipelines")
    found.set(pp=2)
    assert list(notebooks.iterdir()) == []
    found.has_reader = True
    found.set(pp=8)
    assert json.loads(kept.place("my_model").read_text())["chosen"]["pipelines"]["pp"] == 8
    again, earlier = my_model("pipelines"), my_model("data_parallel")
    assert (again.values["pp"], earlier.kept["opened"]) == (4, 1)
    again.has_reader = earlier.has_reader = True
    assert (again.values["pp"], earlier.kept["opened"]) == (8, 5)
    assert earlier.values == story.values_at("data_parallel"), "what was chosen in another chapter stays there"
    other = my_model("your_own_job", ranks=8)
    other.has_reader = True
    other.set(zero_stage=3)
    assert set(kept.read("my_model")["chosen"]) == {"pipelines", "your_own_job ranks=8"}


def test_values_of_another_version_are_not_brought_back():
    kept.write("my_model", {"opened": 2, "chosen": {"pipelines": {"pp": 8}}})
    found = my_model("pipelines")
    found.has_reader = True
    assert found.values == story.values_at("pipelines")


def test_an_executed_page_begins_as_the_course_does(notebooks):
    kept.write("my_model", {"opened": 7, "chosen": {}})
    page = my_model("data_parallel")._repr_mimebundle_()[0]["text/html"]
    assert '"kept": {"opened": 1, "chosen": {}}' in page
