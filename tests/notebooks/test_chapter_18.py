"""The chapter on libraries: what this torch's Gloo can and cannot do, what each promise means, and its answer."""

from __future__ import annotations

import re

import pytest
import torch.distributed as dist
from test_chapters import RANKS, WIDGET, execute, read

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "18_libraries"


def source(name: str) -> str:
    """The source of a cell of the chapter."""
    return next(cell.source for cell in read(CHAPTER).cells if cell.id == name)


def answer() -> str:
    """The function that the folded answer gives."""
    return re.search(r"```python\n(.*?)```", source("halo_answer"), flags=re.S).group(1).rstrip()


def numbers(text: str) -> list[float]:
    """The numbers in a text."""
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", text)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_libraries(ranks, solved):
    replace = {"halo_mine": answer() + "\n\n\ncheck(halo_exchange)"} if solved else {}
    chapter = execute(read(CHAPTER, ranks, **replace))
    errors = chapter.errors()
    assert set(errors) == {"wrong_interface", "no_launcher"}

    there = dict(re.findall(r"^(\w+) +for \S+ +(available|not in this build)", chapter.text("inspect"), flags=re.M))
    assert there["gloo"] == "available"
    assert {name: word == "available" for name, word in there.items()} == {
        name: dist.is_backend_available(name) for name in ("gloo", "mpi", "nccl", "ucc", "xccl")
    }
    between, within, *_ = chapter.text("two_runs").splitlines()
    assert "gloo and wire: the same calls: True" in between
    assert numbers(between)[-1] < 1e-4
    assert within.endswith("differ by 0")
    assert any(WIDGET in output.get("data", {}) for output in chapter.outputs("two_runs"))

    head, *rows = [line.split() for line in chapter.text("try_dtypes").splitlines()]
    assert head == ["gloo", "broadcast", "SUM", "AVG", "MAX", "BAND"]
    can = {row[0]: row[1:] for row in rows}
    assert not any("wrong" in row for row in can.values())
    floats, integers = ["yes", "yes", "yes", "yes", "no"], ["yes", "yes", "no", "yes", "yes"]
    assert can["float32"] == can["float16"] == can["bfloat16"] == floats
    assert can["int64"] == can["uint8"] == can["bool"] == integers
    assert can["int16"] == can["float8_e5m2"] == ["no"] * 5
    assert can["complex64"] == ["yes", "yes", "yes", "no", "no"]
    for text in chapter.by_rank("refused_avg").values():
        assert text.splitlines()[-1] == f"now {100 * ranks}"
        assert "can't be cast" in text
    byte, expected = 1, []
    for _ in range(8):
        byte = byte * ranks % 256
        expected.append(f"{bool(byte)} ({byte})")
    assert set(chapter.by_rank("bool_sum").values()) == {"\n".join(expected)}

    for text in chapter.by_rank("when_returns").values():
        assert re.fullmatch(r"handle +[\d.]+ s\ncomplete: (True|False)\nwaited +[\d.]+ s", text)
    buffered, rendezvous = chapter.text("both_promises").splitlines()
    assert buffered.endswith("[3.0, 0.0, 1.0, 2.0]")
    assert rendezvous.split()[1] == "deadlock"
    verdict = chapter.text("halo_mine")
    assert ("passed" in verdict, "every rank sends before it receives" in verdict) == (solved, not solved)

    choices = [line.split()[-2:] for line in chapter.text("tuner_table").splitlines()[1:]]
    assert choices == [["ring", "LL"]] * 3 + [["ring", "LL128"], ["ring", "Simple"]]
    four_bytes = numbers(chapter.text("tuner_table").splitlines()[1])
    assert (four_bytes[1], four_bytes[3]) == (15.0, 56.0)
    assert [float(x) for x in re.findall(r"bytes: ([\d.]+) times", chapter.text("forced"))] == [3.73, 2.45, 1.0]
    alpha, hop, compared = chapter.text("table").splitlines()
    assert numbers(alpha)[0] > 0
    assert hop.endswith("0.6 µs a hop")
    assert all(x > 0 for x in numbers(compared.split(":")[1]))

    for rank, text in chapter.by_rank("environment").items():
        told = dict(line.split("=", 1) for line in text.splitlines())
        assert (told["RANK"], told["WORLD_SIZE"]) == (str(rank), str(ranks))
        assert told["GLOO_SOCKET_IFNAME"]
    assert "Unable to find address for: ib7" in errors["wrong_interface"]
    lines = [line for line in chapter.text("torchrun").splitlines() if line.startswith("RANK=")]
    launched = [dict(pair.split("=") for pair in line.split()) for line in lines]
    assert sorted(told["RANK"] for told in launched) == ["0", "1"]
    assert all(told["WORLD_SIZE"] == "2" and told["MASTER_PORT"] for told in launched)
    assert "environment variable RANK expected, but not set" in errors["no_launcher"]


def test_the_answer_is_right(tmp_path):
    from allranks import check

    file = tmp_path / "halo.py"
    file.write_text(f"import torch\nimport torch.distributed as dist\n\n\n{answer()}\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert check(namespace["halo_exchange"]).passed
