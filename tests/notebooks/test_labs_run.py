"""The instructor's labs run from the first cell to the last: a live world, the player, instant checks, full points.

A run of everything takes every third lab; all are run whenever this file or its folder is named, and nightly.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from test_chapters import RANKS, execute

pytestmark = [pytest.mark.live, pytest.mark.notebooks, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
# what the live cells must show with four ranks, by lab and cell
SHOWN = {
    "lab01_point_to_point": {
        "first_message": ["[rank 0] [0.0, 0.0]", "[rank 3] [0.0, 0.0]"],
        "try_shift": ["[30.0, 0.0, 10.0, 20.0]", "step 1 of 1"],
        "see_deadlock": ["rank 0 waits for rank 1", "rank 3 waits for rank 0"],
        "try_halo": ["[[30.0, 10.0], [0.0, 20.0], [10.0, 30.0], [20.0, 0.0]]"],
        "show_fit": ["alpha = ", "GB/s"],
        "calibrate": ["your model", "% off"],
    },
    "lab02_rooted": {
        "first_collectives": ["[rank 1] broadcast 1.0  reduce 6.0"],
        "try_tree": ["[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]", "step 2 of 2"],
        "try_reduce": ["[0.0, 6.0, 2.0, 3.0]"],
        "try_pipeline": ["step 6 of 6"],
        "try_pieces": ["[[0.0, 0.0], [2.0, 2.0], [4.0, 4.0], [6.0, 6.0]]", "the same as dist.gather: True"],
    },
    "lab03_all_reduce": {
        "first_all_reduce": [f"[rank {rank}] [10.0, 20.0, 30.0]" for rank in range(4)],
        "try_mean": [
            "[tensor([1.5000, 1.5000]),\n" + " tensor([1.5000, 1.5000]),\n" * 2 + " tensor([1.5000, 1.5000])]"
        ],
        "try_argmax": ["[(9.0, 1, 2), (9.0, 1, 2), (9.0, 1, 2), (9.0, 1, 2)]"],
        "try_ring": ["10., 20., 30., 40., 50., 60., 70., 80., 90."],
    },
    "lab04_algorithms": {
        "one_swap": ["[rank 0] 11", "[rank 3] 1100"],
        "try_doubling": ["[[1111.0, 1111.0, 1111.0]", "step 2 of 2"],
        "between_nodes": ["1.75 n", "1.00 n", "0.25 n"],
        "try_hierarchical": ["[[0, 1111, 2222, 3333, 4444]", "rank 0: all_reduce, 24 bytes"],
    },
    "lab05_sharding": {
        "first_collectives": ["[rank 1] reduce_scatter 10.0   all_gather [1.0, 2.0, 3.0, 4.0]"],
        "try_gather": ["[0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 30.0, 30.0]", "step 2 of 2"],
        "try_scatter": ["[[0.0, 10.0, 20.0], [30.0, 40.0, 50.0], [60.0, 70.0], [80.0, 90.0]]"],
        "try_zero": ["rank 0: reduce_scatter, 80 bytes", "rank 0: all_gather, 20 bytes"],
    },
    "lab06_composition": {
        "as_the_formula_says": ["[rank 0] nan", "[rank 3] nan"],
        "try_softmax": ["rank 0: all_reduce, 8 bytes"],
        "try_top_k": ["rank 0: all_gather, 12 bytes", "rank 0: all_gather, 24 bytes"],
    },
    "lab07_all_to_all": {
        "first_all_to_all": ["[rank 1] [1.0, 11.0, 21.0, 31.0]"],
        "try_pairwise": ["rank 1 has [[1.0, 1.0], [11.0, 11.0], [21.0, 21.0], [31.0, 31.0]]"],
        "try_lookup": ["[[17.0, 117.0], [3.0, 103.0], [17.0, 117.0], [8.0, 108.0]]"],
        "try_moe": ["rank 3: [30.0, 1031.0, 32.0, 1033.0], bytes put into each call: [32, 16, 0]"],
    },
    "lab08_data_parallel": {
        "first_step": ["[rank 2] -30.0"],
        "try_buckets": ["the same as alone: True", "rank 1: [('all_reduce', 112), ('all_reduce', 192)]"],
        "try_overlap": [
            "ready in this order: [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]",
            "rank 0 launched: [33536, 33280, 33024] bytes",
            "all ranks agree: True",
        ],
    },
    "lab09_tensor_parallel": {
        "first_product": ["[rank 0] [0.0, 1.0]", "[rank 3] [12.0, 13.0]"],
        "columns_alone": ["columns and relu, largest difference: 0.0", "rows, largest difference: 0.0"],
        "try_linear": ["the same as alone: True", "rank 0: [('all_reduce', 48)]"],
        "try_mlp": ["the same gradient as alone: True", "rank 0: [('all_reduce', 48), ('all_reduce', 48)]"],
        "try_norm": [
            f"gradient of bias: {[[12] * 4] * 4}",
            "'all_gather_into_tensor', 'reduce_scatter_tensor', 'all_reduce'",
        ],
        "try_clip": [f"times the norm: {[(7.21, 3.0, 4.0)] * 4}"],
        "bytes": ["   29.4 MB  column, then row", "  146.8 MB  row, then row"],
    },
    "lab10_debugging": {
        "run_mean_loss": ["[tensor([1.8333]), tensor([1.8333]), tensor([1.8333]), tensor([0.5455])]"],
        "run_hand_out": ["times; the last time"],
        "ask_the_wire": [
            "hand_out: Rank 0 changed the buffer of isend to rank 1, line 11",
            "but rank 5 has returned without calling it",
            "mean_loss: nothing to report",
        ],
        "run_repaired": ["rank 1: {'mirror': 20.0, 'hand_out': [2.0, 3.0], 'mean_of_samples': 4.0}"],
    },
    "lab15_fsdp_by_hand": {
        "try_step": ["passes: [0, 1, 2, 2, 1, 0] mean gradients: [1.5, 1.5, 1.5]"],
        "between_nodes": ["1 micro-batches, all 64:  7.9 GB", "8 micro-batches, hybrid:  7.0 GB"],
    },
    "lab14_pipelines": {
        "gpipe_picture": ["GPipe: takes 33 forward passes, 27% idle, keeps at most 8, 8, 8, 8 micro-batches"],
        "try_zero": ["mine: takes 27 forward passes, 11% idle, keeps at most 4, 4, 4, 4 micro-batches"],
        "try_run": ["the same as alone: True", "messages of each rank: [8, 16, 16, 8]"],
    },
    "lab19_memory_and_rooflines": {
        "gathered_megabytes": ["gathered 134 MB, its own rows 17 MB"],
        "try_linear": ["keeps 6 rows; the product has 6 for each rank"],
        "try_async": ["largest difference below 1e-5: True"],
    },
    "lab12_make_it_fast": {
        "where_it_waits": ["37.7 ms", "100 % is bytes over the network card", "rank 7's sends over the network card"],
        "try_live": [
            f"{name}: right on every rank: True" for name in ("segmented", "two ways", "two levels", "overlapped")
        ],
        "watch_two_levels": ["3.9 times as fast as the plain ring"],
    },
    "lab20_without_messages": {
        "see_race": ["rank 0's put and rank 1's get; a signal between them: True"],
        "try_slots": ["from rank: [3.0, 0.0, 1.0, 2.0]"],
        "try_two_shot": ["right, and no byte too many: True"],
    },
    "lab21_bits": {
        "one_block": ["[25, -127, 50, 1] a step is 0.020, the largest error at most 0.010"],
        "try_quantised": ["within the bound: True", "float32 would put 20480 bytes into the two steps; this put 5440"],
    },
    "lab22_uneven": {
        "offsets": ["first token of each rank: [0, 3, 3, 5]"],
        "try_scan": ["first places: [[0, 0], [1, 1], [3, 2], [6, 3]]", "rank 0 sends 2 messages"],
        "try_gather": ["[[], [1.0], [2.0, 2.0], [3.0, 3.0, 3.0]]"],
    },
    "lab23_bad_cable": {
        "a_network": ["bad is cable 37"],
        "four_flows": ["4.0 times as long", "8.0 times as long"],
    },
    "lab13_context_parallel": {
        "zigzag_places": ["rank 1: [2, 3, 12, 13]"],
        "try_ring": ["largest difference below 1e-5: True", "rank 0 sends 864 bytes"],
        "try_ulysses": ["largest difference below 1e-5: True"],
    },
    "lab16_send_less": {
        "top_k_bytes": ["1.56 times fewer"],
        "try_top_k": ["of the distance is left: True", "without, more than half is left: True"],
        "try_power": ["nothing is lost: True", "a round reduces 56 bytes"],
    },
    "lab18_mixture_of_experts": {
        "with_room": ["places with room: [0, 1, 2, 4, 5]"],
        "try_capacity": ["rank 1: [4010.0, 4011.0, 12.0, 13.0]", "rank 1 puts into each call: [32, 32]"],
        "try_top_k": ["rank 1: [325.75, 325.75, 325.75, 325.75]", "the largest call of rank 1: 64 bytes"],
        "try_gradients": ["the gradients of the mean loss: [True, True, True, True]"],
    },
    "lab17_survive": {
        "try_commit": ["count and weight of each rank: [(3, 4.0), (3, 4.0), (3, 4.0), (3, 4.0)]"],
        "try_heal": ["[(7, [5.0, 5.0]), (7, [5.0, 5.0]), (7, [5.0, 5.0]), (7, [5.0, 5.0])]"],
        "try_reshard": ["[[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0, 11.0], [], []]"],
    },
    "lab11_your_own_job": {
        "a_recorded_job": ["6 ranks, 6 files", "'op': 'all_reduce', 'group': '0'"],
        "starts_and_ends": ["start_us differ by", "end_us   differ by"],
        "live_ends": ["the ends are closer than the starts: True"],
        "on_recorded": [
            f"{name:18} cause {number}, rank {rank:2}, evidence"
            for number, (name, rank) in enumerate(
                {"straggler": 4, "desync": 2, "missing_rank": 5, "tiny_calls": -1, "no_overlap": -1}.items(), 1
            )
        ],
    },
}


# what they must show with any number of ranks
ALWAYS = {
    "lab02_rooted": {"try_pieces": "the same as dist.gather: True"},
    "lab08_data_parallel": {"try_buckets": "the same as alone: True", "try_overlap": "all ranks agree: True"},
    "lab09_tensor_parallel": {"try_linear": "the same as alone: True"},
    "lab16_send_less": {"try_power": "nothing is lost: True"},
}


def text_of(cell: nbformat.NotebookNode) -> str:
    """What a cell printed and showed, as plain text."""
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def pairs(text: str) -> list[tuple[str, str]]:
    """The lines "ours ..." and "wanted ...", two and two, without their first word."""
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.startswith(("ours", "values", "wanted"))]
    return [(ours[1].strip(), wanted[1].strip()) for ours, wanted in zip(lines[::2], lines[1::2], strict=True)]


def solution(lab: str, folder: str = "solutions") -> tuple[Path, nbformat.NotebookNode]:
    """The path of a lab's notebook, and what is in it."""
    (path,) = (ROOT / folder / lab).glob("*.ipynb")
    return path, nbformat.read(path, as_version=4)


