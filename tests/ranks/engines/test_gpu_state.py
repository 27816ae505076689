"""One reading of who uses which GPU: with and without root's service, also where that answers as nobody expects."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from allranks.ranks.engines.devices import Gpu, Inventory
from allranks.ranks.engines.gpu_state import gpu_state
from allranks.ranks.engines.gpu_use import use_of
from allranks.ranks.engines.leases import LeaseError, Ledger
from pretend_nvml import PretendNvml
from stand_in_service import StandInService, gpu, holder, state, waiter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases are kept on GPU servers, which run Linux")

GPUS = [gpu(0), gpu(1)]


@pytest.fixture
def service(short_path, monkeypatch):
    found = StandInService(short_path / "s", state(GPUS))
    monkeypatch.setenv("ALLRANKS_GPU_SOCKET", str(found.path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield found
    found.stop()


def test_a_services_state_is_one_row_for_each_gpu_with_estimates(service):
    service.says = state(
        GPUS,
        {"GPU-0": holder("ana", 15, 5)},
        {"GPU-1": [holder("ben", 10, 10)]},
        [waiter("chidi", 2, 1), waiter("dana", 1, 1, shares=4)],
        use={"GPU-0": {"memory_used_bytes": 5, "busy_percent": 7}},
        clearing=["GPU-1"],
    )
    found = gpu_state()
    assert json.loads(json.dumps(found)) == {**found, "gpus": json.loads(json.dumps(found["gpus"]))}
    first, second = found["gpus"]
    assert (first["holder"]["user"], first["memory_used_bytes"], first["busy_percent"], first["clearing"]) == (
        "ana",
        5,
        7,
        False,
    )
    assert ([h["user"] for h in second["sharers"]], second["memory_used_bytes"], second["clearing"]) == (
        ["ben"],
        None,
        True,
    )
    assert [one["wait_s"] for one in found["waiting"]] == [600, 1800] and found["newcomer_s"] == 1800
    assert found["enforced"] and found["shares"] == 4 and found["slice_s"] == 1200


def test_an_older_service_that_says_less_is_understood(service):
    service.says = {name: said for name, said in state(GPUS).items() if name not in ("use", "slice_s", "clearing")}
    assert [one["holder"] for one in gpu_state()["gpus"]] == [None, None]


@pytest.mark.parametrize(
    "says",
    [
        {"holders": {"GPU-0": {"user": 5}}},
        {"holders": {"GPU-0": {**holder("x", 1, 1), "until": 1e300}}},
        {"holders": [1]},
        {"sharers": None},
        {"waiting": [{"user": "x", "pid": 1, "gpus": "many", "since": 1}]},
        {"waiting": 7},
        {"slice_s": "long"},
    ],
    ids=[
        "no time",
        "for ever",
        "no table",
        "no list",
        "no number",
        "no queue",
        "no seconds",
    ],  # the same in every worker
)
def test_a_state_that_can_be_none_is_one_sentence(service, says):
    service.says = {**state(GPUS), **says}
    with pytest.raises(LeaseError, match="in a way that this version can't read"):
        gpu_state()


@pytest.mark.parametrize(
    "says", [b"garbage", b"[1, 2]", b"{}", b'{"gpus": 3}', b'{"error": "no"}', b"", b"[" * 5000], ids=str
)
def test_no_answer_is_no_gpu_and_a_sentence_that_says_so(service, says):
    service.says = says
    found = gpu_state()
    assert found["gpus"] == found["waiting"] == [] and len(found["refused"]) == 1 and found["newcomer_s"] is None


def test_without_a_service_it_is_read_from_the_locks(tmp_path, monkeypatch):
    path = tmp_path / "inventory.json"
    listed = [{"uuid": f"GPU-{i}", "name": "Pretend", "memory_bytes": 1 << 30, "busy_percent": i} for i in range(3)]
    path.write_text(json.dumps({"gpus": listed}))
    monkeypatch.setenv("ALLRANKS_INVENTORY", str(path))
    monkeypatch.setenv("ALLRANKS_LEASES", str(tmp_path / "leases"))
    ledger = Ledger(Inventory.from_file(str(path)).gpus)
    with ledger.acquire(1, slice_s=600), ledger.acquire(1, shares=4, slice_s=300), ledger._ticket(2):
        found = gpu_state()
    assert [bool(one["holder"]) for one in found["gpus"]] == [True, False, False]
    assert [len(one["sharers"]) for one in found["gpus"]] == [0, 1, 0]
    assert [one["busy_percent"] for one in found["gpus"]] == [0, 1, 2]
    assert [one["wait_s"] for one in found["waiting"]] == [300] and not found["enforced"]


def test_what_is_in_use_is_what_nvml_says(monkeypatch):
    class Nvml(PretendNvml):
        nvmlMemory_v2 = 2

        class NVMLError_FunctionNotFound(PretendNvml.NVMLError):
            pass

        class NVMLError_ArgumentVersionMismatch(PretendNvml.NVMLError):
            pass

        old = False

        def nvmlDeviceGetHandleByUUID(self, uuid):
            if uuid == "GPU-9":
                raise self.NVMLError_NoPermission
            return uuid

        def nvmlDeviceGetMemoryInfo(self, handle, version=None):
            if self.old and version:
                raise self.NVMLError_FunctionNotFound
            return type("Memory", (), {"used": 7 if version else 11})

        def nvmlDeviceGetUtilizationRates(self, handle):
            if handle.startswith("MIG"):
                raise self.NVMLError_NotSupported
            return type("Rates", (), {"gpu": 42})

    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("ALLRANKS_INVENTORY", raising=False)
    gpus = [Gpu(i, uuid, "Pretend", 1) for i, uuid in enumerate(("GPU-0", "MIG-1", "GPU-9"))]
    used = {
        "GPU-0": {"memory_used_bytes": 7, "busy_percent": 42},
        "MIG-1": {"memory_used_bytes": 7, "busy_percent": None},
    }
    assert use_of(gpus) == used and nvml.open == 0
    nvml.old = True
    assert use_of(gpus)["GPU-0"]["memory_used_bytes"] == 11


def test_a_file_of_pretend_gpus_that_can_not_be_read_says_nothing_of_their_use(tmp_path, monkeypatch):
    for text in ("", "[]", "{}", '{"gpus": [{}]}'):
        path = Path(tmp_path, "inventory.json")
        path.write_text(text)
        monkeypatch.setenv("ALLRANKS_INVENTORY", str(path))
        assert use_of([]) == {}
