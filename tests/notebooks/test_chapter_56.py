"""The lab on a node of GPUs, on CPU ranks: what is measured there is right, and all else says that it is not measured."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from test_chapters import RANKS, ROOT, execute, read
from torch.autograd import DeviceType

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(400)]
CHAPTER = "56_eight_gpus"
FOLDER = ROOT / "chapters" / "4_real_cluster"


@pytest.mark.parametrize("ranks", RANKS)
def test_eight_gpus(ranks):
    chapter = execute(read(CHAPTER, ranks), FOLDER)
    assert not chapter.errors()
    cards = chapter.text("cards").splitlines()
    assert len(cards) == 6 and all(line.startswith("recorded (sglang") for line in cards)
    assert "GPU3 has NIC4 behind" in cards[3]
    low, high = map(float, re.findall(r"(\d+\.\d+)", chapter.text("matrix"))[:2])
    assert 0 < low <= high

    ends = chapter.text("ends")
    measured, computed = re.search(r"measured: ([\d.]+) GB/s.*computed: (\d+) GB/s", ends, flags=re.S).groups()
    assert float(measured) > 0 and 370.8 < int(computed) < 500
    assert {"measured, your ranks", "computed, NCCL's tuner for 8 H100"} <= set(chapter.curves("roof_figure"))

    sweeps = chapter.text("sweeps").splitlines()
    assert len(sweeps) == 5 and all(line.startswith("computed:") for line in sweeps)
    free, ring = (int(re.search(r"1,073,741,824: (\d+) µs", sweeps[i])[1]) for i in (0, 1))
    assert "nvls Simple" in sweeps[0] and "ring Simple" in sweeps[1] and 1.2 < ring / free < 1.45
    assert "ring LL" in sweeps[3].split("1,073,741,824")[1]  # NCCL_PROTO=LL
    assert "nvls" not in sweeps[4]
    assert re.match(
        r"measured: the same script on two CPU ranks, Gloo: 1,024: \d+ µs  1,048,576: \d+ µs", chapter.text("script")
    )

    assert f"sent {2 * (ranks - 1) / ranks:.3f} n; every sum is right: True" in chapter.text("ring_counted")
    assert "8 ranks: a ring sends 1.750 n, NVLS 1.125 n" in chapter.text("bytes_computed")
    assert "2 ranks: a ring sends 1.000 n, NVLS 1.500 n" in chapter.text("bytes_computed")
    assert "it was: the ring" in chapter.text("reveal_two") and "it was: one shot" in chapter.text("reveal_shot")
    small, large = chapter.text("before_after").splitlines()[-2:]
    for line in (small, large):
        communication, exposed, compute = map(float, re.findall(r"([\d.]+) ms", line))
        assert 0 < exposed <= communication and compute > 0
    assert "16 channels of 132 multiprocessors 1.14 times" in chapter.text("beside_run")
    assert chapter.text("one_shot_run").endswith("is off by 0.0")
    assert "one-shot  moves   896 KiB" in chapter.text("bytes_in_computed")
    assert re.match(r"measured: no window .*: \{65536: [\d.]+, 1048576: [\d.]+\}", chapter.text("windows"))
    assert chapter.text("record").startswith('measured: {"torch"')


def test_every_line_says_where_it_comes_from():
    """So that no reader takes a computed figure for a measured one."""
    for cell in read(CHAPTER).cells:
        if cell.cell_type == "code" and "print(" in cell.source:
            for said in re.findall(r'print\(\s*(?:f?"|[\'"])([^"\']*)', cell.source):
                assert re.match(r"measured|computed|recorded|\{label\}", said), (cell.id, said)


def test_the_page_says_that_nothing_has_run_on_a_gpu():
    assert "no cell of this page has run on a GPU" in read(CHAPTER).cells[0].source


# ------------------------------------------------------------------------------ what only GPUs run, with stand-ins for them


class Cells:
    """The chapter's cells, run one by one among these names; `world.run` answers with what `told` says of a function's name."""

    def __init__(self, **names):
        self.sources = {cell.id: cell.source for cell in read(CHAPTER).cells}
        self.told = {}
        self.world = SimpleNamespace(
            ranks=2, backend="nccl", run=lambda function, *_, **__: self.told[function.__name__]
        )
        every = {"json": json, "math": math, "os": os, "re": re, "sys": sys, "time": time, "torch": torch}
        self.names = {**every, "world": self.world, "gpus": 2, **names}

    def __call__(self, *cells):
        for cell in cells:
            exec(self.sources[cell], self.names)
        return self.names


def program(stdout="", stderr="", returncode=0):
    """A stand-in for subprocess whose program prints this; `asked` keeps each call."""
    asked = []

    def run(command, **options):
        asked.append((command, options))
        return SimpleNamespace(stdout=stdout, stderr=stderr, returncode=returncode)

    return SimpleNamespace(run=run, asked=asked)


@pytest.mark.parametrize("seen", [["GPU-4,GPU-5"] * 2, [""] * 4])
def test_the_script_runs_where_the_ranks_do(seen):
    """On the GPUs of their lease, and on no GPU where the ranks have none: one GPU can't have the script's two processes."""
    subprocess = program("1024 12.5\n")
    cells = Cells(subprocess=subprocess)
    cells.told["getenv"] = seen
    assert cells("sweep_code", "swept")["swept"]({}, [1024])[0] == {1024: 12.5}
    assert subprocess.asked[0][1]["env"]["CUDA_VISIBLE_DEVICES"] == seen[0]


def test_a_script_that_fails_says_so(capsys):
    cells = Cells(subprocess=program(stderr="NCCL Error 2: unhandled system error\n====\n", returncode=1))
    cells.told["getenv"] = ["GPU-0,GPU-1"] * 2
    assert cells("sweep_code", "swept")["swept"]({"NCCL_ALGO": "Tree"}, [1024])[0] == {}
    assert (
        capsys.readouterr().out == "measured: nothing, for the program failed. NCCL Error 2: unhandled system error\n"
    )


@pytest.mark.parametrize(("free_gb", "largest"), [(79, 2**32), (11, 2**30), (7, 2**30), (4, 2**28)])
def test_the_sweep_ends_where_the_smallest_gpu_is_full(free_gb, largest):
    """In an all_reduce of n bytes the check of the sum takes a bit more than 3 n at once."""
    swept = []
    bench = SimpleNamespace(Call=str, sweep=lambda world, call, sizes, **options: swept.extend(sizes))
    cells = Cells(bench=bench, cost=SimpleNamespace(nccl_choice=lambda *_: SimpleNamespace(us=1.0)))
    cells.told["mem_get_info"] = [(80 << 30, 80 << 30), (free_gb << 30, 80 << 30)]
    cells("swept_sizes")
    assert swept[-1] == largest


def test_gpus_without_counters_of_nvlink_are_told(monkeypatch, capsys):
    counter = SimpleNamespace(
        nvmlReturn=3, value=SimpleNamespace(ullVal=0)
    )  # NVML_ERROR_NOT_SUPPORTED, and a value of 0
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=138,
        nvmlDeviceGetFieldValues=lambda gpu, fields: [counter],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    for name, value in (
        ("current_device", 0),
        ("synchronize", None),
        ("get_device_properties", SimpleNamespace(uuid=1)),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    cells = Cells(dist=SimpleNamespace(all_reduce=lambda tensor: None), ring_by_hand=None)
    sent_bytes = cells("counters")["sent_bytes"]
    assert sent_bytes(4) is None
    cells.told["sent_bytes"], cells.world.trace = [None, None], lambda *_: ([], [])
    cells("ring_counted")
    assert capsys.readouterr().out.startswith("measured: NVLink's counters, of n: none on these GPUs\n")
    counter.nvmlReturn, counter.value.ullVal = 0, 7
    assert sent_bytes(4) == 0, "nothing was sent between the two looks"


def test_gpus_without_p2p_have_no_symmetric_memory(capsys):
    """Consumer GPUs: torch could not map the other's memory, and the cell would fail."""
    cells = Cells(one_shot=None, kernels_of=None)
    cells.told["reaches_all"] = [True, False]
    cells("one_shot_run", "bytes_of", "kernels_run", "bytes_in_computed")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "measured: nothing, for these GPUs can't map each other's memory"
    assert all(line.startswith("computed: ") for line in said[1:]) and len(said) == 4


