"""Small vectors with torch's names and torch's meaning, in plain Python. They are no torch: no gradients, one dimension, float32.

Each element also carries its marks: whose numbers, of which place, have been added into it, and how often. A mark is one
whole number with a digit for each (rank, place), so that adding numbers adds marks.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

DIGIT = 32  # bits: how often a number was added
EMPTY, PENDING = (
    1,
    1 << DIGIT,
)  # digits of their own: never written; to be filled by a receive that nobody has waited for
_RESERVED = 2
RESERVED = (1 << DIGIT * _RESERVED) - 1
AWAITED = RESERVED ^ (1 << DIGIT) - 1  # the digit of PENDING
MOST = 100_000  # elements


def mark(place: int) -> int:
    """The mark of one number of the inputs."""
    return 1 << DIGIT * (place + _RESERVED)


@lru_cache(maxsize=4096)
def places(marks: int) -> Mapping[int, int]:
    """The numbers of the inputs that a mark holds, and how often each.

    >>> dict(places(mark(3) + 2 * mark(5)))
    {3: 1, 5: 2}
    """
    held = marks >> DIGIT * _RESERVED
    digits = array("I", held.to_bytes(-(-held.bit_length() // DIGIT) * DIGIT // 8, sys.byteorder))
    ordered = digits if sys.byteorder == "little" else reversed(digits)
    return MappingProxyType({place: count for place, count in enumerate(ordered) if count})


def cuts(n: int, parts: int) -> list[int]:
    """Where each of so many parts of n numbers begins, and the end: the first ones are one longer if it does not divide.

    >>> cuts(11, 4)
    [0, 3, 6, 9, 11]
    """
    return [n // parts * part + min(part, n % parts) for part in range(parts + 1)]


class Store:
    """The memory of a vector and of its slices."""

    __slots__ = ("marks", "values")

    made: list[Store] | None = None  # those of the rank that runs, in the order in which it made them

    def __init__(self, values: Iterable[float], marks: list[int]) -> None:
        self.values, self.marks = array("f", values), marks
        if Store.made is not None:
            Store.made.append(self)


def _plain(value: Any) -> float:
    if isinstance(value, Vector):
        return value.item()
    if isinstance(value, bool | int | float):
        return float(value)
    raise TypeError(f"a vector holds numbers, not a {type(value).__name__}")


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _divide(one: float, other: float) -> float:
    if other:
        return one / other
    return math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)


def _power(one: float, other: float) -> float:
    try:
        found = one**other
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return found if isinstance(found, float) else math.nan


def _larger(one: float, other: float) -> float:
    return one if one > other or math.isnan(one) else other


def _smaller(one: float, other: float) -> float:
    return one if one < other or math.isnan(one) else other


class Vector:
    """A vector, or a slice of one: the same memory. `at` are the places of its elements in the store; without `flat` it is one number.

    >>> x = tensor([1, 2, 3, 4])
    >>> x[2:] += 10
    >>> x
    tensor([1., 2., 13., 14.])
    """

    __slots__ = ("at", "flat", "store")
    __hash__ = object.__hash__

    def __init__(self, store: Store, at: range, flat: bool = True) -> None:
        self.store, self.at, self.flat = store, at, flat

    # ---------------------------------------------------------------------------------------------- reading it

    @property
    def values(self) -> list[float]:
        """The elements."""
        got = self.store.values
        return [got[i] for i in self.at]

    @property
    def marks(self) -> list[int]:
        """The marks of the elements."""
        got = self.store.marks
        return [got[i] for i in self.at]

    def tolist(self) -> Any:
        """The elements as a list; of one number, the number."""
        return self.values if self.flat else self.item()

    def item(self) -> float:
        """The one element, as a number."""
        if len(self.at) != 1:
            raise RuntimeError(f"a vector of {len(self.at)} numbers is not one number")
        return self.store.values[self.at[0]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements, in a tuple."""
        return (len(self.at),) if self.flat else ()

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its only number."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """The number of elements."""
        return len(self.at)

    def dim(self) -> int:
        """1; 0 if it is one number."""
        return int(self.flat)

    ndim = property(dim)
    dtype, device = "float32", "cpu"

    def element_size(self) -> int:
        """Bytes of one element."""
        return 4

    def is_contiguous(self) -> bool:
        """Whether its elements lie side by side."""
        return len(self.at) < 2 or self.at.step == 1

    def __len__(self) -> int:
        if not self.flat:
            raise TypeError("len() of one number")
        return len(self.at)

    def __iter__(self) -> Iterator[Vector]:
        if not self.flat:
            raise TypeError("one number can't be iterated over")
        return (Vector(self.store, self.at[i : i + 1], False) for i in range(len(self.at)))

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        raise TypeError("a number of a vector is a float: use int(...) for an index")

    def __bool__(self) -> bool:
        if len(self.at) != 1:
            raise RuntimeError("whether a vector of several numbers is true is not clear: compare one of them")
        return self.item() != 0

    def __repr__(self) -> str:
        def text(value: float) -> str:
            return (
                f"{value:g}" + "." * (value == int(value) and "e" not in f"{value:g}")
                if math.isfinite(value)
                else str(value)
            )

        return f"tensor([{', '.join(map(text, self.values))}])" if self.flat else f"tensor({text(self.item())})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    # -------------------------------------------------------------------------------------- slices, the same memory

    def __getitem__(self, key: Any) -> Vector:
        return Vector(self.store, *self._place(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        Vector(self.store, *self._place(key)).copy_(value)

    def _place(self, key: Any) -> tuple[range, bool]:
        if isinstance(key, Vector):
            key = int(key) if len(key.at) == 1 else key
        if key is Ellipsis:
            return self.at, self.flat
        if isinstance(key, slice):
            if key.step is not None and key.step <= 0:
                raise ValueError("the step of a slice must be greater than zero, as in torch")
            start, stop = (int(end) if isinstance(end, Vector) else end for end in (key.start, key.stop))
            return self.at[start : stop : key.step], True
        if isinstance(key, int) and not isinstance(key, bool):
            if not self.flat or not -len(self.at) <= key < len(self.at):
                raise IndexError(f"index {key} is out of range: the vector has {len(self.at)} numbers")
            place = self.at[key]
            return range(place, place + 1), False
        raise TypeError(f"a vector is indexed by a whole number or a slice, not by a {type(key).__name__}")

    def view(self, *shape: Any) -> Vector:
        """The same memory as a vector."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        if len(wanted) != 1 or wanted[0] not in (-1, len(self.at)):
            raise RuntimeError("vectors here have one dimension: view(-1) is the only one")
        return Vector(self.store, self.at)

    reshape = view

    def flatten(self) -> Vector:
        """The same memory as a vector."""
        return Vector(self.store, self.at)

    ravel = flatten

    def contiguous(self) -> Vector:
        """Itself if its elements lie side by side, else a copy."""
        return self if self.is_contiguous() else self.clone()

    def detach(self) -> Vector:
        """Itself: there are no gradients here."""
        return self

    def tensor_split(self, parts: Any) -> list[Vector]:
        """So many slices, the first ones one longer if it does not divide; or slices that end at these places.

        torch gives a tuple; here it is a list, so that `c[i] += new` is one line.
        """
        n = len(self.at)
        if isinstance(parts, int) and parts < 1:
            raise ValueError("tensor_split takes one part or more")
        ends = cuts(n, parts) if isinstance(parts, int) else [0, *parts, n]
        return [self[start:end] for start, end in pairwise(ends)]

    def chunk(self, parts: int) -> list[Vector]:
        """As torch: slices of ceil(n / parts) elements; there may be fewer of them."""
        if parts < 1:
            raise ValueError("chunk takes one part or more")
        n = len(self.at)
        return self.split(-(-n // parts)) if n else [self[:] for _ in range(parts)]

    def split(self, size: Any) -> list[Vector]:
        """As torch: slices of `size` elements, the last one shorter; or of these sizes."""
        n = len(self.at)
        if not isinstance(size, int):
            if sum(size) != n:
                raise RuntimeError(f"split takes sizes that add up to {n}, not to {sum(size)}")
            ends = [sum(size[: i + 1]) for i in range(len(size))]
            return [self[end - one : end] for one, end in zip(size, ends, strict=True)]
        if size < 1:
            raise RuntimeError("split takes a size of one or more")
        return [self[i : i + size] for i in range(0, n, size)] or [self[:]]

    # ------------------------------------------------------------------------------------------ writing into it

    def _write(self, values: Sequence[float], marks: Sequence[int]) -> Vector:
        store = self.store
        for i, value, of in zip(self.at, values, marks, strict=True):
            store.values[i] = value
            store.marks[i] = of
        return self

    def copy_(self, other: Any) -> Vector:
        """Writes the elements of another vector, or one number, into this one."""
        return self._write(*self._beside(other))

    def fill_(self, value: float) -> Vector:
        """Writes one number into every element."""
        return self.copy_(value)

    def zero_(self) -> Vector:
        """Writes zeros."""
        return self.copy_(0.0)

    def clone(self) -> Vector:
        """A copy, in memory of its own."""
        return _made(self.values, self.marks, self.flat)

    def _beside(self, other: Any) -> tuple[list[float], list[int]]:
        """As many elements and marks of `other` as this one has."""
        n = len(self.at)
        if isinstance(other, Vector):
            if len(other.at) == n:
                return other.values, other.marks
            if len(other.at) == 1:
                return other.values * n, other.marks * n
            raise RuntimeError(
                f"the vector has {n} numbers, and the other one {len(other.at)}: they must be equally many"
            )
        if isinstance(other, list | tuple):
            return self._beside(tensor(other))
        return [_plain(other)] * n, [0] * n

    # --------------------------------------------------------------------------------------------- arithmetic

    def _with(self, other: Any, compute: Callable, *, adds: bool = False, flipped: bool = False) -> Vector | Any:
        if not isinstance(other, Vector | bool | int | float):
            return NotImplemented
        if isinstance(other, Vector) and len(self.at) == 1 != len(other.at):
            return other._with(self, lambda b, a: compute(a, b), adds=adds, flipped=flipped)
        values, marks = self._beside(other)
        pairs = zip(values, self.values, strict=True) if flipped else zip(self.values, values, strict=True)
        joined = [a + b if adds else a | b for a, b in zip(self.marks, marks, strict=True)]
        flat = self.flat or (isinstance(other, Vector) and other.flat)
        return _made([compute(a, b) for a, b in pairs], joined, flat)

    def _into(self, other: Any, compute: Callable, *, adds: bool = False) -> Vector | Any:
        if not isinstance(other, Vector | bool | int | float):
            return NotImplemented
        values, marks = self._beside(other)
        joined = [a + b if adds else a | b for a, b in zip(self.marks, marks, strict=True)]
        return self._write([compute(a, b) for a, b in zip(self.values, values, strict=True)], joined)

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b, adds=True)

    __radd__ = add = __add__

    def __iadd__(self, other: Any) -> Any:
        return self._into(other, lambda a, b: a + b, adds=True)

    add_ = __iadd__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, adds=True)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, adds=True, flipped=True)

    def __isub__(self, other: Any) -> Any:
        return self._into(other, lambda a, b: a - b, adds=True)

    sub, sub_ = __sub__, __isub__

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b)

    __rmul__ = mul = __mul__

    def __imul__(self, other: Any) -> Any:
        return self._into(other, lambda a, b: a * b)

    mul_ = __imul__

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, _divide)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, _divide, flipped=True)

    def __itruediv__(self, other: Any) -> Any:
        return self._into(other, _divide)

    div, div_ = __truediv__, __itruediv__

    def __pow__(self, other: Any) -> Any:
        return self._with(other, _power)

    def __neg__(self) -> Vector:
        return _made([-v for v in self.values], self.marks, self.flat)

    def __abs__(self) -> Vector:
        return _made([abs(v) for v in self.values], self.marks, self.flat)

    abs = __abs__

    def exp(self) -> Vector:
        """e to the power of each element."""
        return _made([_exp(v) for v in self.values], self.marks, self.flat)

    def exp_(self) -> Vector:
        """The same, in place."""
        return self._write([_exp(v) for v in self.values], self.marks)

    def log(self) -> Vector:
        """The natural logarithm of each element."""
        found = [math.log(v) if v > 0 else -math.inf if v == 0 else math.nan for v in self.values]
        return _made(found, self.marks, self.flat)

    def maximum(self, other: Any) -> Any:
        """The larger one of each two elements."""
        return self._with(other, _larger)

    def minimum(self, other: Any) -> Any:
        """The smaller one of each two elements."""
        return self._with(other, _smaller)

    def _compared(self, other: Any, compute: Callable) -> Any:
        return self._with(other, lambda a, b: float(compute(a, b)))

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a >= b)

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a == b)

    def __ne__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a != b)

    # ---------------------------------------------------------------------------------------------- one number

    def _one(self, value: float, adds: bool = True) -> Vector:
        joined = 0
        for of in self.marks:
            joined = joined + of if adds else joined | of
        return _made([value], [joined], False)

    def sum(self) -> Vector:
        """The sum of the elements."""
        return self._one(sum(self.values))

    def mean(self) -> Vector:
        """The mean of the elements."""
        return self._one(_divide(sum(self.values), float(len(self.at))))

    def max(self) -> Vector:
        """The largest element."""
        return self._one(self._most(_larger, "max"), adds=False)

    def min(self) -> Vector:
        """The smallest element."""
        return self._one(self._most(_smaller, "min"), adds=False)

    def _most(self, better: Callable, name: str) -> float:
        if not self.at:
            raise RuntimeError(f"{name}() of no numbers")
        found, *rest = self.values
        for value in rest:
            found = better(found, value)
        return found

    def argmax(self) -> Vector:
        """The place of the largest element, the first one of equals."""
        return _made([float(self.values.index(self._most(_larger, "argmax")))], [0], False)

    def argmin(self) -> Vector:
        """The place of the smallest element, the first one of equals."""
        return _made([float(self.values.index(self._most(_smaller, "argmin")))], [0], False)


