"""What chapters and labs state, computed from their own cells: without ranks, so a claim that stops being true is found in a second."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import nbformat
import pytest
import torch
import torch.distributed as dist
from allranks import World, cost, explore, plan, rooflines, schedules, topology, wire, workload
from allranks.base.chapters import chapters, find
from torch.nn.parallel import DistributedDataParallel

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
    told = words("28_memory_and_rooflines", "recap")
    assert "from about 2500 tokens a GPU and micro-batch on forward, and from 3700 on backward" in told
    shape = {"dp": 64, "zero_stage": 3, "batch": 64 * 8}
    one, eight = (plan("LLaMA 65B", "dgx-h100", microbatch=m, **shape).prices["data"] for m in (8, 1))
    assert eight.calls == 8 * one.calls  # "each micro-batch gathers again"
    assert "(each micro-batch gathers again)" in words("28_memory_and_rooflines", "bounds")


def test_torch_batches_only_sends_with_receives(monkeypatch):
    from torch.distributed.pipelining import schedules as pipelining

    called = []
    for name in ("isend", "irecv", "batch_isend_irecv"):
        monkeypatch.setattr(dist, name, lambda *_, name=name, **__: called.append(name))
    send, receive = (
        SimpleNamespace(op=op, tensor=None, group=None, tag=0, group_peer=1) for op in (dist.isend, dist.irecv)
    )
    for calls in ([send, send], [receive], [send, receive]):
        pipelining._batch_p2p(calls)
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
    assert f"expect a step {len(sharded) / sum(sharded):.1f} times as long as the first line says" in told


def test_the_seconds_of_my_model_are_not_measured():
    measured = (ROOT / "docs/validation.md").read_text()
    (low, high) = re.findall(r"^\| all \| 23 \| [\d.]+ \| ([\d.]+) to ([\d.]+) \|$", measured, flags=re.M)[0]
    told = words("20_data_parallel", "my_model_now")
    assert f"took {1 / float(high):.1f} to {1 / float(low):.1f} times as long" in told


def test_the_answers_to_the_first_picture_of_tensor_parallelism():
    def seen(**values):
        waits, took, unit = re.search(r"waits ([\d.]+) % of ([\d.]+) (m?s)", explore.tensor(**values).text()).groups()
        return float(waits), float(took) * (1 if unit == "s" else 1e-3)

    told = words("24_tensor_parallel", "share_explained")
    waits, took = seen(p=8)
    assert f"the first picture says {waits:.0f} %" in told
    weights = 96 * 12 * 12_288**2
    assert 6 * weights * 2048 / 8 / (took * (1 - waits / 100)) / 400e12 == pytest.approx(1.85, abs=0.1)  # nearly twice
    assert 2 * weights / 4 > 80e9 > 2 * weights / 8  # "the weights need 8 GPUs"
    for machine in ("dgx-h100", "gb200-nvl72"):
        assert seen(p=8, machine=machine)[1] / seen(p=16, machine=machine)[1] == pytest.approx(1.4, abs=0.05)
    assert seen(p=16, machine="cloud-ethernet")[1] > seen(p=8, machine="cloud-ethernet")[1]
    narrow, wide = seen(width=4096)[0], seen(width=8192)[0]
    assert f"With layers 8192 wide 8 H100 wait {wide:.0f} % of the time, with 4096 wide {narrow:.0f} %" in told
    assert wide < 100 / 3 < narrow


def test_the_answers_to_the_first_picture_of_experts():
    from allranks.show.widgets.first_figures import MEAN, room, routed

    told = words("27_mixture_of_experts", "drops_explained")
    assert f"drops {100 * room(0, 1)[1]:.0f} % at factor 1 even if the router is even" in told
    assert max(map(sum, routed(0.94))) / MEAN == pytest.approx(2, abs=0.02)
    _, dropped, empty = room(0.94, 1.9)
    assert dropped < 0.01 < room(0.94, 1.8)[1] and 0.45 < empty < 0.5  # "nearly half of the room"


def test_a_gated_expert_may_be_two_thirds_as_wide():
    wide = rooflines.expert_parallel_width(989e12, 50e9)
    assert f"as wide as {wide:,.0f}, or {2 * wide / 3:,.0f} if they are gated" in words(
        "28_memory_and_rooflines", "bounds_explained"
    )


def test_the_picture_of_recomputing_does_not_show_what_is_asked_below_it():
    parameters, work = rooflines.gpt_parameters(1, 512), (512, 1, 512, 512)
    model, again = rooflines.model_flop(parameters, *work), rooflines.recomputed_flop("full", parameters, *work)
    assert again / model == pytest.approx(1 / 3) and again / (model + again) == pytest.approx(1 / 4)
    assert "33.3 % more work" in explore.recompute(count=12, what="full").text()
    assert answer("28_memory_and_rooflines", "reveal_again") == "a quarter"


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
    (shape,) = re.findall(r"batch = torch\.randn\(m, (\d+), (\d+)\)", cells("25_pipelines")["pipelined"])
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


def test_the_defaults_of_torch_that_chapters_name():
    from torch.distributed import constants, monitored_barrier
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

    given = inspect.signature(PowerSGDState.__init__).parameters
    assert (given["start_powerSGD_iter"].default, given["min_compression_rate"].default) == (1000, 2)
    told = words("60_send_less", "power_explained")
    assert "(`min_compression_rate`, 2)" in told and "(1000 by default)" in told
    assert inspect.signature(monitored_barrier).parameters["wait_all_ranks"].default is False
    headers = Path(torch.__path__[0]) / "include/torch/csrc/distributed/c10d"
    nccl = (headers / "ProcessGroupNCCL.hpp").read_text(encoding="utf-8")
    assert "std::chrono::milliseconds(10 * 60 * 1000)" in " ".join(nccl.split())
    assert constants.default_pg_timeout == timedelta(minutes=30)
    assert "10 minutes by default with NCCL (the watchdog's), 30 with other" in words(
        "45_when_it_hangs", "pause_explained"
    )
    assert (
        "CleanUpOnly = 2, SkipCleanUp = 3" in " ".join(nccl.split()) and "the default value (3 - SkipCleanUp)" in nccl
    )
    assert (
        "it ends the process (`TORCH_NCCL_ASYNC_ERROR_HANDLING=3`). With 2 it aborts, and the process goes on"
        in words("46_survive", "torchft")
    )
    assert "void broadcastDumpSignal();" in nccl  # to the others, through the store
    assert "that rank tells the others through the store" in words("45_when_it_hangs", "flight")
    recorder = " ".join((headers / "FlightRecorder.hpp").read_text(encoding="utf-8").split())
    assert '{"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, 2000)' in recorder
    assert "(2000 by default, 0 is off; its older name is `TORCH_NCCL_TRACE_BUFFER_SIZE`)" in words(
        "45_when_it_hangs", "flight"
    )


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


def test_the_limit_of_an_all_reduce_is_the_busiest_ranks():
    """A leaf of a tree sends its vector once, which is less: so the page must not say it of every rank."""
    n, p = 64_000, 8
    limit = 2 * n * (p - 1) / p
    sent = {a: schedules.find("all_reduce", a)(p).bytes_sent(n) for a in ("ring", "tree", "rabenseifner", "flat")}
    assert all(max(of_rank) >= limit for of_rank in sent.values()) and max(sent["ring"]) == limit
    assert min(sent["tree"]) == n < limit
    page = " ".join((ROOT / "docs/cost_model.md").read_text().split())
    assert "in an all_reduce the busiest rank sends at least 2n(p-1)/p bytes, whatever the algorithm." in page
    assert n * (1 + 1 / p) < limit and "Only where switches add (SHARP, NVLS) about n are enough." in page


def test_ring_and_tree_side_by_side_send_what_the_gallery_says():
    ring, tree = schedules.ring_all_reduce(8), schedules.tree_all_reduce(8)
    n = 800
    sent = [[of_rank / n for of_rank in schedule.bytes_sent(n)] for schedule in (ring, tree)]
    assert (tree.steps, ring.steps) == (6, 14) and sum(sent[0]) == sum(sent[1]) == 14
    assert set(sent[0]) == {1.75} and max(sent[1]) == sent[1][0] == 3
    told = words("64_player_gallery", "reveal_faster")
    assert "In all both send the same bytes, 14 vectors." in told
    assert "in the ring each rank sends 1.75 of them, and in the tree rank 0 sends 3." in told
    alone = [float(cost.price("all_reduce", name, 8, 64 << 20, 5e-6, 1 / 50e9)) for name in ("ring", "tree")]
    assert alone[0] < alone[1] and answer("64_player_gallery", "reveal_faster").startswith("the ring")


def test_the_chain_of_the_gallery_is_busy_on_all_links_from_step_4_to_6():
    told = words("64_player_gallery", "line")
    chain = schedules.find("broadcast", "pipelined chain")(ranks=5, segments=6)
    busy = Counter(move.step + 1 for move in chain.moves)
    assert [step for step in sorted(busy) if busy[step] == 4] == [4, 5, 6] and "from step 4 to step 6" in told


def test_the_first_difference_of_the_dumps_comes_in_step_4():
    class Recorded:
        """A rank of a process group that only writes down what is called."""

        def __init__(self, rank):
            self.rank, self.calls = rank, []

        def get_rank(self):
            return self.rank

        def __getattr__(self, name):
            return lambda *_: self.calls.append(name)

    called = []
    for rank in (0, 1):
        here = run("48_your_own_job", "dump", dist=Recorded(rank), threading=MagicMock())
        here["skipping"](None)
        called.append(here["dist"].calls)
    others, skipper = called
    first = next(i for i, (a, b) in enumerate(zip(others, skipper, strict=False)) if a != b)
    step, call = divmod(first, 2)  # two calls a step
    assert (step, call, skipper[first]) == (4, 0, "barrier") and "step == 2" in cells("48_your_own_job")["dump"]
    told = words("48_your_own_job", "dump_explained")
    assert "In this job the others are in step 4 there, and the mistake is in step 2." in told


def test_a_torch_without_cuda_refuses_the_hook_for_bfloat16():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    class Told:
        def _log_and_throw(self, kind, text):
            raise kind(text)

    DistributedDataParallel._check_comm_hook(Told(), default_hooks.fp16_compress_hook)
    if torch.version.cuda is None and torch.version.hip is None:
        with pytest.raises(TypeError, match="BF16 all reduce communication hook"):
            DistributedDataParallel._check_comm_hook(Told(), default_hooks.bf16_compress_hook)
    assert "and bf16 a TypeError where torch was built without CUDA" in words("60_send_less", "libraries")
    assert "a torch that was built without CUDA refuses it" in words("61_bits", "hooks_explained")


@pytest.mark.parametrize("path", sorted(ROOT.glob("*s/*/*.ipynb")), ids=lambda path: path.stem)
def test_the_numbers_of_sections_count_up(path):
    notebook = nbformat.read(path, as_version=4)
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    numbers = [int(n) for text in texts for n in re.findall(r"^## (\d+)\. ", text, flags=re.M)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_figures_of_the_labs_answers_in_words():
    fast = words("lab12_make_it_fast", "worth_doing")
    ring, levels = 2 * 127 / 128, 8 * 2 * 15 / 16 / 8
    assert f"= {ring:.2f} n through each card" in fast and f"= {levels:.2f} n: the card" in fast
    assert f"two levels save only {100 * (1 - levels / ring):.1f} % of them" in fast
    assert f"take {512 / 371e9 * 1e9:.1f} ns at 371 GB/s" in fast and "make 112 messages of 14" in fast

    less = words("lab16_send_less", "which_one")
    whole, top, diloco = 2 * 10 * 2 * 7 / 8, 8 * 0.1 * 7, 2 * 10 * 4 * 7 / 8  # GB, so seconds at 1 GB/s
    assert f"= {whole:.0f} GB" in less and f"{100 * whole / (whole + 4):.0f} % waiting" in less
    assert f"= {top:.1f} GB, {top:.1f} s, {100 * top / (top + 4):.0f} %" in less
    assert f"= {diloco:.0f} GB a round, {diloco / 200:.2f} GB a step" in less
    assert f"{diloco:.0f} s after 800 s, {100 * diloco / (diloco + 800):.0f} %" in less

    hops = words("lab21_bits", "every_hop")
    assert f"(1 + 2 + ... + 16)/2 = {sum(range(17)) // 2} steps" in hops
    parts = 16 / 2  # half a step of each rank
    total = 16 * (1 / 2)  # half of one step of the sum, which is 16 times as large
    assert f"{parts:.0f} in all" in hops and f"{total:.0f} more: {parts + total:.0f} steps" in hops

    pad, alpha, beta = words("lab22_uneven", "pad_or_not"), 10e-6, 20e-12
    long = alpha + 64e6 * beta
    assert f": {63e3 * (alpha + 1.1e6 * beta):.1f} ms" in pad and f"63 x 1.29 ms = {63e3 * long:.0f} ms" in pad
    assert f"6 x 1.29 = {6e3 * long:.1f} ms" in pad
    chain = (math.sqrt(62 * alpha) + math.sqrt(64e6 * beta)) ** 2
    assert f"a chain in well-chosen pieces in {1e3 * chain:.1f} ms" in pad


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
    small, large = (cost.nccl_choice("all_reduce", nbytes, "dgx-h100", nodes=2) for nbytes in (2**20, 2**30))
    assert [(small.algorithm, small.protocol), (large.algorithm, large.protocol)] == [
        ("tree", "LL128"),
        ("nvls_tree", "Simple"),
    ]


def test_gloo_refuses_two_of_the_nine_lines_that_nccl_refuses(one_rank):
    source = cells("42_what_changes_on_nccl")["refused_programs"].replace('"recv from anybody":', '"not run":')
    source = source.replace("dist.recv(x[0])", "None")  # legal on gloo: it waits for a message
    here = {"dist": dist, "torch": torch}
    exec(source, here)
    assert set(here["refused"]()) == {"int16", "a message to oneself"}
    told = words("42_what_changes_on_nccl", "device")
    assert "Gloo refuses only two of the nine lines of the next cell: int16, and a message to oneself." in told


def test_what_the_chapter_on_hangs_says_of_torchs_tools():
    from torch.distributed import debug
    from torch.distributed.elastic.multiprocessing import errors

    assert "Root Cause (first observed failure)" in inspect.getsource(errors)
    assert "*Root Cause (first observed failure)*" in words("45_when_it_hangs", "kill_explained")
    told = " ".join(debug.start_debug_server.__doc__.split())
    assert "experimental feature" in told and "only be used in trusted network environments" in told
    assert (
        "(`torch.distributed.debug.start_debug_server()` on every rank; experimental, for trusted networks only)"
        in (words("45_when_it_hangs", "flight_explained"))
    )


def test_no_page_names_the_folders_of_nccls_plugins_before_2_29_7():
    pages = [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "chapters/source").rglob("*.py"),
        *(ROOT / "solutions").rglob("*.py"),
    ]
    assert len(pages) > 50
    assert not [
        page.name for page in pages if re.search(r"\bext-(net|tuner|profiler)/", page.read_text(encoding="utf-8"))
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


def test_busbw_of_a_long_vector_falls_at_four_nodes_and_then_hardly(capsys):
    plots = MagicMock()
    plots.chart.return_value = MagicMock(), MagicMock()
    run("40_topology", "busbw_nodes", plots=plots)
    long, *_ = capsys.readouterr().out.splitlines()
    one, two, four, most = map(int, long.partition("GB/s:")[2].split())
    assert one > two > 8 * 50 > four > most  # by NCCL's tuner alone: two nodes gain nothing over one
    assert (two - four) / two == pytest.approx(1 / 5, abs=0.02)
    assert cost.nccl_choice("all_reduce", 2**30, "dgx-h100", nodes=2).algorithm == "nvls_tree"
    told = words("40_topology", "busbw_nodes_explained").replace(" %", "%")
    assert f"a fifth of busbw is gone, and from there to 64 nodes only {1 - most / four:.0%} more" in told

    def sent(schedule: schedules.Schedule, together: int = 1) -> float:
        """What the busiest node of so many ranks sends to other nodes, in vectors."""
        sizes, out = schedule.chunk_nbytes(61_440), Counter()
        for move in schedule.moves:
            if move.src // together != move.dst // together:
                out[move.src // together] += sum(sizes[chunk] for chunk in move.chunks)
        return max(out.values()) / 61_440

    trees = [sent(schedules.double_binary_tree_all_reduce(nodes)) for nodes in (2, 4, 8, 64)]
    assert trees == [1, 2, 2, 2] and "From four nodes on the tree's busiest node sends $2n$ too" in told
    assert f"a ring ${sent(schedules.ring_all_reduce(16), 8):.2f}\\,n$" in told


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


def test_the_tree_on_1024_gpus_has_28_steps():
    """A chain of 8 in each node and a tree between 128 of them, up and down."""
    assert cost.nccl_choice("all_reduce", 25 << 20, "dgx-h100", nodes=128).algorithm == "tree"
    assert 2 * (8 - 1 + round(math.log2(128))) == 28 and 2 * (128 * 8 - 1) == 2046
    told = words("20_data_parallel", "efficiency_explained")
    assert "a tree for vectors of such a size: on 128 nodes of 8 GPUs that is 28 steps instead of 2046" in told


def test_a_short_backward_pass_leaves_bytes_that_nothing_hides():
    cluster = workload.Cluster(ranks=32, bytes_per_s=200e9, alpha_s=5e-6)
    sizes = [2**k << 20 for k in range(13)]
    left_s = min(workload.ddp(7e9, cluster, bucket_nbytes=n, backward_s=0.1).exposed_s for n in sizes)
    bytes_s = 2 * 31 / 32 * 14e9 / 200e9
    assert left_s > bytes_s - 0.1 == pytest.approx(0.036, abs=0.001)
    told = words("21_overlap_and_bucketing", "sizes_explained")
    assert "If backward took only 100 ms, at least 36 of the 136 ms would stay exposed" in told


def test_the_bytes_of_a_step_in_the_table_of_strategies():
    """Those of context parallelism are of a step too, forward and backward."""
    here, told = run("26_context_parallel", "formulas"), cells("01_nine_pictures")["strategies"]
    for p in (2, 8, 64):
        block = here["ring_bytes"](131_072, p, 8) / (p - 1)
        assert here["ring_step_bytes"](131_072, p, 8) / block == pytest.approx(3 * p - 2)
        shape = 131_072, p, 128, 128
        assert here["ulysses_step_bytes"](*shape) == 2 * here["ulysses_bytes"](*shape)
    assert "backward also of their gradients | $3p-2$ blocks a layer |" in told
    assert r"four a layer forward, four backward | $2\frac{p-1}{p}$ of queries, keys, values, results |" in told


def test_where_scatter_and_all_gather_wins_a_broadcast_to_1024(capsys):
    run("10_broadcast", "names", "competition", "winners", math=math)
    won = re.findall(r"(\d+) ranks, from +([\d.]+) MB on: (.*)", capsys.readouterr().out)
    begin, end = (float(mb) for p, mb, name in won if p == "1024" and name != "tree")
    assert (begin, end) == (pytest.approx(32, rel=0.1), pytest.approx(1020, rel=0.1))
    assert "the fastest from about 32 MB to 1 GB. The list below the figure says so" in words(
        "10_broadcast", "competition_explained"
    )


def test_five_functions_of_autograd_are_deprecated():
    from torch.distributed.nn import functional

    public = {name: f for name, f in vars(functional).items() if inspect.isfunction(f) and name[0] != "_"}
    deprecated = [name for name, f in public.items() if "_deprecated(" in inspect.getsource(f)]
    assert len(deprecated) == 5 and "all_gather" in deprecated
    assert "torch 2.13 calls five of these deprecated, `all_gather` too" in words("13_all_gather", "grad_explained")


def asks_for_messages(chapter) -> bool:
    """Whether the reader of the chapter is to write a function that sends or receives."""
    notebook = nbformat.read(ROOT / chapter.path, as_version=4)
    asked = [c.source for c in notebook.cells if c.cell_type == "code" and re.search(r"^check\(", c.source, flags=re.M)]
    return any(re.search(r"dist\.(i?send|i?recv|P2POp)\(", source) for source in asked)


def test_a_chapter_whose_exercise_sends_messages_needs_the_one_on_messages():
    by_number = {chapter.number: chapter for chapter in chapters()}

    def known(number: str) -> set[str]:
        return {number}.union(*(known(needed) for needed in by_number[number].needs))

    asking = [c for c in chapters() if asks_for_messages(c)]
    assert len(asking) > 5
    assert not [c.stem for c in asking if "03" not in known(c.number)]


def test_the_core_names_each_call_before_it_makes_it():
    """Also for readers who take no side trip: in a text above, or in a comment on the line."""
    told, unknown = "", []
    for chapter in chapters():
        if not chapter.core:
            continue
        for cell in nbformat.read(ROOT / chapter.path, as_version=4).cells:
            if cell.cell_type == "markdown":
                told += cell.source.replace("-", "_").lower()
                continue
            for line in cell.source.splitlines():
                for name in re.findall(r"\bdist\.(?!get_)([a-z_]+?)(?:_single|_object)?\(", line):
                    told += f" {name} " * ("#" in line)
                    if not re.search(rf"\b{name}\b", told):
                        unknown.append((chapter.number, cell.id, name))
    assert not unknown


def test_the_steps_of_the_first_picture_are_not_equally_long():
    pieces = {
        name: schedules.find("all_reduce", name)(8) for name in ("recursive doubling", "ring", "double binary tree")
    }
    assert [{len(move.chunks) for move in s.moves} for s in pieces.values()] == [{1}] * 3
    assert [len(s.chunk_nbytes(1600)) for s in pieces.values()] == [1, 8, 16]
    told = words("17_all_reduce_algorithms", "title")
    assert "*doubling* sends the whole vector, of the *ring* an eighth, of the *double tree* a sixteenth" in told


@pytest.fixture
def one_rank():
    """This process as a group of one rank, enough for DDP's own order of buckets."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_tied_matrix_delays_all_buckets_only_if_it_is_registered_last(one_rank):
    given = {"dist": dist, "DistributedDataParallel": DistributedDataParallel}
    here = run("21_overlap_and_bucketing", "diary", "tied", **given)

    def waits(model) -> bool:
        """Whether the matrix is ready before any bucket is launched."""
        page = here["diary"](model, torch.arange(3), find_unused_parameters=True)[1].split()
        return page.index("head.weight") < next(i for i, word in enumerate(page) if word[0] == "[")

    last, first = here["Tied"](skip=1), here["Tied"](skip=1)
    first._modules["body"] = first._modules.pop("body")  # now the matrix is registered first, as GPT-2's embedding is
    assert next(name for name, _ in first.named_parameters()) == "head.weight"
    assert waits(last) and not waits(first)
    told = words("21_overlap_and_bucketing", "tied_explained")
    assert "GPT-2 registers it first, as its embedding: then its bucket is the last, and nothing waits" in told


