"""What a case is: the setup that names it, the arguments of each rank, and what each rank must end with."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

import torch

from allranks.judge import provenance
from allranks.judge.drawing import Draws
from allranks.judge.in_rank.arguments import (  # noqa: F401  # exercises make arguments and cases
    GUARD,
    Add,
    Arg,
    Args,
    Backward,
    Blocks,
    Function,
    Multiply,
    Parameter,
    Peak,
    Tied,
    Upstream,
    View,
    Work,
    plain,
    views,
)

DTYPES = {
    name: getattr(torch, name)
    for name in ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "complex64", "bool")
}


@dataclass(frozen=True)
class Setup:
    """What one case is. `size` counts elements, or whatever the exercise says (rows, tokens, ids).

    `layout` is "contiguous", "offset" (a slice of a larger vector), "strided" (every other element), "transposed" or
    "three dimensions" (contiguous; all others but "transposed" have one).
    `values` is "small" (whole numbers whose sums are exact in every dtype), "random", "precise" (values that a
    narrower dtype can't hold) or "provenance" (from each element one reads where it came from). `delivery` is "rendezvous"
    (a send blocks until it is received) or "shuffled" (buffered, arriving in a seeded random order).
    `outer_world` sets the environment variables of a larger job, of which these ranks are a part. `choices` are values of
    which `drawn` takes one: of a field, or of one of the exercise's own options.
    """

    ranks: int
    size: int = 12
    dtype: str = "float32"
    layout: str = "contiguous"
    values: str = "small"
    root: int | None = None
    times: int = 1
    delivery: str = "rendezvous"
    outer_world: bool = False
    note: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    choices: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        """The value of one of the exercise's own options, such as `k` or `segments`."""
        return dict(self.options).get(name, default)

    def with_options(self, **options: Any) -> Setup:
        """The same setup with some of the exercise's own options set."""
        return replace(self, options=tuple({**dict(self.options), **options}.items()))

    def with_choices(self, **choices: tuple[Any, ...]) -> Setup:
        """The same setup with fields or options whose values are drawn, so that no answer can know them."""
        return replace(self, choices=tuple(choices.items()))

    def drawn(self, secret: int) -> Setup:
        """The setup with one of each field's choices: the same on every machine for the same secret."""
        made = replace(self, choices=())
        for name, values in self.choices:
            digest = hashlib.sha256(repr(("choice", secret, name, self)).encode()).digest()
            value = values[int.from_bytes(digest[:8], "big") % len(values)]
            made = replace(made, **{name: value}) if hasattr(made, name) else made.with_options(**{name: value})
        return made

    def label(self, unit: str = "element", root_name: str = "root", labels: Mapping[str, str] | None = None) -> str:
        """The case in words, as the student reads it: "3 ranks, 1 element, int64, strided". `labels` are those of options."""
        words = [_count(self.ranks, "rank"), _count(self.size, unit)]
        if self.dtype != "float32":
            words.append(self.dtype)
        if self.layout != "contiguous":
            words.append(self.layout)
        if self.root is not None:
            words.append(f"{root_name}={self.root}")
        words += [
            (labels or {}).get(name, f"{name}={{}}").format(value)
            for name, value in self.options
            if not name.startswith("_")
        ]
        if self.values == "precise":
            words.append("values that need every bit")
        if self.note:
            words.append(self.note)
        if self.times > 1:
            words.append("twice in a row")
        if self.outer_world:
            words.append("as a sub-group of a larger job")
        if self.delivery == "shuffled":
            words.append("messages delayed at random")
        return ", ".join(words)

    def draws(self, secret: int, call: int = 0) -> Draws:
        """The numbers of this case's inputs in one call: the same on every machine for the same secret."""
        return Draws("inputs", secret, self, call)

    def order_seed(self, secret: int) -> int:
        """The seed of the order of messages, and of the ranks' own generators: it tells nothing of the inputs."""
        words = repr(("order", secret, self)).encode()
        return int.from_bytes(hashlib.sha256(words).digest()[:16], "big")

    @property
    def divides(self) -> bool:
        """Whether the number of ranks divides the size."""
        return self.size % self.ranks == 0

    @property
    def divides_rows(self) -> bool:
        """Whether the number of ranks divides the first dimension."""
        return shape_of(self)[0] % self.ranks == 0

    @property
    def earns_credit(self) -> bool:
        """Whether it counts in the score. With one rank or no elements it does not: there doing nothing is right."""
        return self.ranks > 1 and self.size > 0


def _count(number: int, unit: str) -> str:
    first, _, rest = unit.partition(" ")  # the plural of "token a rank" is "tokens a rank"
    plural = "" if number == 1 else "es" if first.endswith("ch") else "s"
    return f"{number} {first}{plural}{' ' if rest else ''}{rest}"


class Text(str):
    """A text that a rank returned. It may carry anything, so no sentence shows it; a plain str in its place names a type."""


@dataclass(frozen=True)
class Texts:
    """A returned list of texts, of which several may be right: `fault` says what is wrong with one, or None.

    `name` says what it must be. What `fault` says follows "what rank 0 returned" and has no full stop; it must not quote a
    text that it did not parse.
    """

    name: str
    fault: Callable[[Sequence[str]], str | None]


@dataclass(frozen=True)
class AllOrNothing:
    """A returned tuple of numbers; the verdict does not say which of them is wrong."""

    numbers: tuple[int, ...]
    name: str


@dataclass(frozen=True)
class Expected:
    """What one rank must end with after one call. `changed` maps a tensor's path to its new values; all other tensors
    must be unchanged. `returns` is None if any value will do, also inside a tuple. `atol` bounds the error of each
    element, or of each item of a returned tuple (None: exact)."""

    returns: Any = None
    changed: dict[tuple, torch.Tensor] = field(default_factory=dict)
    atol: torch.Tensor | float | tuple[float, ...] | None = None


Inputs = Callable[[Setup, Draws], Iterable[Args]]
Oracle = Callable[[Setup, Sequence[Args]], Sequence[Expected]]
More = ParamSpec("More")


def oracle_maker(
    function: Callable[Concatenate[Setup, Sequence[Args], More], Iterable[Expected]],
) -> Callable[More, Oracle]:
    """Makes oracles of a function of a case and its arguments that is also told what is right, or what went wrong.

    >>> @oracle_maker
    ... def _times(setup, args, factor):
    ...     for _ in args:
    ...         yield Expected(factor * setup.size)
    >>> _times(3)(Setup(2, 4), [(), ()])[0].returns
    12
    """

    @functools.wraps(function)
    def made(*given: More.args, **named: More.kwargs) -> Oracle:
        return lambda setup, args: list(function(setup, args, *given, **named))

    return made


def draw(setup: Setup, rng: Draws, *shape: int, most: int = 9) -> torch.Tensor:
    """Random values of the setup's kind and dtype, contiguous. "small" values are never zero, so that a missing one shows, and
    at most `most`."""
    kind = DTYPES[setup.dtype]
    if kind == torch.bool:
        return rng.integers(0, 2, *shape).bool()
    if not kind.is_floating_point and not kind.is_complex and setup.values == "precise":
        bound = 2**57 if kind == torch.int64 else 20
        return rng.integers(0 if kind == torch.uint8 else -bound, bound, *shape).to(kind)
    if setup.values in ("random", "precise") and (kind.is_floating_point or kind.is_complex):
        wide = rng.normal(*shape)
        return (torch.complex(wide, rng.normal(*shape)) if kind.is_complex else wide).to(kind)
    values = _small(rng, shape, most, signed=kind != torch.uint8)
    if kind.is_complex:
        return torch.complex(values.double(), _small(rng, shape, most).double()).to(kind)
    return values.to(kind)


def _small(rng: Draws, shape: tuple[int, ...], most: int, signed: bool = True) -> torch.Tensor:
    values = rng.integers(1, most + 1, *shape)
    return values * (1 - 2 * rng.integers(0, 2, *shape)) if signed else values


def different_values(setup: Setup, sizes: Sequence[int], rng: Draws) -> list[torch.Tensor]:
    """A vector of each size, no two of all their elements alike: whether there is a tie must not be luck."""
    if setup.values != "small":
        return [draw(setup, rng.of_rank(rank), size) for rank, size in enumerate(sizes)]
    numbers = torch.tensor(rng.distinct(sum(sizes)), dtype=torch.int64)
    middle = int(numbers.max()) // 2 if len(numbers) else 0
    return list((numbers - middle).to(DTYPES[setup.dtype]).split(list(sizes)))


def shape_of(setup: Setup, size: int | None = None) -> tuple[int, ...]:
    """One dimension; three columns if the layout is transposed (the size is a multiple of 3 then), or three dimensions (of 6)."""
    size = setup.size if size is None else size
    return {"transposed": (size // 3, 3), "three dimensions": (size // 6, 2, 3)}.get(setup.layout, (size,))


def vectors(setup: Setup, rng: Draws) -> list[Args]:
    """One tensor for each rank: the inputs of most exercises. Where the dtype is wide enough, no two ranks' are alike by luck."""
    if setup.values == "provenance":
        tensors = [
            provenance.values(r, setup.size, DTYPES[setup.dtype]).reshape(shape_of(setup)) for r in range(setup.ranks)
        ]
    else:
        most = 9 if setup.dtype in ("bfloat16", "float16", "uint8") else 9999
        while True:
            tensors = [draw(setup, rng.of_rank(r), *shape_of(setup), most=most) for r in range(setup.ranks)]
            if not setup.earns_credit or not all(torch.equal(t, tensors[0]) for t in tensors):
                break  # else doing nothing might be right
    return [(View.of(t, setup.layout),) for t in tensors]


def summed(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The exact sum of the tensors in their own dtype, and the largest error that any order of adding may give."""
    kind = tensors[0].dtype
    if not kind.is_floating_point and not kind.is_complex:
        return torch.stack(list(tensors)).sum(0, dtype=kind), None
    wide = torch.stack([t.to(torch.complex128 if kind.is_complex else torch.float64) for t in tensors])
    eps = torch.finfo(kind).eps
    return wide.sum(0).to(kind), (wide.abs().sum(0) * eps * max(len(tensors) - 1, 0)).double()
