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
