"""Which tensor is on the device, on a machine without one: what a program would be refused on a GPU is refused here."""

from __future__ import annotations

import re
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from allranks.ranks.nccl_rules import DEVICE, HOST, NcclRuleError, Placement, Rule
from allranks.ranks.nccl_rules.refusals import check_kernel


@pytest.fixture
def placement():
    with Placement() as placement:
        yield placement


def ones(**options) -> torch.Tensor:
    return torch.ones(3, **options)


def put(tensor: torch.Tensor, places: torch.Tensor | slice, value: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor with values at some places: without `value` two of the CPU."""
    tensor[places] = torch.ones(2, device="cpu") if value is None else value
    return tensor


def in_context() -> torch.Tensor:
    with torch.device("cpu"):
        return ones()


ON_HOST = {
    "device=cpu": lambda: ones(device="cpu"),
    "torch.device": lambda: ones(device=HOST),
    "from_numpy": lambda: torch.from_numpy(np.ones(3, np.float32)),
    "from_dlpack": lambda: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(ones(device="cpu"))),
    "torch.device as a context": in_context,
    "frombuffer": lambda: torch.frombuffer(bytearray(12), dtype=torch.float32),
    "legacy constructor": lambda: torch.Tensor([1.0, 2.0, 3.0]),
    "legacy constructor by type": lambda: torch.FloatTensor([1.0, 2.0, 3.0]),
    "legacy constructor by size": lambda: torch.Tensor(3),
    "cpu()": lambda: ones().cpu(),
    "to cpu": lambda: ones().to("cpu"),
    "to cpu and type": lambda: ones().to("cpu", torch.float64),
    "to device by name": lambda: ones().to(device="cpu"),
    "computed": lambda: ones(device="cpu") * 2 + 1,
    "view": lambda: ones(device="cpu")[1:],
    "parameter": lambda: torch.nn.Parameter(ones(device="cpu")),
    "like": lambda: torch.zeros_like(ones(device="cpu")),
    "like another": lambda: ones().to(ones(device="cpu")),
    "a module's weight": lambda: torch.nn.Linear(3, 2, device="cpu").weight,
    "a moved module's weight": lambda: torch.nn.Linear(3, 2).cpu().weight,
    "sent from the notebook": lambda: cloudpickle.loads(PICKLED),
    "random": lambda: torch.randn(3, generator=torch.Generator(), device="cpu"),
}
ON_DEVICE = {
    "no device": ones,
    "device=device": lambda: ones(device=DEVICE),
    "cuda": lambda: ones(device="cuda"),
    "cuda:0": lambda: ones(device=torch.device("cuda", 0)),
    "a number": lambda: ones(device=0),
    "the default device": lambda: ones(device=torch.get_default_device()),
    "tensor": lambda: torch.tensor([1.0, 2.0, 3.0]),
    "as_tensor": lambda: torch.as_tensor(np.ones(3)),
    "moved": lambda: torch.from_numpy(np.ones(3)).to(DEVICE),
    "moved with a type": lambda: torch.from_numpy(np.ones(3)).to(DEVICE, torch.float32),
    "cuda()": lambda: ones(device="cpu").cuda(),
    "there and back": lambda: ones().cpu().to(DEVICE),
    "like another": lambda: ones(device="cpu").to(ones()),
    "device of another": lambda: ones(device=ones().device),
    "a module's weight": lambda: torch.nn.Linear(3, 2).weight,
    "copied into": lambda: ones().copy_(ones(device="cpu")),
    "with a number of the CPU": lambda: ones() * torch.tensor(2.0, device="cpu"),
    "a number of the CPU put at indices": lambda: put(
        ones(), torch.tensor([0], device="cpu"), torch.tensor(2.0, device="cpu")
    ),
    "one value of the CPU put by a mask": lambda: put(
        ones(), torch.tensor([True, True, False]), torch.ones(1, device="cpu")
    ),
    "values of the device put at indices of the CPU": lambda: put(
        ones(), torch.tensor([0, 1], device="cpu"), torch.ones(2)
    ),
    "values of the CPU put in a slice": lambda: put(ones(), slice(0, 2)),
    "index of the CPU": lambda: ones()[torch.tensor([0, 1], device="cpu")],
    "random": lambda: torch.randn(3, generator=torch.Generator(DEVICE)),
}
PICKLED = cloudpickle.dumps(torch.ones(3))


@pytest.mark.parametrize("make", ON_HOST.values(), ids=ON_HOST)
def test_a_tensor_in_the_memory_of_the_cpu_is_known(placement, make):
    tensor = make()
    assert placement.on_host(tensor)
    with pytest.raises(NcclRuleError) as refused:
        placement.check_collective("all_reduce", [tensor])
    assert refused.value.rule == Rule.HOST_TENSOR


@pytest.mark.parametrize("make", ON_DEVICE.values(), ids=ON_DEVICE)
def test_a_tensor_on_the_device_is_taken(placement, make):
    tensor = make()
    assert not placement.on_host(tensor)
    placement.check_collective("all_reduce", [tensor])


def test_gradients_are_where_their_parameters_are(placement):
    for device, there in (("cpu", True), (DEVICE, False)):
        layer = torch.nn.Linear(3, 2, device=device)
        layer(ones(device=device)).sum().backward()
        assert placement.on_host(layer.weight.grad) == there


def whole(*size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.int64)


REFUSED = {
    "add": (Rule.MIXED_DEVICES, lambda: ones() + ones(device="cpu")),
    "add in place": (Rule.MIXED_DEVICES, lambda: ones().add_(ones(device="cpu"))),
    "cat": (Rule.MIXED_DEVICES, lambda: torch.cat([ones(), ones(device="cpu")])),
    "a layer": (Rule.MIXED_DEVICES, lambda: torch.nn.Linear(3, 2)(ones(device="cpu"))),
    "stack with a number of the CPU": (
        Rule.MIXED_DEVICES,
        lambda: torch.stack([ones().sum(), torch.tensor(2.0, device="cpu")]),
    ),
    "values of the CPU put at indices": (Rule.MIXED_DEVICES, lambda: put(ones(), torch.tensor([0, 1]))),
    "values of the CPU put at indices of the CPU": (
        Rule.MIXED_DEVICES,
        lambda: put(ones(), torch.tensor([0, 1], device="cpu")),
    ),
    "values of the CPU put by a mask": (
        Rule.MIXED_DEVICES,
        lambda: put(ones(), torch.tensor([True, True, False])),
    ),
    "a product of whole numbers": (Rule.NO_KERNEL, lambda: whole(2, 3) @ whole(3, 2)),
    "a product with a vector": (Rule.NO_KERNEL, lambda: whole(2, 3) @ whole(3)),
    "a product of vectors": (Rule.NO_KERNEL, lambda: whole(3) @ whole(3)),
    "products of batches": (Rule.NO_KERNEL, lambda: whole(2, 2, 3) @ whole(2, 3, 2)),
    "einsum": (Rule.NO_KERNEL, lambda: torch.einsum("ij,jk->ik", whole(2, 3), whole(3, 2))),
    "a layer of whole numbers": (Rule.NO_KERNEL, lambda: torch.nn.functional.linear(whole(2, 3), whole(2, 3))),
    "a convolution": (Rule.NO_KERNEL, lambda: torch.conv1d(whole(1, 1, 3), whole(1, 1, 2))),
    "histogram": (Rule.NO_KERNEL, lambda: torch.histogram(ones(), 2)),
    "index on the device": (Rule.MIXED_DEVICES, lambda: ones(device="cpu")[torch.tensor([0])]),
    "numpy": (Rule.NUMPY, lambda: ones().numpy()),
    "asarray": (Rule.NUMPY, lambda: np.asarray(ones())),
    "np.add": (Rule.NUMPY, lambda: np.add(ones(), 1)),
    "generator": (Rule.GENERATOR, lambda: torch.randn(3, generator=torch.Generator())),
    "generator in place": (Rule.GENERATOR, lambda: ones().normal_(generator=torch.Generator())),
    "device's generator": (Rule.GENERATOR, lambda: torch.randn(3, generator=torch.Generator(DEVICE), device="cpu")),
}


@pytest.mark.parametrize(("rule", "program"), REFUSED.values(), ids=REFUSED)
def test_what_a_gpu_refuses_is_refused(placement, rule, program):
    with pytest.raises(NcclRuleError) as refused:
        program()
    assert refused.value.rule == rule


@pytest.mark.parametrize("name", "mm addmm bmm baddbmm addbmm mv addmv dot vdot".split())
def test_torchs_own_table_has_no_integers_for_cuda(name):
    table = Path(torch.__file__).parent / "testing/_internal/common_methods_invocations.py"
    entry = table.read_text(encoding="utf-8").split(f"OpInfo('{name}',")[1].split("OpInfo(")[0]
    assert re.search(r"\bdtypes=all_types", entry) and re.search(r"\bdtypesIfCUDA=floating_", entry)
    with pytest.raises(NcclRuleError, match="no integers"):
        check_kernel(name, torch.int32)


def test_what_only_the_cpu_computes_is_taken_there(placement):
    assert (whole(2, 3).cpu() @ whole(3, 2).cpu()).tolist() == [[3, 3], [3, 3]]
    assert torch.histogram(ones().cpu(), 2).hist.sum() == 3
    assert (whole(2, 3).double() @ whole(3, 2).double()).tolist() == [[3, 3], [3, 3]]
    assert torch.outer(whole(2), whole(2)).tolist() == [[1, 1], [1, 1]] and (whole(3) * 2).sum().item() == 6


def test_reading_values_out_is_allowed(placement):
    x = ones()
    assert x.tolist() == [1, 1, 1] and x.sum().item() == 3 and float(x[0]) == 1
    assert "tensor" in repr(x) and f"{x[0]:.1f}" == "1.0"
    assert x.cpu().numpy().tolist() == [1, 1, 1]
    assert (x.is_cuda, x.cpu().is_cuda) == (True, False)
    assert (x.device, x.cpu().device) == (DEVICE, HOST)


def test_training_step_passes(placement):
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.randn(4, 3)), torch.zeros(4, 1)).backward()
        optimizer.step()
    assert not any(placement.on_host(p) for p in model.parameters())


def test_a_mark_dies_with_its_storage(placement):
    """Else a new tensor at the same address would be taken for one of the CPU."""
    for _ in range(3000):
        ones(device="cpu")
    assert not any(placement.on_host(ones()) for _ in range(100))
    assert len(placement._host) < 2100


def test_nothing_is_left_behind():
    before = torch.from_numpy, torch.Generator, torch.cuda.is_available
    with Placement():
        assert torch.cuda.is_available()
    assert (torch.from_numpy, torch.Generator, torch.cuda.is_available) == before
    assert torch.get_default_device() == HOST
    assert ones().numpy().tolist() == [1, 1, 1]
    assert ones(device="cpu").add(ones()).tolist() == [2, 2, 2]
