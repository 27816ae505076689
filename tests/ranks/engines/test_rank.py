"""How a rank joins a group on a GPU: what it tells torch before and while it makes the group."""

import os
import pickle
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from allranks.ranks.engines import libraries, rank, watch
from allranks.ranks.world import rank_status


class Made(Exception):
    """The group would be made now."""


@pytest.fixture
def joined(monkeypatch):
    """What `init_process_group` gets from `join`, where the calls that need a driver do nothing."""
    told = {}

    def init_process_group(backend, **options):
        told.update(options, backend=backend, asked=os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        told.update(rethrows=os.environ.get("TORCH_NCCL_RETHROW_CUDA_ERRORS"))
        raise Made

    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch, "set_default_device", lambda device: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    for name in rank.NCCL_SETTINGS:
        monkeypatch.delenv(name, raising=False)

    def join(backend, **env):
        # join writes the environment itself, so take its changes back
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", os.environ.copy())
            patch.setattr(signal, "signal", lambda number, handler: told.update(handler=handler))
            with pytest.raises(Made):
                rank.join(0, 1, backend, "file:///nowhere", env, 1, None)
        return told

    return join


def test_a_rank_on_a_gpu_gives_its_device_so_that_communicators_form_at_once(joined):
    assert joined("nccl")["device_id"] == torch.device("cuda", 0)
    assert joined("gloo")["device_id"] is None


def test_a_rank_binds_the_gpu_that_its_environment_names_and_is_watched_there(joined, monkeypatch):
    monkeypatch.setattr(watch, "_gpu", [])
    assert joined("nccl", ALLRANKS_GPU_INDEX="3")["device_id"] == torch.device("cuda", 3)
    assert watch._gpu == [torch.device("cuda", 3)]


def test_under_mps_a_rank_ends_by_itself(joined, monkeypatch):
    assert "handler" not in joined("nccl") and joined("nccl", ALLRANKS_MPS="1")["handler"] is rank.end_in_peace
    done = []
    monkeypatch.setattr(rank, "_uses_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("synchronize"))
    monkeypatch.setattr(os, "_exit", done.append)
    rank.end_in_peace()
    assert done == ["synchronize", 0]


def raised(error, other=None):
    try:
        if other is None:
            raise error
        try:
            raise error
        except Exception as first:
            raise other from first
    except Exception as last:
        return rank.describe_error(last)["breaks_group"]


def test_what_poisons_a_gpu_or_its_communicator_breaks_the_group():
    """CUDA repeats the error of a device-side assert in every later call of the process."""
    assert raised(torch.AcceleratorError("CUDA error: device-side assert triggered"))
    assert raised(dist.DistBackendError("NCCL error: unhandled cuda error"))
    assert raised(
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), ValueError("bad batch")
    )
    assert not raised(torch.AcceleratorError("CUDA error: out of memory"))
    assert not raised(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."))
    assert not raised(ValueError("a mistake"), KeyError("another"))


@pytest.mark.parametrize(
    "words",
    [  # c10d/nccl2/ProcessGroupNCCL.cpp, NCCLException; WorkNCCL.cpp; ProcessGroupNCCLUtils.cpp
        "NCCL Reduce failed in reduce_scatter: invalid argument (run with NCCL_DEBUG=WARN for details) \nNCCL Last Error: ",
        "NCCL Async Error: remote process exited or there was a network error \nNCCL Last Error: socketProgress: closed",
        "NCCL operation failed",
        "NCCL operation timed out",
        "NCCL communicator was aborted after a previous error",
        "NCCL Error 6: remote process exited or there was a network error",  # torch/csrc/cuda/nccl.cpp, throw_nccl_error
    ],
)
def test_torch_raises_nccls_errors_as_plain_runtime_errors(words):
    """A rank that keeps such a communicator fails in every later call, or stays in NCCL's open group and sends nothing more."""
    assert raised(RuntimeError(words)) and raised(RuntimeError(words), ValueError("a step failed"))
    assert not raised(RuntimeError("Tensors must have identical type")) and not raised(ValueError(words))


@pytest.mark.parametrize(
    ("method", "words"),
    [  # what ProcessGroupNCCL.cpp (both classes) and torch/csrc/cuda/nccl.cpp ask between ncclGroupStart and ncclGroupEnd
        ("allgather", "Unsupported tensor data type for NCCL"),
        ("reduce_scatter", "Cannot use ReduceOp.BAND with NCCL"),
        ("reduce_scatter", "Unsupported Float8 type for NCCL reduction"),
        ("alltoall", "Unconvertible NCCL type Short"),
        # the older class, for parts of unequal sizes: startCoalescing() comes before these, endCoalescing() never
        ("allgather", "Tensor input and output of _broadcast_oop must have the same number of elements "),
        ("reduce_scatter", "Tensor input and output of _reduce_oop must have the same number of elements "),
        ("allgather", "Input tensor data type is not supported for NCCL process group: Short"),
    ],
)
def test_a_refusal_inside_nccls_group_breaks_the_group_and_one_before_it_does_not(monkeypatch, method, words):
    """ncclGroupEnd is never called then: the rank's later calls join that group, return at once, and are never sent."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # it registers the backend "fake"

    def refused(words):
        def call(*arguments):
            raise RuntimeError(words)

        monkeypatch.setattr(dist.ProcessGroup, method, call)
        parts, whole = [torch.ones(2), torch.ones(2)], torch.ones(2)
        calls = {
            "allgather": lambda: dist.all_gather(parts, whole),
            "reduce_scatter": lambda: dist.reduce_scatter(whole, parts),
            "alltoall": lambda: dist.all_to_all(parts, parts),
        }
        try:
            calls[method]()
        except RuntimeError as error:
            return rank.describe_error(error)["breaks_group"]

    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    try:
        assert refused(words)
        assert not refused("All tensors in tensor_list must have same size as input tensor")
    finally:
        dist.destroy_process_group()
    assert not raised(RuntimeError(words)), "all_reduce, for example, asks before it begins"


def test_a_number_that_names_no_gpu_is_told_and_breaks_nothing(monkeypatch):
    """A copied script's `torch.cuda.set_device(LOCAL_RANK)` where two ranks share one GPU."""
    monkeypatch.setenv("ALLRANKS_GPU_INDEX", "0")
    error = torch.AcceleratorError("CUDA error: invalid device ordinal\nGPU device may be out of range")
    told = rank.describe_error(error)
    assert not told["breaks_group"]
    assert told["hint"].startswith("this rank's GPU is cuda:0, and it is set already: leave out torch.cuda.set_device")


def test_an_error_of_cuda_that_was_swallowed_shows_when_the_stream_is_asked(monkeypatch):
    class Stream:
        def query(self):
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(rank, "_uses_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    assert raised(ValueError("no batch"))
    monkeypatch.setattr(Stream, "query", lambda self: False)  # it still works: that is no error
    assert not raised(ValueError("no batch"))


def test_no_tensor_of_a_gpu_goes_to_the_notebook_also_in_objects(monkeypatch):
    """The notebook would start CUDA for it, on a GPU that another account may have leased."""
    moved, clone = [], torch.Tensor.clone
    monkeypatch.setattr(rank, "_uses_gpu", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor.dtype == torch.float32))
    monkeypatch.setattr(
        torch.Tensor, "cpu", lambda tensor: moved.append(tensor.shape) or clone(tensor).to(torch.float64)
    )
    model = torch.nn.Linear(2, 3)
    model.again, model.weight.requires_grad = model.weight, False
    kind, value = pickle.loads(rank._pack({"plain": [torch.ones(4)], "model": model}, "the result"))
    assert kind == "value" and sorted(moved) == [(3,), (3, 2), (4,)], "each once, also what has two names"
    back = value["model"]
    assert type(back.weight) is torch.nn.Parameter and back.weight is back.again
    assert not back.weight.requires_grad and back.bias.requires_grad
    assert back.weight.equal(clone(model.weight).to(torch.float64)) and value["plain"][0].tolist() == [1.0] * 4


def test_a_rank_names_the_nccl_that_it_uses_and_not_the_one_torch_was_built_for(monkeypatch):
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100")
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setattr(libraries, "nccl_in_use", lambda: None)  # with a torch for GPUs there is one
    assert rank.describe()["nccl"] == "2.28.9", "nothing is known of a library here"
    monkeypatch.setattr(libraries, "nccl_in_use", lambda: ((2, 30, 7), "/kit/libnccl.so.2"))
    assert rank.describe()["nccl"] == "2.30.7"


def test_survivors_of_a_killed_rank_wait_for_the_report_and_are_not_aborted(joined):
    assert joined("nccl")["asked"] == "0"
    assert joined("gloo")["asked"] is None


def test_a_device_side_assert_below_a_collective_does_not_abort_the_rank(joined):
    """torch's watching thread queries the collective's event, gets the assert's error, and would end the process with it."""
    assert joined("nccl")["rethrows"] == "0"
    assert joined("gloo")["rethrows"] is None


def test_a_setting_that_is_there_already_stays(joined, monkeypatch):
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    assert joined("nccl")["asked"] == "1"


@pytest.mark.wheel
@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL: it needs the CUDA wheel")
def test_this_torch_reads_the_settings_that_ranks_get():
    """A name that torch does not know would do nothing."""
    library = (Path(torch.__file__).parent / "lib" / "libtorch_cuda.so").read_bytes()
    assert [name for name in rank.NCCL_SETTINGS if name.encode() + b"\0" not in library] == []


@pytest.mark.wheel
@pytest.mark.skipif(
    not hasattr(dist, "ProcessGroupNCCL2"),
    reason="this torch has no ProcessGroupNCCL2: it needs the CUDA wheel of 2.15",
)
def test_torch_takes_the_device_for_the_class_that_nccl_is():
    """Without a driver the group can't be made; torch refuses only then, after it has accepted the arguments."""
    source = (
        "import torch, torch.distributed as d; from torch.distributed import distributed_c10d as c\n"
        "torch.accelerator.device_count = lambda: 1\n"
        "c._create_nccl2_process_group.__globals__['_nccl2_device'] = lambda o: print(o.process_group.bound_device_id) or 1/0\n"
        "d.init_process_group('nccl', store=d.HashStore(), rank=0, world_size=1, device_id=torch.device('cuda', 0))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.strip() == "cuda:0", done.stderr[-1000:]


def test_the_command_that_starts_a_rank_is_no_line_of_the_user():
    """Else a rank that has ended its cell is "computing" in line 1 of the cell."""
    said = "from allranks.ranks.engines import watch; print(watch.status())"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{}"
    files = [selectors.__file__, Path(watch.__file__).with_name("kernel_pipe.py")]
    frames = [f'  File "{file}", line 9 in engine' for file in files]
    stacks = "\n".join(
        ["Current thread 0x1 (most recent call first):", *frames, '  File "<string>", line 1 in <module>']
    )
    assert rank_status.from_stacks(1, stacks, "#\nx = 1") == rank_status.RankStatus(1)