def test_without_a_switch_that_adds_multimem_is_not_called(monkeypatch, capsys):
    """A100s: torch's call raises an error there."""
    handle = SimpleNamespace(multicast_ptr=0)
    symmetric = SimpleNamespace(empty=lambda *_, **__: None, rendezvous=lambda *_: handle)
    monkeypatch.setattr("torch.distributed._symmetric_memory", symmetric, raising=False)
    monkeypatch.setitem(sys.modules, "torch.distributed._symmetric_memory", symmetric)
    cells = Cells(dist=SimpleNamespace(group=SimpleNamespace(WORLD=None)), mapped=True)
    assert cells("kernels")["kernels_of"]("multimem_all_reduce_") == ([], 0.0)
    cells.told["kernels_of"] = [([], 0.0)]
    cells("kernels_run")
    assert "multimem_all_reduce_ of 128 KiB can't run: no switch here adds" in capsys.readouterr().out


def test_only_what_ran_on_the_gpu_is_called_a_kernel(monkeypatch):
    """With CUDA alone, torch's profiler records the calls of CUDA's library too (kineto_shim.cpp, kCudaTypes)."""
    kinds = {"one_shot": "CUDA", "cudaLaunchKernel": "CPU", "cudaDeviceSynchronize": "CPU"}
    events = [SimpleNamespace(key=key, device_type=getattr(DeviceType, kind)) for key, kind in kinds.items()]

    class Profile:
        def __init__(self, activities):
            pass

        def __enter__(self):
            return SimpleNamespace(key_averages=lambda: events)

        def __exit__(self, *_):
            pass

    symmetric = SimpleNamespace(empty=lambda *_, **__: None, rendezvous=lambda *_: None)
    monkeypatch.setattr("torch.distributed._symmetric_memory", symmetric, raising=False)
    monkeypatch.setitem(sys.modules, "torch.distributed._symmetric_memory", symmetric)
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    world = SimpleNamespace(group_name="0")
    monkeypatch.setattr(torch.ops, "symm_mem", SimpleNamespace(one_shot_all_reduce=lambda *_: None))
    cells = Cells(
        dist=SimpleNamespace(group=SimpleNamespace(WORLD=world)),
        bench=SimpleNamespace(seconds_of=lambda call, iterations: [2e-6]),
    )
    assert cells("kernels")["kernels_of"]("one_shot_all_reduce") == (["one_shot"], 2.0)


def test_the_record_asks_an_older_driver_by_its_name(tmp_path):
    def run(command, **_):
        known = "throttle" in command[1]
        return SimpleNamespace(
            returncode=not known, stdout="A100, 525.60\n" if known else 'Field "clocks_event" is not valid\n'
        )

    found = SimpleNamespace(rows=[])
    cells = Cells(
        subprocess=SimpleNamespace(run=run),
        found=found,
        folder=tmp_path,
        trace=SimpleNamespace(meta={"nccl": "2.30.7"}),
    )
    assert cells("record")["record"]["gpus"] == ["A100, 525.60"]
