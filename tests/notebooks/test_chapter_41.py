"""The chapter on libraries: what this torch's Gloo carries of one step, how its bytes are counted, and its answer."""

from __future__ import annotations

import re
from unittest.mock import MagicMock

import pytest
import torch
import torch.distributed as dist
from test_chapters import RANKS, WIDGET, execute, folded_code, numbers, read, source_of

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "41_libraries"
source = source_of(CHAPTER)
LINES = ["tokens", "activations", "gradient", "overflow", "samples"]


def answer() -> str:
    """The function that the folded answer gives."""
    return folded_code(source, "portable_answer")


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_libraries(ranks, solved):
    chapter = execute(read(CHAPTER, ranks, **({"portable": answer()} if solved else {})))
    errors = chapter.errors()
    assert not errors

    *rows, total = chapter.text("carry_run").splitlines()[:6]
    held = {row[:12].strip(): (numbers(row[13:46]), row[46:]) for row in rows}
    assert list(held) == LINES
    assert held["tokens"] == ([ranks + 6] * 4, "refused: Invalid scalar type")
    assert held["activations"] == ([ranks - 1.5] * 4, "ok")  # from the last rank's left neighbour
    assert held["gradient"][1] == "ok"
    assert held["overflow"] == ([1 if ranks % 256 else 0], "ok")
    assert held["samples"][0] == [100 * ranks]  # added, and then refused
    assert "can't be cast" in held["samples"][1]
    assert total == "3 of 5 on gloo"
    assert any(WIDGET in output.get("data", {}) for output in chapter.outputs("carry_run"))

    there = dict(re.findall(r"^(\w+) +for \S+ +(available|not in this build)", chapter.text("inspect"), flags=re.M))
    assert {name: word == "available" for name, word in there.items()} == {
        name: dist.is_backend_available(name) for name in ("gloo", "mpi", "nccl", "ucc", "xccl")
    }

    # the ring's bytes, as the kernel counted them
    ring_mb = 2 * (ranks - 1) / ranks * 20
    followed = chapter.text("follow_bytes").splitlines()
    assert followed.pop().endswith(f"= {ring_mb:.2f} MB") and len(followed) == ranks
    for line in followed:
        assert "cpu:gloo" in line
        assert float(re.search(r"wrote ([\d.]+) MB", line)[1]) == pytest.approx(ring_mb, rel=0.01)

    compared = dict(re.match(r"(\w+) +(.*)", line).groups() for line in chapter.text("two_libraries").splitlines())
    assert list(compared) == LINES
    assert re.search(r"gloo: refused:.*wire: ok", compared["tokens"])
    assert numbers(compared["activations"])[-1] == 0
    assert numbers(compared["gradient"])[-1] < 1e-4
    assert re.search(r"gloo: refused:.*wire: refused: .*AVG is not defined for int32", compared["samples"])

    byte, expected = 1, []
    for _ in range(8):
        byte = byte * ranks % 256
        expected.append(f"{bool(byte)} ({byte})")
    assert set(chapter.by_rank("bool_sum").values()) == {"\n".join(expected)}

    judged = chapter.text("judge_run").splitlines()
    if solved:
        assert judged == [f"{name}: tokens right, overflow right, samples right" for name in ("gloo", "wire")]
    else:
        assert judged[0] == "gloo: refused: Invalid scalar type"
        assert "AVG is not defined for int32" in judged[1]


def test_torch_gathers_objects_where_the_chapter_says():
    """By `cpu` if it is among several pairs, else by the group's only backend."""
    device = dist.distributed_c10d._get_object_coll_device
    group = MagicMock(spec=dist.ProcessGroup)
    for devices, expected in ((["cuda", "cpu"], "cpu"), (["cuda"], "cuda")):
        group._device_types = [torch.device(name) for name in devices]
        assert device(group) == expected
    assert "Gloo, because torch prefers `cpu`" in source("where")