def _made(values: Sequence[float], marks: list[int], flat: bool = True) -> Vector:
    return Vector(Store(values, list(marks)), range(len(values)), flat)


def _length(size: Any) -> int:
    size = size[0] if isinstance(size, tuple | list) and len(size) == 1 else size
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise TypeError("vectors here have one dimension: give one whole number of elements")
    if size > MOST:
        raise MemoryError(f"a vector of {size} numbers is too long here; {MOST} are the most")
    return size


def tensor(values: Any, dtype: Any = None) -> Vector:
    """A new vector of these numbers; of one number, a vector that is that number."""
    if isinstance(values, list | tuple | range):
        flat = [_plain(value) for value in values]
        _length(len(flat))
        return _made(flat, [value.marks[0] if isinstance(value, Vector) else 0 for value in values])
    return _made(
        [_plain(values)],
        values.marks if isinstance(values, Vector) else [0],
        isinstance(values, Vector) and values.flat,
    )


def empty(size: Any, dtype: Any = None) -> Vector:
    """A new vector into which nothing was written: here its numbers are NaN."""
    return _made([math.nan] * _length(size), [EMPTY] * _length(size))


def full(size: Any, value: float, dtype: Any = None) -> Vector:
    """A new vector of equal numbers."""
    return _made([_plain(value)] * _length(size), [0] * _length(size))


