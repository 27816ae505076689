"""Pipelines' orders: those of the papers and of torch, what is wrong with others, and their runs in virtual time."""

from __future__ import annotations

import re

import pytest
from allranks import pipelines
from allranks.theory.pipelines import PipelineError, check, orders, picture, read, timeline

# rank by rank, for p = 4 and m = 8, written down from the papers' figures; one line a rank
ORDERS = {
    "gpipe": ["F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7"] * 4,
    "1f1b": [
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
    ],
    "zb-h1": [
        "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7",
        "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7",
        "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7",
        "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7",
    ],
    "zb-h2": [
        "F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7",
        "F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 W1 I4 W2 I5 W3 I6 W4 I7 W5 W6 W7",
        "F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7",
        "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7",
    ],
    "interleaved": [
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 0B2 0B3 "
        "4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7",
        "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 1F4 5B0 1F5 5B1 1F6 5B2 1F7 5B3 5F4 1B0 5F5 1B1 5F6 1B2 5F7 1B3 "
        "5B4 5B5 5B6 5B7 1B4 1B5 1B6 1B7",
        "2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 2F4 6B2 2F5 6B3 2F6 2B0 2F7 2B1 6F4 2B2 6F5 2B3 6F6 6B4 "
        "6F7 6B5 6B6 6B7 2B4 2B5 2B6 2B7",
        "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 "
        "7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7",
    ],
}
# makespan; each rank's time from first to last; idle within it; peak if freed at W, and at I or B
RUNS = {
    "gpipe": (33, [33, 30, 27, 24], [9, 6, 3, 0], [8, 8, 8, 8], [8, 8, 8, 8]),
    "1f1b": (33, [33, 30, 27, 24], [9, 6, 3, 0], [4, 3, 2, 1], [4, 3, 2, 1]),
    "zb-h1": (27, [27, 26, 25, 24], [3, 2, 1, 0], [4, 4, 4, 4], [4, 3, 2, 1]),
    "zb-h2": (27, [24, 24, 24, 24], [0, 0, 0, 0], [7, 7, 7, 7], [7, 5, 3, 1]),
    "interleaved": (28.5, [28.5, 27, 25.5, 24], [4.5, 3, 1.5, 0], [5.5, 4.5, 3.5, 2.5], [5.5, 4.5, 3.5, 2.5]),
}


def ordered(*lines: str, micro_batches: int = 2, **more):
    return read([line.split() for line in lines], micro_batches, **more)


@pytest.mark.parametrize("name", pipelines.SCHEDULES)
def test_the_orders_are_those_of_the_papers(name):
    made = orders(name, 4, 8)
    assert [" ".join(mine) for mine in made.texts] == ORDERS[name]
    assert [pipelines.order(name, rank, 4, 8) for rank in range(4)] == list(made.actions)
    again = ordered(*ORDERS[name], micro_batches=8, stages=made.stages)
    assert again.actions == made.actions


@pytest.mark.parametrize("name", pipelines.SCHEDULES)
def test_the_runs_are_those_of_the_papers(name):
    run = timeline(orders(name, 4, 8))
    found = (run.makespan, [run.span(r) for r in range(4)], [run.span(r) - run.busy(r) for r in range(4)])
    assert (*found, run.peaks(), run.peaks("input")) == RUNS[name]
    assert run.idle_share() == pytest.approx(1 - 24 / run.makespan)
    assert all(run.busy(rank) == 24 for rank in range(4))


@pytest.mark.parametrize("name", pipelines.SCHEDULES)
def test_every_schedule_is_right_for_any_ranks_and_micro_batches_that_it_allows(name):
    allowed = 0
    for ranks in (1, 2, 3, 4, 5, 8):
        for micro_batches in (1, 2, 3, 4, 7, 8, 12, 16):
            try:
                made = orders(name, ranks, micro_batches)
            except PipelineError:
                assert name == "interleaved"
                continue
            allowed += 1
            assert check(made) is None
            if name in ("gpipe", "1f1b"):
                assert timeline(made).makespan == 3 * (micro_batches + ranks - 1)
            if name == "1f1b":
                assert timeline(made).peaks() == [min(ranks - rank, micro_batches) for rank in range(ranks)]
    assert allowed >= 30


@pytest.mark.parametrize(("ranks", "micro_batches", "several"), [(2, 4, 3), (4, 16, 2), (8, 32, 4)])
def test_interleaving_divides_the_bubble_by_the_stages_of_a_rank(ranks, micro_batches, several):
    run = timeline(orders("interleaved", ranks, micro_batches, stages_per_rank=several))
    assert run.makespan == pytest.approx(3 * micro_batches + 3 * (ranks - 1) / several)


