"""Numbers drawn from a secret: a counter-based generator, with a stream of its own for each rank."""

from __future__ import annotations

import functools
import hashlib
import math

import numpy as np
import torch

_KEY_NBYTES = 16  # of Philox


class Draws:
    """A stream of numbers that follows from `words`: the same on every machine, and of no use to guess another stream.

    The words are hashed to the 128-bit key of Philox, so that neither the words nor another stream's numbers can be found
    from some of its numbers.

        Draws("secret", "3 ranks").of_rank(0).integers(0, 10, 4)
    """

    def __init__(self, *words: object) -> None:
        self.words = words
        self._of_rank: dict[int, Draws] = {}

    @functools.cached_property
    def _bits(self) -> np.random.Philox:
        key = hashlib.sha256(repr(self.words).encode()).digest()[:_KEY_NBYTES]
        return np.random.Philox(key=int.from_bytes(key, "big"))

    def of_rank(self, rank: int) -> Draws:
        """The stream of one rank; the same object each time."""
        if rank not in self._of_rank:
            self._of_rank[rank] = Draws(*self.words, "rank", rank)
        return self._of_rank[rank]

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Whole numbers from `low` up to, but not including, `high`."""
        # a remainder of 64 bits is even enough, and numpy promises that these bits stay the same in other versions
        numbers = low + (self._raw(shape) % np.uint64(high - low)).astype(np.int64)
        return torch.from_numpy(numbers).reshape(shape)

    def integer(self, low: int, high: int) -> int:
        """One whole number."""
        return int(self.integers(low, high))

    def uniform(self, *shape: int) -> torch.Tensor:
        """Numbers from 0 up to, but not including, 1, in float64."""
        return torch.from_numpy((self._raw(shape) >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def normal(self, *shape: int) -> torch.Tensor:
        """Numbers of the standard normal distribution, in float64 (Box and Muller's method)."""
        radius = torch.sqrt(-2 * torch.log1p(-self.uniform(*shape)))
        return radius * torch.cos(2 * math.pi * self.uniform(*shape))

    def permutation(self, count: int) -> list[int]:
        """The numbers from 0 to count - 1 in some order."""
        return np.argsort(self._raw((count,)), kind="stable").tolist()

    def distinct(self, count: int, most: int = 3) -> list[int]:
        """Whole numbers in some order, no two alike, from 1 on with gaps of at most `most`: their largest can't be known."""
        heights = torch.cumsum(self.integers(1, most + 1, count), 0).tolist()
        return [heights[place] for place in self.permutation(count)]

    def _raw(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(self._bits.random_raw(math.prod(shape)), dtype=np.uint64)