def zeros(size: Any, dtype: Any = None) -> Vector:
    """A new vector of zeros."""
    return full(size, 0.0)


def ones(size: Any, dtype: Any = None) -> Vector:
    """A new vector of ones."""
    return full(size, 1.0)


def arange(*ends: int) -> Vector:
    """A new vector of whole numbers in order."""
    return tensor(range(*ends))


def _checked(other: Any, name: str) -> Vector:
    if not isinstance(other, Vector):
        raise TypeError(f"{name} takes a vector, not a {type(other).__name__}")
    return other


def empty_like(other: Vector, dtype: Any = None) -> Vector:
    """A new vector of the same size, into which nothing was written."""
    made = empty(len(_checked(other, "empty_like").at))
    return Vector(made.store, made.at, other.flat)


def zeros_like(other: Vector, dtype: Any = None) -> Vector:
    """A new vector of the same size, of zeros."""
    made = zeros(len(_checked(other, "zeros_like").at))
    return Vector(made.store, made.at, other.flat)


def ones_like(other: Vector, dtype: Any = None) -> Vector:
    """A new vector of the same size, of ones."""
    return zeros_like(_checked(other, "ones_like")).fill_(1.0)


def full_like(other: Vector, value: float, dtype: Any = None) -> Vector:
    """A new vector of the same size, of equal numbers."""
    return zeros_like(_checked(other, "full_like")).fill_(value)


def cat(parts: Iterable[Vector]) -> Vector:
    """A new vector of these, one behind the other."""
    parts = [_checked(part, "cat") for part in parts]
    _length(sum(len(part.at) for part in parts))
    return _made([v for part in parts for v in part.values], [m for part in parts for m in part.marks])


def stack(parts: Iterable[Vector]) -> Vector:
    """A new vector of these numbers."""
    parts = list(parts)
    if any(_checked(part, "stack").flat for part in parts):
        raise RuntimeError("vectors here have one dimension: cat puts them one behind the other")
    return cat(parts)


def _function(name: str) -> Callable:
    def call(x: Vector, *more: Any) -> Any:
        return getattr(_checked(x, name), name)(*more)

    call.__name__ = name
    return call


NAMES: dict[str, Any] = {
    **{f.__name__: f for f in (tensor, empty, full, zeros, ones, arange)},
    **{f.__name__: f for f in (empty_like, zeros_like, ones_like, full_like, cat, stack)},
    **{
        name: _function(name)
        for name in "clone tensor_split chunk split numel exp log maximum minimum argmax argmin".split()
    },
}