def test_the_small_bucket_of_ddp_goes_first_unless_buckets_stay_as_they_were(one_rank):
    def sent(**options) -> list[int]:
        """MiB of each bucket of the second backward pass, in the order in which they go."""
        layers = (torch.nn.Linear(512, 512, bias=False) for _ in range(4))  # 1 MiB each
        ddp, sizes = DistributedDataParallel(torch.nn.Sequential(*layers), **options), []

        def note(_, bucket):
            sizes.append(bucket.buffer().nbytes >> 20)
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])

        ddp.register_comm_hook(None, note)
        ddp(torch.ones(1, 512)).sum().backward()
        first = len(sizes)
        ddp(torch.ones(1, 512)).sum().backward()
        return sizes[first:]

    assert sent() == [1, 3]
    assert sent(find_unused_parameters=True) == [3, 1]
    assert sent(bucket_cap_mb=25) == [4]
    told = words("21_overlap_and_bucketing", "where")
    assert "From the second step on the first one that is sent, with 1 MiB instead of 25" in told
    assert "only while you leave this option alone: with `bucket_cap_mb=25` it has 25 too" in told
    assert "With `find_unused_parameters=True` the buckets are never rebuilt, and the small one is the last" in told


def test_a_slow_link_makes_a_ring_longer_on_every_rank():
    def ends(slow: float) -> list[float]:
        """When each of eight ranks is done, if a message takes a second, and `slow` seconds from rank 2 to rank 3."""
        done = [0.0] * 8
        for moves in schedules.ring_all_reduce(8).by_step:
            over = [(m, max(done[m.src], done[m.dst]) + (slow if m.src == 2 else 1)) for m in moves]
            done = [max(end for m, end in over if rank in (m.src, m.dst)) for rank in range(8)]
        return done

    assert set(ends(1)) == {14} and min(ends(10)) > 5 * 14
    assert "A slow link is different: it makes an all-reduce longer on every rank" in words(
        "02_why_communication", "straggler_explained"
    )


