"""The figures of the pictures with which chapters begin, where no formula of `allranks.theory` has them.

The JavaScript has them too; a test holds the two equal.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any

# which rank owns each eighth of the tokens
OWNERS = {"in order": (0, 0, 1, 1, 2, 2, 3, 3), "zigzag": (0, 1, 2, 3, 3, 2, 1, 0)}
TOKENS, EXPERTS, EACH = 1024, 16, 2
MEAN = TOKENS * EACH // EXPERTS
# which place in popularity each expert has
_PLACES = (7, 3, 0, 1, 6, 5, 8, 2, 4, 11, 12, 9, 15, 10, 14, 13)


def ring_work(owner: str) -> list[list[float]]:
    """The work of each rank in each step of the ring, in blocks of a quarter of the tokens: 1 is a block without a
    mask.

    In step s, counted from 0, rank r has the keys of rank r - s.

    >>> ring_work("in order")[1]
    [0.0, 1.0, 1.0, 1.0]
    """
    chunks = [[c for c, who in enumerate(OWNERS[owner]) if who == r] for r in range(4)]

    def work(queries: list[int], keys: list[int]) -> float:
        return sum(1.0 if k < q else 0.5 if k == q else 0.0 for q in queries for k in keys) / 4

    return [[work(chunks[r], chunks[(r - s) % 4]) for r in range(4)] for s in range(4)]


def routed(uneven: float) -> list[list[int]]:
    """How many choices each of 16 experts gets from 1,024 tokens, by the rank whose tokens they are.

    Each token takes two experts; the more `uneven`, the more often the same. 0: all are as popular.

    >>> sum(map(sum, routed(1.0)))
    2048
    """
    liked = [-uneven * math.log(1 + 0.22 * place) for place in _PLACES]
    counts = [[0] * 4 for _ in _PLACES]
    for token, noise in enumerate(_noise()):
        scores = [a + b for a, b in zip(liked, noise, strict=True)]
        for expert in sorted(range(EXPERTS), key=lambda e: -scores[e])[:EACH]:
            counts[expert][4 * token // TOKENS] += 1
    return counts


@cache
def _noise() -> list[list[float]]:
    """For each token and expert a number that looks drawn: Gumbel's, so that two are taken in proportion."""
    return [[-math.log(-math.log(drawn(EXPERTS * t + e))) for e in range(EXPERTS)] for t in range(TOKENS)]


def drawn(n: int) -> float:
    """A number between 0 and 1 that looks drawn, the same in each language."""
    x = (n + 1) * 0x9E3779B1 & 0xFFFFFFFF
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return ((x ^ x >> 16) + 0.5) / 2**32


def room(uneven: float, capacity: float) -> tuple[int, float, float]:
    """Choices for which an expert has room with this capacity factor; the shares dropped, and of the room left empty.

    >>> room(0.0, 16.0)[1]
    0.0
    """
    sums = [sum(mine) for mine in routed(uneven)]
    most = math.ceil(capacity * MEAN)
    dropped = sum(max(0, n - most) for n in sums)
    return most, dropped / (TOKENS * EACH), sum(max(0, most - n) for n in sums) / (EXPERTS * most)


def kept_in_time(data: dict[str, Any], what: str, count: int) -> tuple[float, float]:
    """The most bytes that a step's layers keep at once, and the length of the step in forward passes of a layer.

    The first `count` layers are computed again, just before their backward pass. `data` is that of
    `explorables_first.recompute`.
    """
    layers, whole, kept = data["layers"], data["whole"], data["kept"][what]
    forward = [min(i, count) * kept + max(0, i - count) * whole for i in range(1, layers + 1)]
    # while the last layer that is computed again is whole, the ones before it keep little
    backward = [count * kept + whole - kept] if count else []
    return max(forward + backward), 3 * layers + count * data["again"][what]