def test_times_are_those_that_were_given():
    assert timeline(orders("zb-h1", 4, 8), input=1.2, weights=0.8).makespan == pytest.approx(28.2)
    assert timeline(orders("gpipe", 4, 8), send=1).makespan == 33 + 2 * 3
    assert timeline(orders("1f1b", 4, 8), backward=1).makespan == 2 * (8 + 3)
    with pytest.raises(PipelineError, match="forward must be a time of at least 0, not -1"):
        timeline(orders("1f1b", 2, 2), forward=-1)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (("F0 B0 F1", "F0 B0 F1 B1"), "rank 0 lacks B1 of stage 0."),
        (("F0 B0 B1", "F0 B0 F1 B1"), "rank 0 lacks F1 of stage 0."),
        (("F0 B0 F1 I1", "F0 B0 F1 B1"), "rank 0 lacks W1 of stage 0: it runs I1 only."),
        (("F0 B0 F1 B1", "F0 B0 F1 F0 B1"), "rank 1 runs F0 of stage 1 twice."),
        (
            ("F0 B0 F1 B1 W1", "F0 B0 F1 B1"),
            "rank 0 runs B1 and W1 of stage 0: B is I and W in one, so a gradient is made twice.",
        ),
        (("B0 F0 F1 B1", "F0 B0 F1 B1"), "rank 0 runs B0 of stage 0 before its F0."),
        (("F0 W0 I0 F1 B1", "F0 B0 F1 B1"), "rank 0 runs W0 of stage 0 before its I0."),
        (("F0 B0 F1 5B1", "F0 B0 F1 B1"), "rank 0 runs B1 of stage 5, but the stages are 0 to 1."),
        (("F0 B0 F1 1B1", "F0 B0 F1 B1"), "rank 0 runs B1 of stage 1, which is on rank 1."),
        (("F0 B0 F2 B1", "F0 B0 F1 B1"), "rank 0 runs F2 of stage 0, but the micro-batches are 0 to 1."),
        (
            ("F0 B0 F1 B1", "F0 F1 B0 B1"),
            "deadlock: rank 0 waits, before B0 of stage 0, for B0 of stage 1, which rank 1 runs after F1 of stage 1; "
            "rank 1 waits, before F1 of stage 1, for F1 of stage 0, which rank 0 runs after B0 of stage 0.",
        ),
    ],
)
def test_wrong_orders_are_told_in_one_sentence(lines, sentence):
    wrong = ordered(*lines)
    assert check(wrong) == sentence
    with pytest.raises(PipelineError) as caught:
        timeline(wrong)
    assert str(caught.value) == sentence


def test_a_rank_that_waits_for_itself_is_a_deadlock_too():
    wrong = ordered("1F0 0F0 1B0 0B0", micro_batches=1, stages=2)
    assert check(wrong) == (
        "deadlock: rank 0 waits, before F0 of stage 1, for F0 of stage 0, which it runs after F0 of stage 1."
    )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: orders("2f2b", 4, 8), "there is no schedule '2f2b'; there are gpipe, 1f1b"),
        (lambda: orders("1f1b", 0, 8), "ranks must be a whole number from 1 up, not 0"),
        (lambda: orders("1f1b", 4, 8, stages_per_rank=2), "1f1b has one stage a rank, not 2"),
        (lambda: orders("interleaved", 4, 9), "9 is no multiple of 2; take 8"),
        (lambda: pipelines.order("1f1b", 4, 4, 8), "there is no rank 4: the ranks are 0 to 3"),
        (lambda: read([["F0", "X1"]], 1), "'X1' in rank 0's order is no action"),
        (lambda: read([["F0"], ["F0"]], 1, stages=3), "3 stages can't be shared out to 2 ranks"),
        (lambda: read([["F0"]], 1, place="w"), "place must be one of loop, v"),
        (lambda: timeline(orders("1f1b", 1, 1)).kept(0, "B"), "freed must be one of weights, input"),
        (picture, "there is nothing to draw"),
    ],
)
def test_errors_say_how_to_go_on(call, sentence):
    with pytest.raises(PipelineError) as caught:
        call()
    assert sentence in str(caught.value)


# --------------------------------------------------------------------------------------------- torch's own schedules


def of_torch(name: str, ranks: int, micro_batches: int) -> list[list[str]]:
    """The actions of torch.distributed.pipelining that are work of a stage."""
    schedules = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    found = schedules.get_schedule_ops(name, ranks, micro_batches)
    return [[str(a) for a in mine if a is not None and not str(a).endswith("REDUCE_GRAD")] for mine in found]