def a_column(name: str) -> str:
    """What a call over gloo makes of a column, a view with gaps: "right", "wrong", or its error."""
    rank, dst = dist.get_rank(), {"reduce": 0, "gather": 0}.get(name)
    columns = [(torch.arange(8.0) + 10 * r).view(4, 2)[:, 0] for r in range(2)]  # 0 2 4 6 and 10 12 14 16
    given, room = columns[rank], [torch.zeros(4) for _ in columns]
    call = getattr(dist, name)
    try:
        if name == "send":
            call(given, dst=1 - rank)
        elif name == "gather":
            call(given, room if rank == 0 else None, dst=0)
        elif name == "scatter":
            call(room[rank], columns if rank == 0 else None, src=0)
        else:
            call(given, **({"src": 0} if name == "broadcast" else {} if dst is None else {"dst": dst}))
    except RuntimeError as error:
        return str(error)
    if dst is not None and rank != dst:
        return "right"
    wanted = {"gather": columns, "scatter": [columns[rank]], "broadcast": [columns[0]]}
    got = room if name == "gather" else [room[rank] if name == "scatter" else given]
    sums = [torch.tensor([10.0, 14, 18, 22])]
    return "right" if all(map(torch.equal, got, wanted.get(name, sums))) else "wrong"


def test_who_refuses_a_column():
    with World(ranks=2) as world:
        found = {
            name: world.run(a_column, name, deadline=60)
            for name in ("send", "gather", "scatter", "broadcast", "reduce", "all_reduce")
        }
    assert all("contiguous" in error for error in found.pop("send"))
    assert set(found.pop("gather")) == {"right"}
    assert all("wrong" in ranks for ranks in found.values()), found
    told = words("11_scatter_and_gather", "columns_explained")
    assert (
        "`send` refuses them, its `gather` makes a copy, and its `scatter`, `broadcast`, `reduce` and `all_reduce` take the wrong"
        in told
    )
    assert "But one that it accepts is wrong: of the column it sums four numbers" in words(
        "42_what_changes_on_nccl", "device"
    )


