"""The picture at the top of each chapter. It poses the chapter's question and never answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from allranks.show.pictures import scenes, scenes_numbers, scenes_programs
from allranks.show.pictures.flow import Flow, flow
from allranks.show.pictures.moves import image
from allranks.show.pictures.pictogram import WIDE, document, drawn, frame_of, n

# Of a picture that is 800 wide, in a column that is narrower: letters grow, so that none is smaller than 12 px on the
# screen.
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
    """A flow's elements and height, with a name for each rank: on its box if the box is full, else above all boxes."""
    full = f.slots == 1 and {part.rank for part in f.before} == set(range(f.ranks))
    top = 0.0 if full else 40.0
    frame = replace(frame_of(f.ranks, WIDE, height=HIGH), top=top)
    y = top + frame.box / 2 + 7 if full else top - 12
    kinds = [f"on{rank}" if full else "words" for rank in range(f.ranks)]
    words = "".join(
        f'<text class="{kind}" x="{n(frame.x(rank) + frame.cell / 2)}" y="{n(y)}" text-anchor="middle">rank '
        f"{rank}</text>"
        for rank, kind in enumerate(kinds)
    )
    return drawn(f, frame) + words, top + HIGH


def there_and_back() -> scenes.Scene:
    """Chapter 11: a scatter, and below it the gather that brings the parts back."""
    out, back = flow("scatter"), flow("gather")
    body, high = labelled(out)
    upper = replace(frame_of(out.ranks, WIDE, height=HIGH), top=high - HIGH)
    below = replace(upper, top=upper.lower)  # the gather starts with the boxes in which the scatter ends
    return body + drawn(back, below), below.top + HIGH, f"{out.words()} Then the other way: {back.words()}"


# the picture of each chapter that has one: its elements, its height for a width of 800, and what it shows in words
CHAPTERS: dict[str, Callable[[], scenes.Scene]] = {
    "00_start_here": scenes.start_here,
    "02_why_communication": scenes.one_step,
    "03_point_to_point": _moved(scenes.ring_shift()),
    "10_broadcast": _moved(flow("broadcast")),
    "11_scatter_and_gather": there_and_back,
    "12_reduce": _moved(flow("reduce")),
    "04_all_reduce": _moved(flow("all_reduce")),
    "17_all_reduce_algorithms": scenes.routes,
    "13_all_gather": _moved(flow("all_gather")),
    "14_reduce_scatter": _moved(flow("reduce_scatter")),
    "15_all_to_all": _moved(flow("all_to_all")),
    "16_barrier_and_groups": scenes.groups,
    "18_composing": scenes.logits,
    "20_data_parallel": scenes.data_parallel,
    "21_overlap_and_bucketing": scenes.one_after_the_other,
    "22_sharded_training": scenes.eight_copies,
    "24_tensor_parallel": scenes.two_cuts,
    "41_libraries": scenes_programs.libraries,
    "40_topology": scenes.machine,
    "45_when_it_hangs": scenes.one_is_missing,
    "30_capstone": scenes.three_ways,
    "48_your_own_job": scenes.one_file,
    "26_context_parallel": scenes.triangle,
    "25_pipelines": scenes.pipeline,
    "23_fsdp_by_hand": scenes.comes_and_goes,
    "60_send_less": scenes.largest_few,
    "27_mixture_of_experts": scenes.no_room,
    "46_survive": scenes.one_dies,
    "55_recover": scenes.five_parts,
    "56_eight_gpus": scenes.one_switch,
    "28_memory_and_rooflines": scenes.kept_by_a_layer,
    "47_make_it_fast": scenes.waits_for_one_card,
    "44_without_messages": scenes.reach,
    "43_inside_nccl": scenes.two_lines,
    "49_the_network": scenes.two_of_four,
    "61_bits": scenes_numbers.roundings,
    "62_uneven": scenes_numbers.unequal,
    "63_can_a_machine_find_it": scenes.not_all_neighbours,
    "29_price_a_training_run": scenes_programs.training_run,
    "42_what_changes_on_nccl": scenes_programs.laptop_and_cluster,
}


def hero(chapter: str) -> str:
    """The SVG at the top of a chapter, by the name of its notebook. Raises KeyError if the chapter has none.

    >>> hero("04_all_reduce")[:4]
    '<svg'
    """
    body, high, words = CHAPTERS[chapter]()
    return document(body, WIDE, high, WIDE, chapter[3:].replace("_", " "), words, more=GROWING)


def cell(chapter: str) -> str:
    """The same for a text cell."""
    return image(hero(chapter), CHAPTERS[chapter]()[2], WIDE)
