"""What chapters and labs state, computed from their own cells: without ranks, so a claim that stops being true is found in a second."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from allranks import cost, plan, rooflines, topology, wire, workload
from allranks.base.chapters import chapters, find

ROOT = Path(__file__).resolve().parents[2]


@cache
def cells(name: str) -> dict[str, str]:
    """The sources of a chapter's cells (`23_fsdp_by_hand`), or of a lab's with answers (`lab15_fsdp_by_hand`), by name."""
    path = ROOT / find(name).path if name[0].isdigit() else next((ROOT / "solutions" / name).glob("*.ipynb"))
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


def run(name: str, *chosen: str, **given: object) -> dict:
    """What these code cells define, one after the other, as in the notebook."""
    space = {"torch": torch, "cost": cost, "workload": workload, "rooflines": rooflines, "wire": wire} | given
    for cell in chosen:
        exec(compile(cells(name)[cell], f"{name}/{cell}", "exec"), space)
    return space


def words(name: str, cell: str) -> str:
    """The text of a cell, its lines joined."""
    return " ".join(cells(name)[cell].split())


def answer(name: str, cell: str) -> str:
    """The answer that a cell reveals, where it is a string in the cell."""
    calls = [node for node in ast.walk(ast.parse(cells(name)[cell])) if isinstance(node, ast.Call)]
    (revealed,) = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "reveal"]
    return ast.literal_eval(revealed.args[0])


def test_hsdp_pays_only_with_several_micro_batches():
    here = run("23_fsdp_by_hand", "llama", "hsdp_prices")
    one_step = here["flat"][1], here["inside"][1] + here["outside"][1]
    assert one_step[0] < one_step[1] and "With one micro-batch FSDP over 64 is *faster*" in words(
        "23_fsdp_by_hand", "hsdp_explained"
    )
    assert 3 * here["inside"][1] + here["outside"][1] < 3 * here["flat"][1]
    assert 63 * here["all_64"].alpha_s == pytest.approx(0.3e-3, rel=0.06)  # "costs only 0.3 ms a call"
    numbers = (here["layers"] * here["block"] + here["root"]) / 2
    assert 4 * numbers / 1e9 == pytest.approx(32, abs=0.5)  # "whole gradients, 32 GB here"


def test_the_lab_on_fsdp_asks_about_the_same_order(capsys):
    run("lab15_fsdp_by_hand", "between_nodes")
    seconds = [float(s) for s in re.findall(r"([\d.]+) s$", capsys.readouterr().out, flags=re.M)]
    (one, one_hybrid), (eight, eight_hybrid) = seconds[:2], seconds[2:]
    assert one < one_hybrid and eight > eight_hybrid


def test_the_ring_and_ulysses_change_places_with_the_backward_pass():
    here = run("26_context_parallel", "formulas")
    shape = 131_072, 16
    assert here["ring_bytes"](*shape, 8) < here["ulysses_bytes"](*shape, 128, 8)
    ring, ulysses = here["ring_step_bytes"](*shape, 8), here["ulysses_step_bytes"](*shape, 128, 8)
    assert (round(ring / 1e6), round(ulysses / 1e6)) == (1544, 1132)
    assert answer("26_context_parallel", "reveal_llama") == "forward the ring, together Ulysses"
    for ranks in (2, 4, 8, 16, 32):  # "with as many key heads as query heads ... on any number of ranks"
        assert here["ulysses_step_bytes"](131_072, ranks, 128, 128) < here["ring_step_bytes"](131_072, ranks, 128)
    assert here["ring_bytes"](131_072, 32, 8) > here["ulysses_bytes"](131_072, 32, 128, 8)


def test_backward_with_wide_sums_asks_for_more_tokens():
    c, w, parameters = 989e12, 400e9, 1e9
    forward = 2 * parameters / w / (2 * parameters / c)
    backward = (2 + 4) * parameters / w / (4 * parameters / c)
    assert forward == pytest.approx(rooflines.data_parallel_tokens(c, w)) and round(backward) == 3709
    assert "from about 2500 tokens a GPU on forward, and from 3700 on backward" in words(
        "28_memory_and_rooflines", "recap"
    )


def test_torch_batches_only_sends_with_receives(monkeypatch):
    from torch import distributed as dist
    from torch.distributed.pipelining import schedules

    called = []
    for name in ("isend", "irecv", "batch_isend_irecv"):
        monkeypatch.setattr(dist, name, lambda *_, name=name, **__: called.append(name))
    send, receive = (
        SimpleNamespace(op=op, tensor=None, group=None, tag=0, group_peer=1) for op in (dist.isend, dist.irecv)
    )
    for calls in ([send, send], [receive], [send, receive]):
        schedules._batch_p2p(calls)
    assert called == ["isend", "isend", "irecv", "batch_isend_irecv"]
    assert "torch's schedules batch only sends *with* receives (`_batch_p2p`)" in words(
        "25_pipelines", "shorter_explained"
    )


def test_ulysses_would_copy_the_one_key_head_that_is_left(capsys):
    run("26_context_parallel", "limit")
    assert re.search(
        r"405B +tp = 8: Ulysses up to cp = 1 without copies of keys, up to 16 with", capsys.readouterr().out
    )
    told = "With $tp = 8$ each GPU has one key head left, so Ulysses would copy it to all 16 ranks of a group"
    assert told in words("26_context_parallel", "limit_explained")


def test_some_copies_of_a_token_stay_on_its_node():
    there = 1 - math.comb(224, 8) / math.comb(256, 8)  # that its own node, or another one, has one of its experts
    told = words("27_mixture_of_experts", "nodes_explained")
    assert f"sent {8 * there:.1f} times on average instead of 8 times" in told
    assert f"so {7 * there:.1f} cross the network instead of {8 * 7 / 8:.0f}" in told


def test_what_training_keeps_is_what_the_plan_says(capsys):
    run("29_price_a_training_run", "question", predict=lambda *_, **__: None)
    kept = plan("LLaMA 65B", "dgx-h100", dp=64, zero_stage=0, batch=2048).state_nbytes
    assert f"to keep: {kept / 1e9:,.0f} GB" in capsys.readouterr().out


def code(folder: str) -> list[tuple[str, str]]:
    """(notebook and cell, source) of every code cell of the notebooks in this folder of the course."""
    found = []
    for path in sorted(ROOT.glob(f"{folder}/*/*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        found += [(f"{path.stem}/{cell.id}", cell.source) for cell in cells if cell.cell_type == "code"]
    return found


@pytest.mark.parametrize("folder", ["chapters", "solutions"])
def test_no_cell_calls_by_torchs_older_names(folder):
    old = re.compile(r"\bdist\.(all_gather_into_tensor|reduce_scatter_tensor)\(")
    assert not [cell for cell, source in code(folder) if old.search(source)]


def test_the_price_says_how_wrong_it_was():
    measured = (ROOT / "docs/validation.md").read_text()
    row = r"^\| (.*?) \| .*? \| \d+ \| dp \d+, tp (\d+), pp (\d+).*?\| ([\d.]+) \|$"
    rows = re.findall(row, measured, flags=re.M)
    assert len(rows) == 23
    sharded = sorted(float(ratio) for runs, tp, pp, ratio in rows if "torchtitan" in runs and (tp, pp) == ("1", "1"))
    rest = sorted(float(ratio) for runs, tp, pp, ratio in rows if not ("torchtitan" in runs and (tp, pp) == ("1", "1")))
    told = words("29_price_a_training_run", "best_explained")
    assert f"foretold {sharded[0]:.2f} to {sharded[1]:.2f} of the measured time for the two runs" in told
    assert f"and {rest[1]:.2f} to {rest[-1]:.2f} for all others but one" in told
    (within,) = re.findall(r"Within 25 %: (\d+ %) of all", measured)
    assert f"{within} of {len(rows)} published steps" in words("29_price_a_training_run", "experts_explained")
    assert 1 / max(sharded) > 1.5  # "expect a step half as long again"


def test_the_reader_must_acquire_too():
    here = run("44_without_messages", "read_early")
    outcome = wire.run(here["hand_over_early"], ranks=2, memory=wire.Memory(2))
    assert outcome.races and outcome.results[1] != [1.0, 1.0]


def test_only_the_last_loop_of_a_ring_is_shortened(capsys):
    run("43_inside_nccl", "cut")
    assert "chunks of [2048, 2048, 1365] KiB" in capsys.readouterr().out


def test_with_more_bytes_the_tuner_goes_from_ll_to_ll128_to_simple(capsys):
    choices = run("43_inside_nccl", "choices")["choices"]
    where = (("dgx-a100", 1), ("dgx-h100", 1), ("dgx-h100", 2), ("dgx-h100", 32), ("dgx-a100", 2))
    for machine, nodes in where:
        found = [name.split()[1] for _, name, _ in choices(machine, nodes)]
        assert found == sorted(found, key=("LL", "LL128", "Simple").index)
        assert ("LL128" in found) != ((machine, nodes) == ("dgx-h100", 1))  # "one machine of H100s has no middle"
    told = words("43_inside_nccl", "tuner_explained")
    assert "In each line the protocol goes from LL to LL128 to Simple" in told


def test_the_choice_on_two_a100_nodes_changes_three_times(capsys):
    here = run("43_inside_nccl", "choices")
    changes = [n for n, *_ in here["choices"]("dgx-a100", 2) if 3e6 < n < 15e6]
    assert len(changes) == 3 and "changes three times between 3 and 15 MB" in words("43_inside_nccl", "tuner_explained")
    assert (
        cost.nccl_choice("all_reduce", 2**30, "dgx-h100", nodes=2).algorithm == "nvls_tree"
    )  # as the chapter on bits says


def test_a_staged_checkpoint_counts_once_it_is_written():
    here = run("46_survive", "formulas", mtbf=54 * 86_400 / 419)
    lost = 1 - here["goodput"](here["young"](4, 7200), 4, 7200, behind=96)
    assert f"({100 * lost:.1f} % in the chapter's simulation)" in words("lab17_survive", "how_often")
    assert 100 * (math.sqrt(2 * 4 / 7200) + 96 / 7200) == pytest.approx(4.7, abs=0.05)
    best = [here["goodput"](here["young"](c, here["mtbf"]), c, here["mtbf"]) for c in (60, 10)]
    assert 100 * (best[1] - best[0]) == pytest.approx(6, abs=0.5)


def test_the_profile_is_written_once():
    from torch.profiler import ProfilerAction, schedule

    (written,) = re.findall(r"schedule=(schedule\([^)]*\))", cells("48_your_own_job")["nccl_names"])
    actions = [eval(written, {"schedule": schedule})(step) for step in range(100)]
    assert actions.count(ProfilerAction.RECORD_AND_SAVE) == 1


def test_a_message_of_the_pipeline_has_as_many_bytes_as_the_text_says():
    (shape,) = re.findall(r"batch = torch\.randn\(m, (\d+), (\d+)\)", cells("25_pipelines")["gpipe"])
    nbytes = 4 * int(shape[0]) * int(shape[1])
    assert f"a message here has {nbytes} bytes" in words("25_pipelines", "deadlock_explained")


def test_the_rows_of_zero_pp_add_up():
    rows = re.findall(r"^\| .*?\| \$?([\d.]*)M?\$? \| \$?([\d.]*)M?\$? \| \$?([\d.]*)M?\$? \| \$([\d.]+)M\$ \|$",
                      cells("61_bits")["zero_pp"], flags=re.M)  # fmt: skip
    assert len(rows) == 5
    for *parts, together in rows:
        assert sum(float(part or 1) for part in parts) == pytest.approx(float(together))


def test_what_is_said_of_torch_is_so():
    from torch.distributed import _symmetric_memory
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor.experimental import _attention

    assert "legacy API" in inspect.getsource(_attention.context_parallel)
    assert hasattr(_attention, "_ContextParallel") and hasattr(_attention, "_context_parallel_shard")
    assert "NVSHMEM" in inspect.getsource(_symmetric_memory.set_backend)
    assert "accumulation" in FSDPModule.set_requires_all_reduce.__doc__


def test_the_example_on_the_page_about_costs():
    page = (ROOT / "docs/cost_model.md").read_text()
    h100 = topology.preset("dgx-h100")
    inside, cards = h100.inside.bytes_per_s, h100.nics_per_node * h100.nic.bytes_per_s
    sent = 2 * 14e9 * 15 / 16
    assert inside < cards and f"{sent / 1e9:.2f} GB. NVLink carries {inside / 1e9:.0f} GB/s" in page
    assert f"together {cards / 1e9:.0f} GB/s" in page and f"371 s = {1e3 * sent / inside:.0f} ms" in page
    command = [sys.executable, "-m", "allranks.cli", "simulate", "--nodes", "2", "--bytes", "14GB", "--json"]
    links, nccl = (
        json.loads(subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout)
        for more in ((), ("--algorithm", "nccl"))
    )
    assert f"says {1e3 * links['seconds']:.1f} ms too" in page
    assert nccl["algorithm"] == "nvls_tree" and f"most likely time is {1e3 * nccl['seconds']:.0f} ms" in page


def tasks() -> list[tuple[str, str, str]]:
    """Of each chapter that sends its reader into torch: its name, the file, and what is to be found there."""
    found = []
    for chapter in chapters():
        text = (ROOT / chapter.path).read_text()
        task = re.search(r"\*\*Your task\.\*\* Open `(torch/\S+\.py)` .*? look for `(\w+)`", text)
        if task:
            found.append((chapter.stem, task[1], task[2]))
    return found


@pytest.mark.parametrize(("chapter", "path", "name"), tasks(), ids=lambda part: part.rpartition("/")[2])
def test_what_a_reader_looks_for_in_torch_is_there(chapter, path, name):
    assert name in (Path(torch.__path__[0]).parent / path).read_text()


def test_most_chapters_on_collectives_send_their_reader_into_torch():
    assert len(tasks()) >= 15


def test_the_answers_of_these_tasks():
    from torch._inductor import config
    from torch.distributed.tensor.experimental._context_parallel import _attention

    assert config._collective.one_shot_all_reduce_threshold_bytes == 128 << 10
    assert _attention._ContextParallelOptions().rotate_method is _attention._RotateMethod.ALL_GATHER
    assert torch.distributed.Backend.default_device_backend_map["cuda"] == "nccl"
    small, large = (cost.nccl_choice("all_reduce", nbytes, "dgx-h100", nodes=2) for nbytes in (2**20, 2**30))
    assert [(small.algorithm, small.protocol), (large.algorithm, large.protocol)] == [
        ("tree", "LL128"),
        ("nvls_tree", "Simple"),
    ]


def test_a_mesh_is_as_fast_as_a_switch_for_all_and_eight_times_slower_for_two(capsys):
    run("41_libraries", "mesh")
    (switch, ring), (pair, rings), (nvls,) = (
        map(float, re.findall(r"([\d.]+) ms", line)) for line in capsys.readouterr().out.splitlines()
    )
    assert nvls < ring < rings
    assert pair / switch == pytest.approx(8, abs=0.1) and rings / ring == pytest.approx(1, abs=0.16)
    assert "With rings, which use all seven links, the two nodes are nearly alike" in words(
        "41_libraries", "mesh_explained"
    )
    assert "one link of 46 GB/s, a seventh of what a GPU has" in words("41_libraries", "reveal_mesh")


def test_busbw_of_a_long_vector_falls_at_four_nodes_and_then_slowly():
    one, two, four, most = (
        2 * (8 * m - 1) / (8 * m) / cost.nccl_price("all_reduce", 2**30, "dgx-h100", nodes=m).seconds
        for m in (1, 2, 4, 64)
    )
    assert two > one and four / two == pytest.approx(2 / 3, abs=0.02) and most / four == pytest.approx(4 / 5, abs=0.03)
    assert cost.nccl_choice("all_reduce", 2**30, "dgx-h100", nodes=2).algorithm == "nvls_tree"
    told = words("40_topology", "busbw_nodes_explained")
    assert "lost a third of that, and from there to 64 nodes another fifth" in told


def test_four_times_as_many_chips_of_a_torus_sum_in_half_the_time():
    line, ring = ("tpu-v5e-8x8", "tpu-v5e-16x16")
    assert cost.torus_price("all_reduce", 1e9, line).seconds == pytest.approx(
        2 * cost.torus_price("all_reduce", 1e9, ring).seconds, rel=0.02
    )
    there, here = (cost.torus_price("all_to_all", 1e9, shape).seconds for shape in (line, ring))
    assert there == here
    told = words("40_topology", "torus_explained")
    assert "four times as many chips sum in half the time" in told
    assert "the all-to-all takes as long on four times as many chips" in told
