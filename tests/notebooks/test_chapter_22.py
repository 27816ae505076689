"""The chapter on sharded training: what each stage keeps, the bytes of each, and FSDP's own calls on real ranks."""

from __future__ import annotations

import re

import pytest
from allranks.base.errors import name_ranks
from test_chapters import RANKS, WIDGET, execute, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "22_sharded_training"
HOLE = "    my_gradient = gradient[my_part]  # your turn: so far this is nobody's but yours"
ANSWER = """\
    my_gradient = torch.empty_like(gradient[my_part])
    dist.reduce_scatter_single(my_gradient, gradient)
    my_gradient /= p"""


def solved_step() -> str:
    """The cell of `zero_sgd_step` as its hint has it."""
    source = source_of(CHAPTER)("zero_mine")
    assert HOLE in source
    return source.replace(HOLE, ANSWER)


def numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)]


def block_nbytes(ranks: int) -> list[int]:
    """The bytes of one block's shards on each rank: FSDP cuts each tensor's rows as torch.chunk does."""
    found = [0] * ranks
    for rows, row_nbytes in ((192, 4 * 48), (192, 4), (48, 4 * 192), (48, 4)):
        share = -(-rows // ranks)
        for rank in range(ranks):
            found[rank] += row_nbytes * max(0, min(share, rows - share * rank))
    return found


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_sharded_training(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"zero_mine": solved_step()} if solved else {})))

    errors = chapter.errors()
    assert set(errors) == {"evaluate"}
    assert "rank 0: in dist.all_gather_single" in errors["evaluate"]
    assert f"{name_ranks(range(1, ranks))}: done" in errors["evaluate"]

    assert set(chapter.by_rank("state_run").values()) == {"4.0 4.0 8.0"}
    eight, many = chapter.text("capacity").splitlines()[-2:]
    assert WIDGET in chapter.outputs("my_model")[0].data
    # 80 / 16, 80 / (4 + 12/8), 80 / (2 + 14/8), 80 * 8 / 16
    assert "ZeRO-0 5.0, ZeRO-1 14.5, ZeRO-2 21.3, ZeRO-3 40.0 billion" in eight
    assert "ZeRO-3 320.0 billion" in many

    difference, state = chapter.text("train_run").splitlines()[-2:]
    assert numbers(difference)[0] < 1e-5
    _, plain, sharded = numbers(state)
    assert plain / ranks <= sharded < plain / ranks + 16  # and the step counter
    for line in chapter.text("volume").splitlines():
        counted, predicted = numbers(line)
        assert predicted <= counted < 1.001 * predicted
    assert chapter.text("redundancy_run").splitlines()[-1] == "3.00 P"
    calls = eval(chapter.text("redundancy_run").splitlines()[-2])
    assert calls == {"all_reduce": 1, "broadcast": 14}  # a parameter tensor each

    keeping, dropping = (numbers(line) for line in chapter.text("peak_run").splitlines()[-2:])
    assert "it was 9 KiB\n" in chapter.text("reveal_dropped")
    assert keeping == [72, 0]
    assert dropping == [9, pytest.approx(72 / ranks, rel=0.01)]  # padded, so that parts are equal

    assert f"2.up.weight  rank 0: (192, 48, '->', {-(-192 // ranks)}, 48)" in chapter.text("shapes")
    assert "3.weight     rank 0: (1, 48, '->', 1, 48)   last rank: (1, 48, '->', 0, 48)" in chapter.text("shapes")
    sent = [(what, int(nbytes)) for what, nbytes in re.findall(r"(gather|scatter) (\d+)", chapter.text("fsdp_trace"))]
    kept, head = block_nbytes(ranks), 4 * 49
    block, part = sum(kept), kept[0]  # what is sent is padded to the first rank's part
    assert sorted(sent) == sorted(
        [("gather", head)] + 6 * [("gather", part)] + 3 * [("scatter", ranks * part)] + [("scatter", ranks * head)]
    )
    assert sent[:4] == [("gather", head)] + 3 * [("gather", part)]  # forward
    assert [what for what, _ in sent[4:7]] == ["gather", "gather", "scatter"]  # the prefetch
    assert WIDGET in chapter.outputs("fsdp_player")[0].data
    for line, wanted in zip(chapter.text("fsdp_volume").splitlines()[-3:], (3, 3, 2), strict=True):
        counted, predicted = numbers(line)
        assert predicted == wanted
        assert wanted <= counted < 1.02 * wanted * ranks * part / block  # padding of the head, and of rows

    difference, ddp, fsdp = chapter.text("same_run").splitlines()[-3:]
    assert numbers(difference)[0] < 1e-4
    whole = 3 * block + head
    assert eval(ddp.partition("DDP ")[2]) == [whole] * ranks
    assert eval(fsdp.partition("FSDP")[2]) == [3 * kept[0] + head, *(3 * nbytes for nbytes in kept[1:])]

    prices = [numbers(line) for line in chapter.text("prices").splitlines()]
    assert [row[0] for row in prices] == [8, 32, 128, 1024]
    assert prices[0][4] == pytest.approx(1.5, abs=0.05)
    assert prices[-1][4] > 3
    rows = re.findall(
        r"measured +([\d.]+) ms, model +([\d.]+) ms, ratio ([\d.]+), model ([\d.]+)", chapter.text("measured_table")
    )
    assert [float(row[3]) for row in rows] == [1, 1, 1.5]
    assert all(float(x) > 0 for row in rows for x in row)
    verdict = chapter.text("zero_mine")
    assert ("passed" in verdict, "not yet" in verdict) == (solved, not solved)

    right, forgotten = (eval(line.partition(": ")[2]) for line in chapter.text("forgotten").splitlines()[-2:])
    assert len(set(right)) == 1
    assert len(set(forgotten)) == ranks
    for line in chapter.text("early").splitlines()[-ranks:]:
        _, moved, own, norm = numbers(line)
        assert moved == 0
        assert 0 < own < norm


def test_the_answer_is_right(tmp_path):
    from allranks import check

    file = tmp_path / "step.py"
    body = solved_step().split("\n\n\ncheck(")[0]
    file.write_text(f"import torch\nimport torch.distributed as dist\n\n\n{body}\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["zero_sgd_step"]).passed
