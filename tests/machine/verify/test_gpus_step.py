"""The step of `verify` that looks at GPUs, with a stand-in for NVML's Python module."""

from __future__ import annotations

import sys

import pytest
from allranks.machine.verify import StepFailed, StepSkipped, faults, machine
from allranks.machine.verify.steps import Context, Plan
from allranks.ranks.engines import libraries
from allranks.ranks.engines.devices import Gpu, Inventory
from pretend_nvml import OlderNvml, PretendNvml


@pytest.fixture
def look(monkeypatch):
    """A function that carries out the step with an NVML and torch's CUDA; the context, and the error if it raised one."""
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def called(nvml, torch_cuda=(13, 0)):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(libraries, "torch_cuda", lambda: torch_cuda)
        context, error = Context(Plan(4, "gloo"), 20), None
        try:
            machine.gpus(context)
        except (StepFailed, StepSkipped) as raised:
            error = raised
        assert nvml.open == 0
        return context.figures, error

    return called


def test_each_gpu_is_described(look):
    found, error = look(PretendNvml())
    assert error is None and (found["driver"], found["driver_cuda"]) == ("580.65.06", "13.0")
    assert [row["mig"] for row in found["gpus"]] == [True, False, None]
    assert found["gpus"][1] == {
        "index": 1,
        "name": "NVIDIA H100",
        "memory_gib": 80.0,
        "memory_used_gib": 1.0,
        "compute_mode": "default",
        "mig": False,
        "pcie": "generation None, None lanes",
        "power_limit_w": None,
    }
    assert found["visible"] == [0, 0, 1, 2] and found["refused"] == []


@pytest.mark.parametrize("error", ["NVMLError_NoPermission", "NVMLError_GpuIsLost"])
def test_a_gpu_of_another_job_is_left_out(look, error):
    """A batch system hides it, and NVML still counts it."""

    class Job(PretendNvml):
        def nvmlDeviceGetHandleByIndex(self, index):
            if index == 1:
                raise getattr(self, error)
            return super().nvmlDeviceGetHandleByIndex(index)

    found, failed = look(Job())
    assert failed is None and len(found["gpus"]) == 2


def test_a_gpu_that_no_rank_uses_may_be_prohibited(look):
    class Display(PretendNvml):
        def nvmlDeviceGetComputeMode(self, handle):
            return self.NVML_COMPUTEMODE_PROHIBITED if handle == ("GPU", 2) else self.NVML_COMPUTEMODE_DEFAULT

    found, error = look(Display())
    assert error is None and found["visible"] == [0, 0, 1] and "in compute mode 'prohibited'" in found["refused"][0]


def test_a_driver_that_is_too_old_for_torch_fails_the_step(look):
    """The run would prove the CPU, and say so nowhere."""
    found, error = look(OlderNvml())
    assert isinstance(error, StepFailed) and str(error) == (
        "The NVIDIA driver 535.183.01 runs CUDA 12.2 and older; this torch was built for CUDA 13.0 and needs driver 580 or newer."
    )
    assert (found["driver_cuda"], found["visible"]) == ("12.2", [])
    assert look(OlderNvml(), torch_cuda=(12, 9))[1] is None, "minor versions of one major version fit"


def test_a_driver_without_gpus_fails_the_step_and_no_driver_skips_it(look):
    class Empty(PretendNvml):
        def nvmlDeviceGetCount(self):
            return 0

    assert "NVML shows no GPU" in str(look(Empty())[1])

    class Absent(PretendNvml):
        def nvmlInit(self):
            raise self.NVMLError_DriverNotLoaded("Driver Not Loaded")

    assert isinstance(look(Absent())[1], StepSkipped)

    class Updated(PretendNvml):
        def nvmlInit(self):
            raise self.NVMLError("RM has detected an NVML/RM version mismatch.")

    failed = look(Updated())[1]
    assert isinstance(failed, StepFailed) and "restart the machine" in str(failed)


@pytest.mark.parametrize(
    ("error", "call"), [("NotSupported", "nvmlDeviceGetMemoryInfo"), ("NoPermission", "nvmlDeviceGetHandleByUUID")]
)
def test_memory_that_nvml_does_not_tell_skips_the_step(monkeypatch, error, call):
    """Of a GPU that shares the CPU's memory, and of one that the GPU service keeps closed."""

    def refuse(self, *_):
        raise getattr(self, f"NVMLError_{error}")("Not here")

    nvml = type("Nvml", (PretendNvml,), {"nvmlDeviceGetHandleByUUID": lambda self, uuid: ("GPU", 1), call: refuse})()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    have = Inventory((Gpu(0, "GPU-0000-1", "GB10", 1 << 30),), 4, (2, 30, 7))
    monkeypatch.setattr(Inventory, "of_this_machine", lambda: have)
    with pytest.raises(StepSkipped, match="how much memory of a GPU is in use here"):
        faults.used_bytes(True)
    assert nvml.open == 0
