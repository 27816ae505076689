"""Serving: sizes by hand, what grows with what, the published measurements, and inputs that make no sense."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from allranks import cost
from allranks.cli import main
from allranks.theory.cost.serving_bands import BANDS
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def held():
    sys.path.insert(0, str(ROOT / "tools"))
    import validation_serving

    yield validation_serving
    sys.path.remove(str(ROOT / "tools"))
    for name in ("validation_serving", "validation_steps"):
        sys.modules.pop(name, None)


def test_weights_cache_and_room_by_hand():
    model = cost.SERVED["Llama 3 70B"]
    # a token keeps a key and a value of 128 numbers for each of 8 heads, in 80 layers
    assert model.kv_nbytes(16) == 2 * 80 * 8 * 128 * 2 == 327_680
    layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    assert model.parameters == 80 * layer + 2 * 128256 * 8192
    found = cost.serve(model, "dgx-h100", tp=8, prompt=500, output=500, weight_bits=8, kv_bits=16)
    assert found.weights_nbytes == (80 * layer + 2 * 2 * 128256 * 8192) / 8
    assert found.request_nbytes == 1000 * 327_680
    assert found.fits == int((0.9 * 80e9 - 2e9 - found.weights_nbytes) // (found.request_nbytes / 8))
    assert found.handed_over_nbytes == 500 * 327_680


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_one_shot_moves_more_and_starts_sooner(ranks):
    def seconds(nbytes, shots):
        return cost.direct_all_reduce_s(nbytes, ranks, 400e9, shots)

    assert seconds(4096, 1) < seconds(4096, 2)
    for shots, moved in ((1, ranks - 1), (2, 2 * (ranks - 1) / ranks)):
        slope = (seconds(2e6, shots) - seconds(1e6, shots)) / 1e6
        share = slope * 400e9 / moved
        assert 1.1 < share < 1.4, "from 0.71 to 0.9 of the links"
    if ranks > 2:
        assert seconds(2**22, 2) < seconds(2**22, 1)


def test_a_step_sends_two_all_reduces_a_layer():
    found = cost.serve("Llama 2 7B", "dgx-h100", tp=4, batch=16, all_reduce="two shots")
    assert found.sent_nbytes == 32 * 2 * (2 * 3 / 4) * 16 * 4096 * 2
    one = cost.direct_all_reduce_s(16 * 4096 * 2, 4, 370.8e9, 2)
    assert found.decode["sent"] == pytest.approx(64 * one, rel=0.02)
    assert cost.serve("Llama 2 7B").decode["sent"] == 0


def test_more_requests_wait_longer_and_give_more():
    steps = [cost.serve("Llama 3 70B", "dgx-h200", tp=4, batch=b, weight_bits=8) for b in (1, 8, 64, 512)]
    assert all(a.token_s < b.token_s and a.tokens_per_s < b.tokens_per_s for a, b in pairwise(steps))
    split = [cost.serve("Llama 3 70B", "dgx-h200", tp=tp, weight_bits=8).token_s for tp in (1, 2, 4, 8)]
    assert split == sorted(split, reverse=True)
    assert split[0] < 8 * split[3], "eight ranks are not eight times as fast: they send, and small kernels stay"


def test_experts_read_what_the_tokens_touch():
    """One token meets 8 of 128 experts; a thousand meet nearly all."""
    one, many = (cost.serve("Qwen3 235B", "dgx-h200", ep=8, batch=b, weight_bits=8) for b in (1, 512))
    assert one.all_reduce == many.all_reduce == "all_to_all"
    assert 3 < many.decode["products"] / one.decode["products"] < 30


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "Lama"}, "there is no model 'Lama' to serve; there are Llama 2 7B"),
        ({"tp": 3}, "64 heads, which 3 ranks"),
        ({"tp": 16}, "16 ranks do not fit one node of dgx-h100"),
        ({"tp": 2, "ep": 2}, "one of them must be 1"),
        ({"ep": 2}, "1 expert(s) a layer, which 2 ranks can't share evenly"),
        ({"tp": 0}, "tp is 0; it is a whole number"),
        ({"batch": 10**6, "tp": 8}, "there is room for"),
        ({"tp": 1}, "does not fit: a rank keeps 141 GB"),
        ({"tp": 8, "weight_bits": 12}, "weights have 12 bits"),
        ({"tp": 8, "all_reduce": "ring"}, "it is one of best, one shot, two shots, nccl"),
        ({"tp": 8, "memory_share": 2}, "memory_share is 2"),
        ({"machine": "cluster"}, "cluster"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(options, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(").replace(")", r"\)")):
        cost.serve(**{"model": "Llama 3 70B", **options})


def test_published_measurements_lie_in_the_bands(held):
    """8 of 10 of each kind, and the typical factor of what was kept back, as docs/validation.md says."""
    kinds = held.by_kind(held.rows())
    assert sum(map(len, kinds.values())) == 130
    for kind, rows in kinds.items():
        low, high = BANDS[kind]
        inside = sum(low <= 1 / row.ratio <= high for row in rows)
        assert inside >= 0.8 * len(rows), kind
    dense = [row for kind in ("first_token", "token", "throughput") for row in kinds[kind] if row.kept_back]
    assert len(dense) > 50 and held.typical(dense) < 1.2


def test_the_command_prints_a_table_and_json():
    table = CliRunner().invoke(main, ["price", "serve", "--tp", "8", "--weight-bits", "8", "--hand-over", "50e9"])
    assert table.exit_code == 0, table.output
    assert "one shot" in table.output and "nccl" in table.output and "ms at 50 GB/s" in table.output
    shape = "--tp 8 --prompt 8000 --output 500 --weight-bits 8 --kv-bits 16 --batch 4 --json"
    found = json.loads(CliRunner().invoke(main, ["price", "serve", *shape.split()]).stdout)
    alike = cost.serve("Llama 3 70B", "dgx-h100", tp=8, prompt=8000, output=500, weight_bits=8, kv_bits=16, batch=4)
    assert found == json.loads(json.dumps(alike.to_dict()))
    answer = CliRunner().invoke(main, ["price", "serve", "--tp", "8", "--batch", "8", "--json"])
    found = json.loads(answer.output)
    assert found["token_s"] == pytest.approx(cost.serve("Llama 3 70B", tp=8, batch=8).token_s)
    assert found["token_s"] == pytest.approx(sum(found["decode"].values()))
    for wrong in (["--batch", "x"], ["--hand-over", "0"], ["--tp", "3"]):
        failed = CliRunner().invoke(main, ["price", "serve", *wrong])
        assert failed.exit_code != 0 and len(failed.output.strip().splitlines()) == 1, failed.output
