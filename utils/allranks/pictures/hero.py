"""The picture at the top of each chapter. It poses the chapter's question and never answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from allranks.pictures import scenes, scenes_numbers, scenes_programs
from allranks.pictures.flow import Flow, flow
from allranks.pictures.moves import image
from allranks.pictures.pictogram import WIDE, document, drawn, frame_of, n

# Of a picture that is 800 wide, in a column that is narrower: letters grow, so that none is smaller than 12 px on the screen.
GROWING = (
    "text{font:600 20px system-ui,sans-serif}.mark{font-size:40px}.small{font-size:18px}"
    "@media (max-width:560px){.small{display:none}}@media (max-width:500px){text{font-size:30px}}"
)
HIGH = 400.0


def _moved(f: Flow) -> Callable[[], scenes.Scene]:
    """A flow with the ranks' names."""

    def draw() -> scenes.Scene:
        body, high = labelled(f)
        return body, high, f.words()

    return draw


def labelled(f: Flow) -> tuple[str, float]:
    """The elements and the height of a flow with a name for each rank, on its box if the box is full, else above all boxes."""
    full = f.slots == 1 and {part.rank for part in f.before} == set(range(f.ranks))
    top = 0.0 if full else 40.0
    frame = replace(frame_of(f.ranks, WIDE, height=HIGH), top=top)
    y = top + frame.box / 2 + 7 if full else top - 12
    kinds = [f"on{rank}" if full else "words" for rank in range(f.ranks)]
    words = "".join(
        f'<text class="{kind}" x="{n(frame.x(rank) + frame.cell / 2)}" y="{n(y)}" text-anchor="middle">rank {rank}</text>'
        for rank, kind in enumerate(kinds)
    )
    return drawn(f, frame) + words, top + HIGH


def there_and_back() -> scenes.Scene:
    """Chapter 04: a scatter, and below it the gather that brings the parts back."""
    out, back = flow("scatter"), flow("gather")
    body, high = labelled(out)
    upper = replace(frame_of(out.ranks, WIDE, height=HIGH), top=high - HIGH)
    below = replace(upper, top=upper.lower)  # the gather starts with the boxes in which the scatter ends
    return body + drawn(back, below), below.top + HIGH, f"{out.words()} Then the other way: {back.words()}"


# the picture of each chapter that has one: its elements, its height for a width of 800, and what it shows in words
CHAPTERS: dict[str, Callable[[], scenes.Scene]] = {
    "00_start_here": scenes.start_here,
    "01_why_communication": scenes.one_step,
    "02_point_to_point": _moved(scenes.ring_shift()),
    "03_broadcast": _moved(flow("broadcast")),
    "04_scatter_and_gather": there_and_back,
    "06_reduce": _moved(flow("reduce")),
    "07_all_reduce": _moved(flow("all_reduce")),
    "08_all_reduce_algorithms": scenes.routes,
    "09_all_gather": _moved(flow("all_gather")),
    "10_reduce_scatter": _moved(flow("reduce_scatter")),
    "11_all_to_all": _moved(flow("all_to_all")),
    "12_barrier_and_groups": scenes.groups,
    "13_composing": scenes.logits,
    "14_data_parallel": scenes.data_parallel,
    "15_overlap_and_bucketing": scenes.one_after_the_other,
    "16_sharded_training": scenes.eight_copies,
    "17_tensor_parallel": scenes.two_cuts,
    "18_libraries": scenes_programs.libraries,
    "19_topology": scenes.machine,
    "20_when_it_hangs": scenes.one_is_missing,
    "21_capstone": scenes.three_ways,
    "22_your_own_job": scenes.one_file,
    "23_context_parallel": scenes.triangle,
    "24_pipelines": scenes.pipeline,
    "25_fsdp_by_hand": scenes.comes_and_goes,
    "26_send_less": scenes.largest_few,
    "28_mixture_of_experts": scenes.no_room,
    "27_survive": scenes.one_dies,
    "29_memory_and_rooflines": scenes.kept_by_a_layer,
    "35_make_it_fast": scenes.waits_for_one_card,
    "30_without_messages": scenes.reach,
    "31_inside_nccl": scenes.two_lines,
    "32_bits": scenes_numbers.roundings,
    "33_uneven": scenes_numbers.unequal,
    "34_can_a_machine_find_it": scenes.not_all_neighbours,
    "93_price_a_training_run": scenes_programs.training_run,
    "94_what_changes_on_nccl": scenes_programs.laptop_and_cluster,
}


def hero(chapter: str) -> str:
    """The SVG at the top of a chapter, by the name of its notebook. Raises KeyError if the chapter has none.

    >>> hero("07_all_reduce")[:4]
    '<svg'
    """
    body, high, words = CHAPTERS[chapter]()
    return document(body, WIDE, high, WIDE, chapter[3:].replace("_", " "), words, more=GROWING)


def cell(chapter: str) -> str:
    """The same for a text cell."""
    return image(hero(chapter), CHAPTERS[chapter]()[2], WIDE)