@pytest.mark.parametrize("folder", ["solutions", "labs"])
@pytest.mark.parametrize("lab", SHOWN)
def test_a_lab_takes_the_gpus_that_are_there(lab, folder):
    code = "\n".join(cell.source for cell in solution(lab, folder)[1].cells if cell.cell_type == "code")
    assert re.findall(r"\bWorld\(.*?\)", code) == ["World()"]


@pytest.mark.parametrize("lab", SHOWN)
def test_a_solution_that_starts_sends_and_receives_does_so_in_batches(lab):
    """On NCCL a circle of single messages can hang: they queue one behind the other."""
    for cell in solution(lab)[1].cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            assert not re.search(r"dist\.i(send|recv)\(", cell.source), cell.id


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(
    "lab", [pytest.param(lab, marks=pytest.mark.nightly if turn % 3 else ()) for turn, lab in enumerate(sorted(SHOWN))]
)
def test_every_cell_of_the_solution_runs(lab, ranks):
    path, notebook = solution(lab)
    for cell in notebook.cells:
        cell.source = cell.source.replace("world = World()", f"world = World(ranks={ranks})")
    execute(notebook, path.parent)  # raises where a cell does
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    for name, expected in SHOWN[lab].items() if ranks == 4 else ():
        said = text_of(cells[name])
        for words in expected:
            assert words in said, f"{name}: {said}"
    for name, words in ALWAYS.get(lab, {}).items():
        assert words in text_of(cells[name]), f"{name}: {text_of(cells[name])}"
    for name, cell in cells.items():
        if cell.metadata.get("allranks", {}).get("exercise"):
            assert float(text_of(cell)) == cell.metadata.nbgrader.points, name
        if cell.source.startswith("check("):
            assert ": passed (" in text_of(cell), name
        assert not [o for o in cell.outputs if o.get("name") == "stderr"], f"{name}: {cell.outputs}"
    if lab == "lab06_composition":
        for name in ("try_loss", "try_top_k"):
            found = pairs(text_of(cells[name]))
            assert found and all(ours == wanted for ours, wanted in found), found
