"""The figures of the pictures with which chapters begin, where no formula of `allranks.theory` has them.

The JavaScript has them too; a test holds the two equal.
"""

from __future__ import annotations

import math
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
    return [[-math.log(-math.log(_drawn(EXPERTS * t + e))) for e in range(EXPERTS)] for t in range(TOKENS)]


def _drawn(n: int) -> float:
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