def with_stages(made: pipelines.Orders) -> list[list[str]]:
    return [[str(action) for action in mine] for mine in made.actions]


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 2), (2, 6), (3, 7), (4, 8), (4, 10), (8, 16)])
def test_torch_has_the_same_orders(ranks, micro_batches):
    assert of_torch("GPipe", ranks, micro_batches) == with_stages(orders("gpipe", ranks, micro_batches))
    ours, theirs = with_stages(orders("1f1b", ranks, micro_batches)), of_torch("1F1B", ranks, micro_batches)
    assert ours[:-1] == theirs[:-1]
    if ours[-1] != theirs[-1]:  # torch 2.13 prints another order of the last rank than it runs: F1 to Fm, without F0
        assert check(read(theirs, micro_batches)).startswith(
            f"rank {ranks - 1} runs F{micro_batches} of stage {ranks - 1}, but"
        )


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 2), (2, 6), (3, 9), (4, 8), (4, 10), (4, 3), (8, 16)])
def test_torch_interleaves_the_same(ranks, micro_batches):
    ours = with_stages(orders("interleaved", ranks, micro_batches))
    assert of_torch("Interleaved1F1B", ranks, micro_batches) == ours


@pytest.mark.parametrize(
    ("name", "place", "makespan", "inside", "peaks"),
    [
        ("InterleavedZeroBubble", "loop", 25.5, [1.5, 1, 0.5, 0], [4, 4, 4, 4]),
        ("ZBVZeroBubble", "v", 25.5, [0, 0, 0, 0], [4, 4, 4, 4]),
        ("LoopedBFS", "loop", 28.5, [4.5, 3, 1.5, 0], [8, 8, 8, 8]),
    ],
)
def test_other_schedules_of_torch_run_too(name, place, makespan, inside, peaks):
    made = read(of_torch(name, 4, 8), 8, stages=8, place=place, name=name)
    assert check(made) is None
    run = timeline(made)
    assert (run.makespan, [run.span(r) - run.busy(r) for r in range(4)], run.peaks()) == (makespan, inside, peaks)


# ------------------------------------------------------------------------------------------------------- the picture


def test_the_picture_in_characters():
    assert str(picture(timeline(orders("1f1b", 2, 2)))) == (
        "1F1B: takes 9 forward passes, 33% idle, keeps at most 2, 1 micro-batches\n"
        "rank 0  F0 F1 .  .  B0 -- .  B1 --\n"
        "rank 1  .  F0 B0 -- F1 B1 -- .  ."
    )


def test_the_picture_has_a_box_for_each_action_and_only_the_themes_colours():
    from xml.etree import ElementTree

    drawn = picture(*(timeline(orders(name, 3, 4)) for name in ("gpipe", "interleaved", "zb-h1")))
    tree = ElementTree.fromstring(drawn.svg())
    titles = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 3 * 8 + 3 * 16 + 3 * 12
    assert "F0 of stage 0: forward, 0 to 1" in titles
    assert "ZB-H1: takes 14 forward passes" in tree.attrib["aria-label"]
    hatches = {re.search(r'id="([^"]+)"', one.svg())[1] for one in (drawn, picture(timeline(orders("zb-h1", 3, 4))))}
    assert len(hatches) == 2  # a hidden picture on the page must not hide the hatching of another
    page = drawn._repr_html_()
    assert "ar-theme" in page
    assert not re.findall(r"#[0-9a-f]{3,6}", drawn.svg())
    assert min(map(int, re.findall(r"font:(\d+)px", page.split("--ar-paper: #16191d")[-1]))) >= 12


def test_a_long_order_keeps_its_numbers_and_has_an_axis():
    """One micro-batch after the other takes long: the picture takes the width that is there."""
    from xml.etree import ElementTree

    slow = read([[f"{kind}{i}" for i in range(8) for kind in "FB"]] * 4, micro_batches=8, name="mine")
    short, long = orders("gpipe", 4, 8), timeline(slow)
    tree = ElementTree.fromstring(picture(timeline(short), long).svg())
    texts = [node for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    numbers = [node.text for node in texts if node.get("class") == "number"]
    assert sorted(numbers) == sorted([str(i) for i in range(8)] * 2 * 4 * 2), "each action of each rank, in both runs"
    boxes = [float(node.get("width")) for node in tree.iter() if node.get("class") in ("F", "B") and node.get("rx")]
    assert min(boxes) >= 8.9, "a digit of 12 px has room"
    assert float(tree.get("width")) <= 1240
    times = [int(node.text) for node in texts if node.get("class") == "time" and node.text.isdigit()]
    turn = times.index(0, 1)
    assert times[0] == 0 and times[turn - 1] <= 33 and 90 <= times[-1] <= long.makespan == 96
    narrow = ElementTree.fromstring(picture(timeline(orders("1f1b", 2, 2))).svg())
    assert float(narrow.get("width")) <= 540, "a short one has room beside an open sidebar"


def test_the_legend_has_each_look_once():
    drawn = picture(*(timeline(orders(name, 3, 4)) for name in ("1f1b", "zb-h1"))).svg()
    said = re.findall(r">(forward|backward[^<]*|waits)<", drawn)
    assert len(said) == 4 and "backward: both gradients, or the input's alone" in said
    alone = picture(timeline(orders("zb-h1", 3, 4))).svg()
    assert "backward: gradient of the input<" in alone and "both gradients" not in alone
