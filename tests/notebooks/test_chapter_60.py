"""The chapter on sending less: what stalls and what does not, the counted bytes are the formulas', and torch's hooks do what is said."""

from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist
from allranks import World
from test_chapters import RANKS, WIDGET, execute, read
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, quantization_hooks
from torch.nn.parallel import DistributedDataParallel

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]
CHAPTER = "60_send_less"


def numbers(text: str) -> list[float]:
    return [float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?", text)]


def losses(text: str) -> dict[str, float]:
    """The loss after 200 steps of each way."""
    return {
        line[:20].strip(): float(re.search(r"(\S+)(?: after)", line.replace("loss", ""))[1])
        for line in text.splitlines()
    }


@pytest.mark.parametrize("ranks", RANKS)
def test_send_less(ranks):
    chapter = execute(read(CHAPTER, ranks))
    assert not chapter.errors()

    first = float(re.search(r"loss +(\S+) at first", chapter.by_rank("train_live")[0])[1])
    found = losses(chapter.by_rank("train_live")[0]) | losses(chapter.by_rank("one_bit_live")[0])
    assert found["all numbers"] < 1e-3 * first
    assert found["top-4"] > 0.6 * first
    assert found["top-4 with feedback"] < 5e-3 * first
    without, with_it = (
        [float(n) for n in re.findall(r"loss (\S+) at first, (\S+) after 200", line)[0]]
        for line in chapter.by_rank("same_goal")[0].splitlines()
    )
    assert with_it[1] < 1e-3 * with_it[0]
    assert 0.1 * without[0] < without[1] < 0.5 * without[0]  # it falls, since nothing cancels, but far less
    assert found["1 bit with feedback"] < 0.1 * found["1 bit"]
    # "one bit with feedback needs the fewest bytes for each loss below 1 that it reaches"
    curves = chapter.curves("one_bit_bytes")
    for loss in [y for _, y in curves["1 bit with feedback"] if y < 1]:
        needed = {name: min((kb for kb, y in curve if y <= loss), default=1e9) for name, curve in curves.items()}
        assert min(needed, key=needed.get) == "1 bit with feedback", (loss, needed)
    without, with_feedback = (
        int(re.search(r"(\d+) of the 64", line)[1]) for line in chapter.text("which").splitlines()[:2]
    )
    assert without == 8 and with_feedback > 56

    for line in chapter.text("count_bytes").splitlines():
        _, counted, formula = numbers(line)
        assert counted == formula > 0
    ratio = dict(chapter.curves("many_ranks")["1 % of the numbers"])
    assert ratio[1024] == 10.24 and ratio[64] < 1 < ratio[128]  # "with 1 % that ends at 100 ranks"
    eight = next(line for line in chapter.text("uint8_numbers").splitlines() if line.startswith("  8 ranks"))
    gathered, reduced, two = (float(n) for n in re.findall(r"(\d+\.\d) GB", eight))
    assert gathered == reduced == pytest.approx(4 * two, abs=0.3)

    for text in [chapter.by_rank("power_live")[0]]:
        *off, best = (float(n) for n in re.findall(r"\d\.\d+", text))
        assert off[0] > off[-1] and best <= off[-1] < 1.1 * best
    for line in chapter.text("power_bytes").splitlines():
        counted, formula = int(re.search(r"(\d+) bytes", line)[1]), int(re.search(r"formula (\d+)", line)[1])
        assert counted == formula
    assert [re.search(r"statistics (\d+)", line)[1] for line in chapter.text("power_bytes").splitlines()[1:]] == [
        "32",
        "8",
    ]

    above = [float(line.split()[-1]) for line in chapter.by_rank("local_runs")[0].splitlines()]
    assert above[0] < above[1] < above[2] and above[2] > 0.01
    local, outer = (float(n) for n in re.findall(r"\d\.\d{3}|\d+\.\d{3}", chapter.by_rank("diloco_live")[0]))
    assert outer < 0.5 * local
    assert "24.5 GB a step" in chapter.text("peak_numbers") and "250 times less" in chapter.text("peak_numbers")

    apart = chapter.curves("averager_live")
    assert apart["hook alone"][-1][1] > 0
    assert [step for step, spread in apart["hook and averager"] if spread == 0] == [0, 4, 8]
    assert "a rank sends" in chapter.text("worth")
    assert WIDGET in chapter.outputs("guess_sent")[0]["data"]


def descent(lr: float, ranks: int = 4, k: int = 4) -> float:
    """The loss at the end of the chapter's problem, with top-k and feedback, after as long a way at each rate."""
    torch.manual_seed(3)
    common, signs = torch.randn(64), torch.tensor([(-1.0) ** r for r in range(ranks)])
    apart = torch.zeros(ranks, 64)
    apart[:, :8] = 4 * (signs - signs.mean())[:, None]
    x, error = torch.zeros(64), torch.zeros(ranks, 64)
    for _ in range(int(16 / lr)):
        wanted = lr * (x - common - apart) + error
        places = wanted.abs().topk(k, dim=1).indices
        sent = torch.zeros_like(wanted).scatter_(1, places, wanted.gather(1, places))
        error, x = wanted - sent, x - sent.mean(0)
    return ((x - common) ** 2).sum().item() / 2


def test_the_floor_of_feedback_is_higher_with_a_larger_learning_rate():
    """As the text below the figure of coordinates says."""
    ends = [descent(lr) for lr in (0.01, 0.02, 0.04)]
    assert 0.01 < ends[0] < ends[1] < ends[2]


def with_hook(name: str) -> str:
    """What becomes of a backward pass with this hook of DDP."""
    ddp = DistributedDataParallel(torch.nn.Linear(8, 8, bias=False))
    hook = getattr(default_hooks, name, None) or getattr(quantization_hooks, name)
    try:
        ddp.register_comm_hook(dist.group.WORLD, hook)
        ddp(torch.randn(4, 8)).square().mean().backward()
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "works"


@pytest.mark.skipif(torch.version.cuda is not None, reason="it tells of a torch that was built without CUDA")
def test_the_hooks_that_are_said_to_fail_on_the_cpu_do():
    names = ("fp16_compress", "bf16_compress", "quantization_pertensor", "quantization_perchannel")
    with World(ranks=2) as world:
        fp16, bf16, *quantised = (world.run(with_hook, f"{name}_hook", deadline=60)[0] for name in names)
    assert fp16 == "works" and bf16.startswith("TypeError")
    assert all("IndexError" in told for told in quantised)
