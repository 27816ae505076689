"""The chapter on scatter: what its cells show, as released and with its task solved."""

from __future__ import annotations

import re

import pytest
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "04_scatter"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_scatter(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"tree_scatter": answer()} if solved else {})))
    everyone = range(ranks)

    assert chapter.by_rank("first_scatter") == {rank: str([2.0 * rank, 2.0 * rank + 1]) for rank in everyone}
    errors = chapter.errors()
    assert set(errors) == {"too_many_lists"}
    assert "must NOT be specified on non-source ranks" in errors["too_many_lists"]
    assert "rank 0: in dist.scatter" in errors["too_many_lists"]

    split = chapter.text("pieces").splitlines()
    assert "[[0, 1, 2], [3, 4, 5], [6, 7, 8]]" in split[0]
    assert "[[0, 1, 2], [3, 4], [5, 6], [7, 8]]" in split[1]
    for rank, text in chapter.by_rank("columns").items():
        got, wanted = (eval(line[line.index("[") :]) for line in text.splitlines())
        assert wanted == [rank + row * ranks for row in range(4)]
        assert got != wanted  # gloo reads a view with gaps as if it had none

    assert WIDGET in chapter.outputs("watch")[0].data
    rows = [re.findall(r"\d+", line) for line in chapter.text("count").splitlines()[1:]]
    assert [[int(n) for n in row] for row in rows] == [[8, 7, 7, 7], [8, 3, 7, 12], [64, 63, 63, 63], [64, 6, 63, 192]]
    times = re.findall(r"flat +([\d.]+) ms, tree +([\d.]+) ms", chapter.text("prices"))
    assert times[-1] == (f"{1e3 * (63 * 5e-6 + 63 / 64 * 1.28):.3f}", f"{1e3 * (6 * 5e-6 + 63 / 64 * 1.28):.3f}")
    assert "scattering is 1.05 times as fast" in chapter.text("answer")
    assert f"model, all ranks share one memory:  {ranks:.1f} times" in chapter.text("measured")

    whole = str([float(i) for i in range(2 * ranks)])
    assert chapter.by_rank("together_run") == {rank: whole for rank in everyone}
    dealt = [sample for text in chapter.by_rank("sampler").values() for sample in eval(text)]
    assert sorted(set(dealt)) == list(range(2 * ranks + 1))
    assert len(dealt) == 3 * ranks  # some samples twice, with any number of ranks

    rows = [line.split() for line in chapter.text("judge").splitlines()[1:]]
    assert [int(row[0]) for row in rows] == [2, 3, 4, 5, 8]
    assert all(row[1] == "right" for row in rows)
    assert [int(row[3]) for row in rows] == [1, 2, 2, 3, 3]
    best = [row[3] for row in rows] if solved else [str(int(row[0]) - 1) for row in rows]
    assert [row[2] for row in rows] == [row[4] for row in rows] == best


def test_the_answer_moves_what_the_schedule_says():
    """The package's tree and the chapter's are one algorithm in two forms."""
    import torch
    import torch.distributed as dist
    from allranks import schedules
    from allranks.wire import run

    namespace = {"torch": torch, "dist": dist}
    exec(answer(), namespace)
    for ranks in (1, 2, 3, 6, 8):
        inputs = [(torch.zeros(2), torch.arange(2.0 * ranks) if rank == 0 else None) for rank in range(ranks)]
        outcome = run(namespace["tree_scatter"], ranks=ranks, per_rank=inputs)
        assert outcome.failure is None
        sent = sorted((m.src, m.dst, m.nbytes) for m in outcome.trace.messages())
        assert sent == sorted((m.src, m.dst, 8 * len(m.chunks)) for m in schedules.binomial_scatter(ranks).moves)


def answer() -> str:
    """The answer that the folded text gives."""
    prose = next(cell.source for cell in read(CHAPTER).cells if cell.id == "tree_answer")
    return re.search(r"```python\n(.*?)```", prose, flags=re.S).group(1)