def fsdp_step(gather: float, room: int, blocks: int = 6) -> dict[str, Any]:
    """A step of FSDP, whose gathers begin as early as there is room for another whole block.

    A forward pass takes 1, a backward pass 2, a gather or a scatter `gather`; the last block stays whole for its
    backward pass. Returns the ends of all passes and messages in their order, the length, the share that is
    waited, and how many blocks are whole at most.

    >>> fsdp_step(0.5, room=2)["ends"][:3]
    [1.5, 2.5, 3.5]
    """
    passes = [*range(blocks), *reversed(range(blocks))]
    gathers = [*range(blocks), *reversed(range(blocks - 1))]
    ends: list[float] = []
    messages: list[float] = []
    arrived: list[float] = []
    freed: list[float] = []
    for turn, block in enumerate(passes):
        while len(arrived) < min(len(gathers), len(freed) + room):
            ready = freed[len(arrived) - room] if len(arrived) >= room else 0.0
            messages.append(max(messages[-1] if messages else 0.0, ready) + gather)
            arrived.append(messages[-1])
        needs = turn if turn < blocks else turn - 1
        ends.append(max(ends[-1] if ends else 0.0, arrived[needs]) + (1 if turn < blocks else 2))
        if turn >= blocks:
            messages.append(max(messages[-1], ends[-1]) + gather)
        if not (turn < blocks and block == blocks - 1):
            freed.append(ends[-1])
    begun = [end - gather for end in arrived]
    most = max(sum(a <= at for a in begun) - sum(f <= at for f in freed) for at in begun)
    seconds = messages[-1]
    waits = 1 - 3 * blocks / seconds
    return {"ends": ends, "messages": messages, "seconds": seconds, "waits": waits, "most": most}


def lost_shares(seconds: float, cost_s: float, mtbf_s: float) -> tuple[float, float]:
    """The shares of the time that saving takes, and that work takes which a failure undoes.

    A checkpoint of `cost_s` comes after each `seconds` of work, failures come at random every `mtbf_s` on average.
    Young's formula is the limit for small shares.

    >>> [round(share, 3) for share in lost_shares(600, 60, 11_000)]
    [0.088, 0.03]
    """
    complete = 1 / math.expm1((seconds + cost_s) / mtbf_s)  # intervals in a life, on average
    return complete * cost_s / mtbf_s, 1 - complete * (seconds + cost_s) / mtbf_s


