"""What the message says when ranks did not start in time: nothing is started here."""

import pytest
from allranks.ranks.engines.devices import Gpu, Inventory, place
from allranks.ranks.world.cluster import Engines, WorldError

TWO = Inventory(tuple(Gpu(i, f"GPU-{i}", "Pretend", 1 << 30) for i in range(2)), 4, (2, 30, 7))


@pytest.mark.parametrize(
    "backend, verb, hint", [("nccl", "joined", True), ("nccl", "registered", False), ("gloo", "joined", False)]
)
def test_ranks_that_hang_in_nccl_get_the_usual_remedy(backend, verb, hint):
    engines = Engines(place(2, backend, TWO), "warm")
    with pytest.raises(WorldError) as caught:
        engines._expect_alive(0.0, verb)
    assert str(caught.value).startswith(f"Not all 2 ranks had {verb} after 90 s.")
    assert ("os.environ['NCCL_P2P_DISABLE'] = '1'" in str(caught.value)) == hint
    assert ("allranks doctor" in str(caught.value)) == hint


@pytest.mark.parametrize(
    "said, remedy",
    [
        ("ncclSystemError: System call [...] failed. \nLast error:\nnvmlDeviceGetHandleByIndex(3) failed: Unknown Error", "nvidia-smi"),
        ("ncclSystemError: [...] \nLast error:\nnvmlDeviceGetP2PStatus(0,1,NVML_P2P_CAPS_INDEX_READ) failed: GPU is lost", "nvidia-smi"),
        ("CUDA error: no kernel image is available for execution on the device", "has no code for these GPUs"),
        ("Unexpected error from cudaGetDeviceCount(). [...] Error 802: system not yet initialized", "nvidia-fabricmanager"),
        ("CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env [...]", "nvidia-uvm"),
        ("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, [...]", "World(launcher='local')"),
        ("NCCL error: unhandled cuda error", None),
    ],
)  # fmt: skip
def test_why_nccl_did_not_start_is_told_where_its_words_say_it(said, remedy):
    """NCCL asks NVML for every GPU of the machine (nvmlwrap.cc), also those that CUDA_VISIBLE_DEVICES leaves out."""

    class Failed:
        def get(self, timeout):
            raise RuntimeError(said)

    engines = Engines(place(2, "nccl", TWO), "warm")
    with pytest.raises(WorldError) as caught:
        engines._refused(1, Failed())
    words = str(caught.value)
    assert words.startswith(f"Rank 1 could not join the nccl group: {said}")
    assert ("World(backend='gloo')" in words) == bool(remedy) and (remedy is None or remedy in words)
    with pytest.raises(WorldError) as caught:
        Engines(place(2, "gloo", TWO), "warm")._refused(1, Failed())
    assert str(caught.value) == f"Rank 1 could not join the gloo group: {said}"