def test_the_messages_of_deepep_cost_less_than_one_after_the_other():
    nbytes, alpha_s = 128 * 8 * 7168 * 63 / 64, 5e-6  # FP8, 128 tokens for 8 experts each, on 64 ranks
    bytes_us = 1e6 * nbytes / 50e9
    assert round(bytes_us) == 145 and round(173 - bytes_us) == 28 and 1e6 * 63 * alpha_s == pytest.approx(315)
    told = words("15_all_to_all", "serving_explained")
    assert "the bytes alone take 145 µs, so all 63 messages together cost about 28 µs, and not 315" in told


def test_torchs_split_loss_makes_three_all_reduces(one_rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.parallel import loss_parallel

    logits = DTensor.from_local(torch.randn(4, 8, requires_grad=True), init_device_mesh("cpu", (1,)), [Shard(1)])
    with loss_parallel(), CommDebugMode() as counted:
        torch.nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    assert counted.get_total_counts() == 3
    assert "For the loss torch makes a third, for the target's logit" in words("18_composing", "where")
    assert "Three all-reduces of one number a token" in words("24_tensor_parallel", "split_loss_explained")


def test_more_room_hides_gathers_only_if_the_network_has_time():
    from allranks.show.widgets.first_figures import fsdp_step

    alike, longer = ([round(100 * fsdp_step(g, room)["waits"]) for room in range(1, 7)] for g in (1, 2))
    assert alike == [49, *[10] * 5] and min(longer) == 47
    told = words("23_fsdp_by_hand", "prefetch_explained")
    assert "49 % of the step with room for one block and 10 % with room for two; a third block changes nothing" in told
    assert "no room brings that below 47 %: the network is never idle" in told
    run_of = fsdp_step(2, 6)
    assert run_of["messages"][-1] == pytest.approx(2 * len(run_of["messages"]))  # each takes 2, without a pause


def test_the_chain_takes_29_percent_longer_than_one_copy(capsys):
    here = run("10_broadcast", "names", "competition", math=math)
    assert here["rows"][2][3] / (14e9 / 50e9) == pytest.approx(1.29, abs=0.005)
    assert "the pipeline 29 % longer than sending one copy" in words("10_broadcast", "competition_explained")


def test_who_waits_for_the_root_is_read_from_the_run():
    told = []
    for others in ([0.5, 0.0], [0.0, 0.0]):  # gloo: the one that sends to the root; NCCL may let all go on
        guess = SimpleNamespace(reveal=lambda answer, **_: told.append(answer))
        run("12_reduce", "reveal_wait", guess_wait=guess, waited={"reduce": [0.0, *others]})
    assert told == ["all in the all-reduce, not all in the reduce", "nobody waits in the reduce"]
    assert all(f'"{answer}"' in cells("12_reduce")["guess_wait"] for answer in told)


def test_fully_shard_copies_weights_out_of_a_flat_buffer():
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group

    assert "`foreach_all_gather_copy_out`" in words("23_fsdp_by_hand", "bytes")
    assert "split_with_sizes_copy" in inspect.getsource(_fsdp_collectives.foreach_all_gather_copy_out)
    assert "foreach_all_gather_copy_out(" in inspect.getsource(_fsdp_param_group.FSDPParamGroup.wait_for_unshard)


def test_with_nccl_a_short_all_reduce_is_faster_than_a_reduce():
    """The reduce by hops, as an all-gather's ring is priced; NCCL's own estimate for it is three times as long."""
    here = run("12_reduce", "with_nccl")
    assert round(here["chain_us"]) == 887 and round(here["tree_us"]) == 85
    reduce, broadcast = (cost.nccl_choice(name, 8, "dgx-h100", nodes=128) for name in ("reduce", "broadcast"))
    assert {reduce.algorithm, broadcast.algorithm} == {"ring"} and min(reduce.us, broadcast.us) > here["chain_us"]
    assert "with NCCL on many GPUs a tenth of the time" in words("12_reduce", "recap")
    assert "with NCCL even four bytes pass all ranks one after the other" in words("10_broadcast", "live_explained")


def test_an_all_reduce_of_one_token_takes_15_microseconds_on_a_node():
    one = cost.nccl_choice("all_reduce", 2 * 12_288, "dgx-h100").us
    assert round(one) == 15 and 2 * 96 * one / 1e3 == pytest.approx(2.9, abs=0.05)
    assert "NCCL's tuner expects 15 µs for each on eight H100s: 2.9 ms" in words("24_tensor_parallel", "quiz")


def test_steps_take_most_of_a_long_rings_all_gather():
    few, many = (cost.nccl_choice("all_gather", nbytes, "dgx-h100", nodes=128) for nbytes in (8, 32 << 20))
    assert few.algorithm == many.algorithm == "ring" and many.latency_us / many.us > 0.9
    assert (round(few.us / 1e3, 1), round(many.us / 1e3, 1)) == (1.2, 2.3)
    told = words("13_all_gather", "pat_explained")
    assert "expects 1.2 ms for a few bytes and 2.3 ms for 32 MiB, nearly all of it for the steps" in told


def test_the_gallery_says_from_how_many_ranks_on_the_player_shows_a_matrix():
    most = re.search(r"MOST_HUES = (\d+)", (ROOT / "utils/js/src/player/hues.js").read_text(encoding="utf-8"))[1]
    assert f"With more than {most} ranks" in words("64_player_gallery", "many")
