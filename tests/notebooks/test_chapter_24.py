"""The chapter on tensor parallelism: its counts, its two cuts against one process, and its answer."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, filled, numbers, off_by, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "24_tensor_parallel"
source = source_of(CHAPTER)


def solved() -> str:
    """The cell of `column_row_linear` with the line that its folded answer gives."""
    return filled(source, "column_row_linear", "column_row_answer", "    # your turn")


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("answered", [False, True], ids=["released", "solved"])
def test_tensor_parallel(ranks, answered):
    chapter = execute(read(CHAPTER, ranks, **({"column_row_linear": solved()} if answered else {})))
    assert not chapter.errors()
    assert "174 billion weights, 348 GB" in chapter.text("question")

    for text in chapter.by_rank("cut_live").values():
        columns, rows, total = text.splitlines()
        assert off_by(columns) < 1e-4
        assert off_by(rows) > 0.1
        assert off_by(total) < 1e-4
    verdict = chapter.text("column_row_linear")
    assert ("passed" in verdict, "No rank sent a message" in verdict) == (answered, not answered)

    _, right, wrong = chapter.text("forgot_run").splitlines()
    assert all(x < 1e-4 for x in numbers(right.removeprefix("with f")))
    *below, a2, b2 = numbers(wrong.removeprefix("without f"))
    assert len(below) == 3
    assert min(below) > 0.1  # x, A1, B1
    assert max(a2, b2) < 1e-4
    assert chapter.text("count_calls").startswith(str([("all_reduce", 4 * 8 * 4)] * 4))
    assert any(WIDGET in output.get("data", {}) for output in chapter.outputs("count_calls"))
    assert set(chapter.by_rank("bias").values()) == {f"before {10 + ranks}, after 11"}

    reduced, scattered = chapter.text("one_pair").splitlines()
    assert max(off_by(reduced), off_by(scattered)) < 1e-4
    assert f"keeps ({4 * ranks}, 8)" in reduced
    assert "keeps (4, 8)" in scattered
    sent = [int(re.search(r"send (\d+) bytes", line)[1]) for line in (reduced, scattered)]
    assert sent == [2 * 2 * (ranks - 1) * 4 * 8 * 4] * 2
    own, scaled, total = chapter.text("norm_gradient_run").splitlines()
    percent = [[int(x) for x in re.findall(r"(\d+)%", line)] for line in (own, scaled)]
    assert [len(row) for row in percent] == [ranks, ranks]
    assert min(map(min, percent)) > 20
    assert off_by(total) < 1e-4
    (told,) = set(chapter.by_rank("clip_live").values())
    often, once = (float(x) for x in re.findall(r"\d+\.\d", told))
    assert often == pytest.approx((200 * ranks) ** 0.5, rel=0.1)  # 100 gradients of each kind, of variance 1
    assert once == pytest.approx((100 * ranks + 100) ** 0.5, rel=0.1) and often > 1.1 * once
    loss, price = chapter.text("split_loss_run").splitlines()
    assert off_by(loss.replace(",", " ")) < 1e-6
    assert loss.count("'all_reduce'") == 3
    assert price.endswith("0.17 MB a rank; gathered 1,839 MB")
    assert set(chapter.by_rank("pieces_right").values()) == {"right: True"}
    (piece,), _, after, pieces = (numbers(line) for line in chapter.text("pieces_table").splitlines())
    assert piece > 0 and all(
        shown[0] >= (piece - 0.1) * ranks for shown in (after, pieces)
    )  # the computing itself is not less

    first, first_ops, second, second_ops = [
        line for line in chapter.text("torch_run").splitlines() if "[" in line or "y" in line
    ]
    for line in (first, second):
        assert "rank 0 has (6, 8) of the first weights" in line
        mine, last = line.split("y begins with ")[1].split(", ")
        assert mine == last
    assert first_ops.endswith("['scatter', 'scatter', 'scatter', 'broadcast', 'all_reduce', 'all_reduce']")
    assert "second bias, which all keep whole, is broadcast" in source("torch_explained")
    both = "'all_gather_into_tensor', 'reduce_scatter_tensor'"
    assert second_ops.endswith(f"'broadcast', {both}, {both}]")

    assert all(x > 0 for x in numbers(chapter.text("table").replace("1/beta", "")))
    assert "384 all-reduces 0.10 s: 13%" in chapter.text("share")
    assert "384 all-reduces 0.70 s: 51%" in chapter.text("share")
    assert chapter.text("share").endswith("sends 33.82 GB")  # 8 b s h (t-1)/t elements of 2 bytes a layer


def test_the_answer_is_right(tmp_path):
    from allranks import check

    file = tmp_path / "linear.py"
    body = solved().split("\n\n\ncheck(")[0]
    file.write_text(f"import torch\nimport torch.distributed as dist\n\n\n{body}\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["column_row_linear"]).passed
