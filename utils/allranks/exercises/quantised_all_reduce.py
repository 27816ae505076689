"""quantised_all_reduce(tensor, block) -> Tensor: the sum over the ranks in 8 bits a number, within an error and a byte bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.exercises.families import no_other, steadied, where_they_show
from allranks.judge import rules
from allranks.judge.cases import DTYPES, Args, Expected, Oracle, Setup, View, draw, oracle_maker, plain, shape_of
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Mistakes, Rule, Run
from allranks.ranks.wire import LogEntry

MOST = 127  # of int8; -128 has no partner
SCALE_NBYTES = 4
OCTAVES = 10  # blocks differ by up to 2**10

Blocks = torch.Tensor  # (blocks, block), in float64, zeros behind the end
Rounding = Callable[[torch.Tensor], torch.Tensor]
Add = Callable[[torch.Tensor, torch.Tensor], Blocks]


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    block, shape = setup.option("block"), shape_of(setup)
    count = -(-setup.size // block)
    octaves = (rng.integers(0, OCTAVES, count) - OCTAVES // 2).double() if count else torch.zeros(0)
    if count > 1:
        octaves[0], octaves[1] = OCTAVES / 2, -OCTAVES / 2  # two neighbours that can't share a scale
    steps = rng.integers(110, MOST - 1, setup.size).double() + 0.495
    made: list[Args] = []
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        values = draw(setup, own, setup.size) if setup.values != "random" else own.normal(setup.size)
        values = values.double() * 2.0 ** octaves.repeat_interleave(block)[: setup.size]
        match setup.option("case"):
            case "positive numbers":
                values = values.abs() + 1e-3 * 2.0 ** octaves.repeat_interleave(block)[: setup.size]
            case "a block of zeros":
                values[:block] = 0
            case "mostly negative":
                values = -values.abs()
                values[::block] = 2.0**-OCTAVES
            case "very large numbers":  # their scales are beyond float16
                values = values * 2.0**26
            case "very small numbers":
                values = values * 2.0**-26
            case "numbers between two steps":  # and scales that bfloat16 rounds down, as it does their sum
                scale = 1 + ((rank == 0) + 0.48) * torch.finfo(torch.bfloat16).eps
                values = steps + (0 < rank <= setup.ranks // 2)  # so that the sum lies between two steps too
                values[::block] = MOST
                values = values * scale * 2.0 ** octaves.repeat_interleave(block)[: setup.size]
        made.append((View.of(values.to(DTYPES[setup.dtype]).reshape(shape), setup.layout), block))
    return made


def _blocks(values: torch.Tensor, block: int) -> Blocks:
    """The flat values in rows of `block`, with zeros behind the end."""
    flat = values.reshape(-1).double()
    return torch.nn.functional.pad(flat, (0, -flat.numel() % block)).reshape(-1, block)


def _rounded(rows: Blocks) -> Blocks:
    return torch.round(rows).clamp(-MOST - 1, MOST)


def _quantised(rows: Blocks, scales: torch.Tensor, rounded: Rounding = _rounded, back: Blocks | None = None) -> Blocks:
    """What is left of the rows after int8 with these scales; `back` are those that they are multiplied with again."""
    return rounded(rows / torch.where(scales > 0, scales, 1)) * (scales if back is None else back)


def _scales(rows: Blocks) -> torch.Tensor:
    return rows.abs().amax(1, keepdim=True) / MOST


def bound(args: Sequence[Args], block: int) -> torch.Tensor:
    """The largest error of each element: half a step of each rank's block, and half a step of the sum's block."""
    rows = [_blocks(plain(a[0]), block) for a in args]
    total = sum(rows[1:], rows[0])
    first = sum(_scales(r) for r in rows) / 2
    step = _scales(total) + first / MOST  # the sum that is quantised is off by the first error already
    limit = (first + step / 2).expand_as(total)
    kind = args[0][0].base.dtype
    limit = 1.001 * limit + torch.finfo(kind).eps * (total.abs() + limit) + torch.finfo(torch.float32).eps * limit
    return limit.reshape(-1)[: plain(args[0][0]).numel()].reshape(args[0][0].size)


def _sum(args: Sequence[Args]) -> torch.Tensor:
    return torch.stack([plain(a[0]).double() for a in args]).sum(0)


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    total, kind = _sum(args), args[0][0].base.dtype
    return [Expected(total.to(kind), {}, bound(args, args[0][1])) for _ in args]


@oracle_maker
def _by_rank(
    setup: Setup, args: Sequence[Args], make: Callable[[Setup, torch.Tensor, int], torch.Tensor]
) -> list[Expected]:
    """What a mistake leaves whose exact result is `make(setup, tensors, rank)`; quantising may have moved it within the bound."""
    limit, tensors = bound(args, args[0][1]), torch.stack([plain(a[0]).double() for a in args])
    kind = args[0][0].base.dtype
    return [Expected(make(setup, tensors, rank).to(kind), {}, limit) for rank in range(setup.ranks)]


@oracle_maker
def _by_steps(
    setup: Setup,
    args: Sequence[Args],
    rounded: Rounding = _rounded,
    first: Callable[[Blocks], torch.Tensor] = _scales,
    add: Add = lambda ints, scales: (ints * scales).sum(0),
    again: Add = lambda total, scales: _quantised(total, _scales(total)),
) -> list[Expected]:
    """What the usual two steps give with one thing wrong.

    `first` gives a rank's scales, `add(ints, scales)` adds what the ranks sent, (ranks, blocks, block) and (ranks, blocks, 1), and
    `again(total, scales)` quantises the sum.
    """
    block, kind, shape = args[0][1], args[0][0].base.dtype, args[0][0].size
    rows = torch.stack([_blocks(plain(a[0]), block) for a in args])
    if not rows.numel():  # nothing to get wrong
        return [Expected(torch.empty(shape, dtype=kind), {}, bound(args, block)) for _ in args]
    scales = torch.stack([first(r) for r in rows])
    ints = rounded(rows / torch.where(scales > 0, scales, 1))
    flat = again(add(ints, scales), scales).reshape(-1)[: plain(args[0][0]).numel()].reshape(shape)
    return [Expected(flat.to(kind), {}, bound(args, block)) for _ in args]


def _alike(first: Callable[[Blocks], torch.Tensor], rounded: Rounding = _rounded) -> Oracle:
    """Both steps with these scales and this rounding."""
    return _by_steps(rounded, first, again=lambda total, _: _quantised(total, first(total), rounded))


@oracle_maker
def _every_kth(setup: Setup, args: Sequence[Args], padded: bool) -> list[Expected]:
    """Each block took every k-th element; `padded`: to as many blocks as the ranks can share evenly."""
    block, n, shape = args[0][1], plain(args[0][0]).numel(), args[0][0].size
    count = -(-n // block)
    if padded:
        count = -(-count // setup.ranks) * setup.ranks
    if count < 2:
        return list(_by_steps()(setup, args))  # there is one block
    taken = [torch.nn.functional.pad(plain(a[0]).reshape(-1), (0, count * block - n)) for a in args]
    made = _by_steps()(setup, [(View.of(t.view(block, count).T.reshape(-1)), block) for t in taken])

    def back(values: torch.Tensor) -> torch.Tensor:
        return values.view(count, block).T.reshape(-1)[:n].reshape(shape)

    return [Expected(back(e.returns), {}, back(torch.as_tensor(e.atol))) for e in made]


def _of_largest(rows: Blocks) -> torch.Tensor:
    return (rows.amax(1, keepdim=True) / MOST).clamp(min=0)


def _one_scale(rows: Blocks) -> torch.Tensor:
    return _scales(rows).amax(0, keepdim=True).expand(len(rows), 1)


def _one_a_chunk(total: Blocks, scales: torch.Tensor) -> Blocks:
    """Quantised with one scale for each rank's chunk of blocks."""
    each = -(-len(total) // len(scales))
    return torch.cat([_quantised(chunk, _one_scale(chunk)) for chunk in total.split(each)])


def _owners_scales(ints: torch.Tensor, scales: torch.Tensor) -> Blocks:
    """Each block is added on one rank, with the scale of its own part."""
    each = -(-ints.shape[1] // len(ints))
    return ints.sum(0) * torch.stack([scales[i // each, i] for i in range(ints.shape[1])])


def _wrapped(ints: torch.Tensor) -> torch.Tensor:
    """What int8 makes of whole numbers that it does not hold."""
    return (ints + MOST + 1) % (2 * MOST + 2) - MOST - 1


def _unsigned(rows: Blocks) -> Blocks:
    """Rounded, and sent as uint8."""
    return _rounded(rows) % (2 * MOST + 2)


def _about_right(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right sum, within a hundred times the bound and a quarter of the largest number of its block."""
    block, shape = args[0][1], args[0][0].size
    rows = _blocks(_sum(args), block)
    near = (rows.abs().amax(1, keepdim=True) / 4).expand_as(rows).reshape(-1)[: _sum(args).numel()].reshape(shape)
    limit = torch.minimum(100 * bound(args, block), near)
    return [Expected(e.returns, {}, limit) for e in _oracle(setup, args)]


def _first_only(held: Callable[[int, int, int], int]) -> Oracle:
    """Zeros behind the first `held(size, block, ranks)` elements."""

    def make(setup: Setup, tensors: torch.Tensor, rank: int) -> torch.Tensor:
        total = tensors.sum(0)
        kept = torch.arange(setup.size) < held(setup.size, setup.option("block"), setup.ranks)
        return total * kept.reshape(total.shape)

    return _by_rank(make)


def _in_chunks(each: Callable[[float], int]) -> Oracle:
    """Zeros behind p chunks of `each(blocks / p)` blocks, or of one."""
    return _first_only(lambda n, block, p: p * max(1, each(-(-n // block) / p)) * block)


def _chunk(run: Run) -> tuple[int, int]:
    """(numbers, scales) of a chunk of whole blocks."""
    block = run.args[0][0][1]
    blocks = -(-run.setup.size // block)
    each = -(-blocks // run.ranks)
    return each * block, each


def _byte_bound(run: Run) -> str | None:
    """Each rank may receive 2(p-1) chunks of one byte a number and one scale a block."""
    numbers, scales = _chunk(run)
    limit = 2 * (run.ranks - 1) * (numbers + SCALE_NBYTES * scales)
    for _, rank, mine in run.by_rank(run.collectives):
        got = sum(map(rules.received_from_others, mine))
        if got <= limit:
            continue
        wide = next((e for e in mine if e.dtype not in ("int8", "uint8") and e.numel > run.ranks * scales), None)
        if wide is not None:
            why = f"send one byte a number, and not {wide.dtype}"
        elif any(e.received_nbytes >= run.ranks * run.setup.size for e in mine) and run.ranks > 2:
            why = "gathering everybody's whole vector grows with p: let each rank add one chunk, then gather the sums"
        else:
            why = _what_is_too_much(run, mine, numbers)
        worst = wide or max(mine, key=lambda e: e.received_nbytes)
        return About(
            f"rank {rank} receives {got} bytes{run.at(worst.line)}, but 2(p-1) chunks of {numbers} bytes and {scales} {'scale' if scales == 1 else 'scales'} "
            f"have {limit}: {why}",
            worst,
        )
    return None


def _what_is_too_much(run: Run, mine: Sequence[LogEntry], numbers: int) -> str:
    """What the messages of a rank that received too many bytes say of it."""
    itemsize = {str(e.dtype): getattr(torch, str(e.dtype)).itemsize for e in mine}
    large = next((str(e.dtype) for e in mine if e.numel and itemsize[str(e.dtype)] > SCALE_NBYTES), None)
    small = sum(rules.received_from_others(e) for e in mine if itemsize[str(e.dtype)] == 1)
    if large is not None and small <= 2 * (run.ranks - 1) * numbers:
        return f"{large} has {itemsize[large]} bytes, and a scale needs {SCALE_NBYTES}: send the scales in float32"
    if large is None and any(n > 1 for n in itemsize.values()):
        return "each chunk and its scales must be sent once"
    return f"probably a chunk or its scales come twice, or a scale has more than {SCALE_NBYTES} bytes"


def _same_bits(run: Run) -> str | None:
    """All ranks must end with the same bits: replicas of a model must not drift apart."""
    for results in run.results:
        got = [r.returned for r in results if r is not None]
        for rank, found in enumerate(got):
            if isinstance(found, torch.Tensor) and not torch.equal(found, got[0]):
                return (
                    f"rank {rank} ends with other bits than rank 0: on the rank that adds a chunk, too, its sum must be the "
                    "quantised one that it sends; replicas of a model would drift apart"
                )
    return None


def _least(run: Run, call: int, rank: int) -> int:
    """Bytes that a rank needs at least: of each number of the others, half a byte in one of the two steps."""
    return run.setup.size // 2


def _case(ranks: int, size: int, block: int = 8, case: str | None = None, **fields: object) -> Setup:
    setup = Setup(ranks, size, **{"values": "random", **fields})  # type: ignore[arg-type]
    return setup.with_options(block=block, **({} if case is None else {"case": case}))


_BY_THEIR_NUMBERS: Mistakes = {
    "the mean instead of the sum": _by_rank(lambda setup, tensors, rank: tensors.mean(0)),
    "the last, shorter block is missing: count blocks with ceil(n / block)": _first_only(
        lambda n, block, p: n // block * block
    ),
    "the last blocks are missing: p chunks must hold them all, so a chunk has ceil(blocks / p) of them": [
        _in_chunks(int),
        _in_chunks(round),
    ],
    "a block's elements are not neighbours: block i has the elements from i * block on, as view(-1, block) gives them, "
    "and not every k-th one": [_every_kth(padded) for padded in (True, False)],
    "the scale was taken from the largest number: take the largest absolute value, or large negative ones are cut "
    "off": _by_steps(
        lambda rows: torch.round(rows).clamp(-MOST, MOST),
        _of_largest,
        again=lambda total, _: _quantised(total, _of_largest(total)),
    ),
    "one scale for the whole tensor: blocks of small numbers are lost, so give each block a scale of its own": [
        _by_steps(first=_one_scale, again=_one_a_chunk),
        _by_steps(first=_one_scale),
        _by_steps(again=_one_a_chunk),
    ],
    "the scale is the largest absolute value divided by 128 or more: the int8 that it stands for is 127 at most": [
        _alike(lambda rows, most=most: rows.abs().amax(1, keepdim=True) / most, rounded)  # type: ignore[misc]
        for most in (128, 255, 256)
        for rounded in (lambda rows: _wrapped(torch.round(rows)), _rounded)
    ],
    "scales in float16: it holds no number above 65,504, and makes those near 0 a zero, so compute and send the "
    "scales in float32": _alike(lambda rows: _scales(rows).half().double()),
    "rounded towards zero: a conversion to int8 cuts the fraction off, so round() first": [
        _alike(_scales, lambda rows: torch.trunc(rows).clamp(-MOST, MOST)),
        # in float32, as it is asked, the largest of a block may come out just below a whole number of steps
        _alike(
            lambda rows: _scales(rows.float()).double(),
            lambda rows: torch.trunc(rows.float()).clamp(-MOST, MOST).double(),
        ),
    ],
    "the 8-bit numbers were added in 8 bits, where a sum beyond 127 wraps around: multiply with the scales first, and "
    "add floats": _by_steps(add=lambda ints, scales: _wrapped(ints.sum(0)) * scales[0]),
    "negative numbers were sent as uint8, which has none: send int8, or add 127 first and subtract it afterwards": (
        _alike(_scales, _unsigned)
    ),
    "the 8-bit numbers were added with one rank's scale: each rank has scales of its own, which must travel too": [
        _by_steps(add=_owners_scales),
        _by_steps(add=_owners_scales, again=lambda total, _: total),
    ],
    "the 8-bit numbers were added before they were multiplied with their scales: each rank has scales of its own": (
        _by_steps(add=lambda ints, scales: ints.sum(0) * scales.mean(0))
    ),
    "NaN where a block is all zeros: its scale is 0, and 0/0 is NaN": _by_steps(
        again=lambda total, scales: _quantised(total, _scales(total)).masked_fill((scales == 0).any(0), float("nan"))
    ),
    "the sum was quantised with the sum of the ranks' scales: take the largest absolute value of the sum's own "
    "block": _by_steps(again=lambda total, scales: _quantised(total, scales.sum(0))),
    "the sum was quantised with a scale of the first step: it is larger than any of its parts, so it needs a new "
    "scale": _by_steps(again=lambda total, scales: _quantised(total, scales[0])),
    "the quantised sums were multiplied with scales of the first step: they were quantised with new ones, which must "
    "travel too": [
        _by_steps(again=lambda total, s, which=which: _quantised(total, _scales(total), back=which(s)))  # type: ignore[misc]
        for which in (lambda s: s.sum(0), lambda s: s.mean(0), lambda s: s.amax(0), lambda s: s[0])
    ],
}
KNOWN = where_they_show(_BY_THEIR_NUMBERS)

EXERCISE = Exercise(
    name="quantised_all_reduce",
    promise="returns the sum over the ranks, quantised to 8 bits twice, in blocks that have a scale each",
    groups=(
        Group("right sum", 3, (_case(2, 64), _case(3, 96), _case(4, 256))),
        Group(
            "within the error bound",
            3,
            (
                _case(4, 512, 16, "positive numbers"),
                _case(3, 600, 8, "positive numbers"),
                _case(4, 128, 8, "numbers between two steps"),
                _case(3, 96, 8, "very large numbers"),
                _case(3, 96, 8, "very small numbers"),
            ),
        ),
        Group("signs", 1, (_case(3, 96, 8, "mostly negative"), _case(2, 64, 16, "mostly negative"))),
        Group("a block of zeros", 1, (_case(3, 48, 8, "a block of zeros"), _case(2, 48, 4, "a block of zeros"))),
        Group("any rank count", 1, (_case(1, 40), _case(5, 200), _case(8, 128))),
        Group("many ranks", 2, (_case(9, 443).with_choices(ranks=(9, 11, 13), size=(443, 449, 457)),)),
        Group(
            "any size",
            1,
            (_case(3, 1), _case(4, 17), _case(3, 100, 16), _case(4, 41, 1), _case(2, 45, 64), _case(3, 0)),
        ),
        Group(
            "any dtype and layout",
            1,
            (
                _case(3, 96, dtype="float64"),
                _case(3, 192, dtype="bfloat16"),
                _case(3, 96, layout="strided"),
                _case(3, 96, layout="transposed"),
            ),
        ),
        circumstances(_case(3, 96)),
    ),
    inputs=_inputs,
    labels={"case": "{}"},
    oracle=_oracle,
    allow=frozenset({"all_to_all", "all_to_all_single", "all_gather", "all_gather_into_tensor"}),
    rules=(
        Rule("2(p-1) chunks of bytes", 6, lambda run: rules.no_messages(run) or _byte_bound(run)),
        Rule("the same bits on all ranks", 3, _same_bits),
        rules.exchanged(_least),
    ),
    mistakes={
        **KNOWN,
        "about right, but off by more than the bound, half a step of each rank's block and half a step of the "
        "sum's: int8 has 127 steps on each side of zero, and a number "
        "may be quantised twice, no more": (_about_right, no_other(KNOWN)),
    },
    collective="all_reduce",
    algorithm="quantised",
    demo_setup=_case(4, 64),
    forbidden_advice="Use all_to_all_single for the chunks, and all_gather_single for the sums.",
)


def _has_fractions(setup: Setup) -> bool:
    """Whether numbers lie anywhere between two steps."""
    return setup.option("case") != "numbers between two steps" and setup.size > 1


def _in_one_block(setup: Setup) -> bool:
    return setup.size <= setup.option("block")


EXERCISE = steadied(
    EXERCISE,
    {
        "with the sum of the ranks' scales": lambda setup: _has_fractions(setup) and setup.option("block") > 1,
        "divided by 128 or more": lambda setup: setup.option("case") != "mostly negative",
        "rounded towards zero": _has_fractions,
        "with scales of the first step": _in_one_block,
        "with a scale of the first step": _in_one_block,
        "8-bit numbers were added": _in_one_block,
        "taken from the largest number": lambda setup: setup.size > 1 and _in_one_block(setup),
        "one scale for the whole tensor": lambda setup: setup.option("case") == "a block of zeros",
    },
)