def summed(ranks: int, kind: str, order: str) -> tuple[float, float]:
    """The exact sum of `ranks` bfloat16 numbers between 0 and 1, and their sum rounded to `kind` after each addition.

    `kind` is bfloat16 or float32, `order` "ring" (one after the other) or "tree" (in pairs).

    >>> summed(1024, "bfloat16", "ring")[1]
    256.0
    """
    rounded = _brain if kind == "bfloat16" else _single
    parts = [_brain(drawn(i)) for i in range(ranks)]
    exact = sum(parts)
    if order == "ring":
        total = parts[0]
        for part in parts[1:]:
            total = rounded(total + part)
        return exact, total
    while len(parts) > 1:
        parts = [rounded(sum(parts[i : i + 2])) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return exact, parts[0]


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _brain(value: float) -> float:
    """To the nearest number with 8 binary digits, ties to even."""
    (word,) = struct.unpack("I", struct.pack("f", value))
    return float(struct.unpack("f", struct.pack("I", word + 0x7FFF + (word >> 16 & 1) & 0xFFFF0000))[0])


def losses(k: int, feedback: bool, numbers: int = 64, steps: int = 200, rate: float = 0.02) -> list[float]:
    """The loss before the first step and after each, if each of four ranks sends only its `k` largest numbers.

    With `feedback` a rank adds what it did not send to its next gradient. The ranks want the same on all coordinates
    but the first eight, where their wishes cancel.

    >>> losses(64, False)[-1] < losses(4, True)[-1] < losses(4, False)[-1]
    True
    """
    common = [4 * (drawn(i) - 0.5) for i in range(numbers)]
    x = [0.0] * numbers
    apart = [[wish if i < 8 else 0.0 for i in range(numbers)] for wish in (4, -4, 4, -4)]
    errors = [[0.0] * numbers for _ in apart]
    found = [sum((a - b) ** 2 for a, b in zip(x, common, strict=True)) / 2]
    for _ in range(steps):
        total = [0.0] * numbers
        for own, error in zip(apart, errors, strict=True):
            wanted = [rate * (a - b - c) + e for a, b, c, e in zip(x, common, own, error, strict=True)]
            least = sorted(map(abs, wanted))[numbers - k]
            for i, value in enumerate(wanted):
                sent = abs(value) >= least
                total[i] += value if sent else 0.0
                error[i] = value if feedback and not sent else 0.0
        x = [a - t / len(apart) for a, t in zip(x, total, strict=True)]
        found.append(sum((a - b) ** 2 for a, b in zip(x, common, strict=True)) / 2)
    return found


def step_bytes(k: int, numbers: int = 64, ranks: int = 4) -> float:
    """Bytes that a rank receives in a step: k numbers and their places of every other rank; for all, an all-reduce's.

    >>> step_bytes(4), step_bytes(64)
    (96, 384.0)
    """
    return 2 * (ranks - 1) * numbers * 4 / ranks if k == numbers else (ranks - 1) * k * 8


def padded_gather_s(p: int, share: float, total: float, alpha: float, beta: float) -> tuple[float, float]:
    """Seconds of an all-gather of `total` bytes of which one part is the share `share`, in two ways.

    A ring of padded parts, and a binomial tree for each rank, one after the other. `alpha` is in seconds a message,
    `beta` in seconds a byte.

    >>> padded_gather_s(4, 0.5, 100, alpha=1, beta=1)
    (153.0, 208)
    """
    padded = (p - 1) * (alpha + share * total * beta)
    return padded, math.ceil(math.log2(p)) * (p * alpha + total * beta)


def written(looks: float, after: str) -> dict[str, float]:
    """When the last word and the flag arrive, when rank 1 reads, and how many of eight words are new then; in µs.

    A word leaves each µs, and needs 4 to 12; a flag needs 2. `after` the words comes "nothing", a "flag", or a "fence",
    which waits for all words, and a flag. Rank 1 reads when it looks, or when the flag has come.

    >>> written(0, "fence")["fresh"]
    8
    """
    arrive = [i + 4 + 8 * drawn(i) for i in range(8)]
    flag = (max(arrive) if after == "fence" else 8) + 2
    reads = looks if after == "nothing" else max(looks, flag)
    return {"last": max(arrive), "flag": flag, "reads": reads, "fresh": sum(at <= reads for at in arrive)}


def critical_path(way: str, nvlink: float, card: float, nbytes: float, alpha: dict[str, float]) -> dict[str, float]:
    """Seconds of an all-reduce on two nodes of two GPUs, its lower bound, and the share of its path over the cards.

    `way` is "one ring", "8 segments" of one, or "two levels"; `nvlink` and `card` are in GB/s, `alpha` in seconds a
    message of both. The clock of `run_schedule` gives the same.

    >>> critical_path("one ring", 371, 50, 2**30, {"nvlink": 2e-6, "card": 5e-6})["onCard"]
    1.0
    """
    beta = {"nvlink": 1 / (nvlink * 1e9), "card": 1 / (card * 1e9)}
    ranks, each, pieces = 4, 2, 8 if way == "8 segments" else 1

    def message(link: str, size: float) -> float:
        return alpha[link] + size * beta[link]

    if way == "two levels":
        inside, over = 2 * (each - 1) * message("nvlink", nbytes / each), 2 * message("card", nbytes / ranks)
    else:
        steps, size = 2 * (ranks - 1) * pieces, nbytes / ranks / pieces
        a, b = message("nvlink", size), message("card", size)
        inside, over = (steps * a, 0.0) if a > b else (0.0, steps * b)
    out_of_a_node = message("card", nbytes / each)
    from_a_gpu = 2 * alpha["nvlink"] + 1.5 * nbytes / (1 / beta["nvlink"] + 1 / beta["card"])
    total = inside + over
    return {"total": total, "bound": max(out_of_a_node, from_a_gpu), "onCard": over / total}


def wished(steps: int, rounds: int, nbytes: float, data: dict[str, Any]) -> tuple[float, float, str]:
    """Seconds of an all-gather with so many steps and sixths of a part on a link, of six rings, and why never.

    `data` is that of `explorables_first.search`. The last is "" where no bound forbids it.
    """

    def took(steps: int, rounds: int) -> float:
        return steps * data["alpha"] + rounds / 6 * nbytes / data["ranks"] * data["beta"]

    why = ""
    if steps < data["least"]["steps"]:
        why = "some GPUs have no link"
    elif rounds < data["least"]["rounds"]:
        why = "7 parts come over 6 links"
    return took(steps, rounds), took(**data["rings"]), why


def flag_bytes(ranks: int, steps: int, library: str) -> list[int]:
    """The byte of a flag that is True on every rank, at first and after each of so many sums; MPI makes none.

    Gloo adds bytes, and keeps the lowest eight binary digits of a sum. NCCL's backend takes the maximum instead.

    >>> flag_bytes(4, 4, "Gloo")
    [1, 4, 16, 64, 0]
    """
    if library == "MPI":  # torch's backend has no MPI type for a bool
        return [1]
    return [ranks**step % 256 if library == "Gloo" else 1 for step in range(steps + 1)]
