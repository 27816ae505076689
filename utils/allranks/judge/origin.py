"""Where the elements of a wrong result came from, read off a run whose input values are all different.

Two readings are tried: each element is a copy of somebody's input (a move), or a sum of the ranks' contributions. Sentences name
ranks, places and lines, never values.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from allranks.base.errors import name_ranks
from allranks.judge import provenance
from allranks.judge.cases import Args, Expected, plain, views
from allranks.judge.compare import name_of
from allranks.judge.evidence import received_before, received_by
from allranks.judge.exercise import About, FaultKind, Result, ResultFault, Run, in_place_of
from allranks.judge.in_rank.arguments import zeroed

_MOST = 64  # elements looked at
_MOST_RANKS = 8
_SHOWN = 4  # ranks listed
_NOT_ADDED = "what arrives is not added"


def _near(values: torch.Tensor) -> float:
    """How far two numbers may be apart that are equal up to rounding."""
    return 1e-9 if values.dtype == torch.float64 else 1e-5


@dataclass(frozen=True)
class Source:
    """An element of a rank's arguments."""

    rank: int
    path: tuple
    index: int


@dataclass(frozen=True)
class _Output:
    """One tensor of a rank's result, as it is and as it must be."""

    name: str
    found: torch.Tensor
    wanted: torch.Tensor
    before: torch.Tensor | None

    def wrong(self) -> list[int]:
        """The flat indices of the wrong elements."""
        a, b = self.found.reshape(-1).double(), self.wanted.reshape(-1).double()
        near = (a - b).abs() <= _near(self.wanted) * (1 + b.abs())
        return torch.nonzero(~near).reshape(-1).tolist()


def explain(run: Run, faults: Sequence[ResultFault]) -> str | None:
    """Where the wrong values came from, without a full stop; None if that can't be read."""
    if any(fault.kind is not FaultKind.VALUES for fault in faults):
        return None
    table = _inputs(run.args[faults[0].call])
    told = [_of_rank(run, fault, table) for fault in faults[:_SHOWN]]
    if told[0] is None:
        return None
    rest = [words[1] for words in told[1:] if words is not None]
    return in_place_of(told[0][0], "; ".join([told[0][0], *dict.fromkeys(rest)]))


def _of_rank(run: Run, fault: ResultFault, table: dict[float, Source]) -> tuple[str, str] | None:
    """The sentence on this rank, and a shorter one for a list."""
    outputs = _outputs(run, fault)
    output = next((o for o in outputs if o.wrong()), None)
    if output is None or output.found.shape != output.wanted.shape:
        return None
    if rearranged := _rearranged(output):
        return f"the elements of {output.name} are right, but {rearranged}", f"{output.name}: {rearranged}"
    wanted = [table.get(v) for v in output.wanted.reshape(-1).tolist()]
    if all(source is not None for source in wanted):
        value = output.found.reshape(-1).tolist()[output.wrong()[0]]
        strange = _with_strangers(run, fault, output) if value and value not in table else None
        return (strange, strange) if strange else _moved(run, fault, output, table, wanted)
    came = [e for e in received_by(run, fault.rank) if e.call == fault.call]
    must_add = len(came) > 1 or _own_is_needed(run, fault, output)
    stored = _stored(run, fault, output) if must_add else None
    return stored or _added(run, fault, output, table, outputs)


def _own_is_needed(run: Run, fault: ResultFault, output: _Output) -> bool:
    """Whether the rank's own values are part of what it must end with: without them nothing need be there to add to."""
    shares = _shares(run, fault, output) if run.ranks <= _MOST_RANKS else None
    return shares is None or bool(shares[fault.rank].any())


def _outputs(run: Run, fault: ResultFault) -> list[_Output]:
    got, expected = run.results[fault.call][fault.rank], run.expected[fault.call][fault.rank]
    if got is None:
        return []
    found = _returned(got, expected, f"what rank {fault.rank} returned")
    given = run.args[fault.call][fault.rank]
    for (path, view), (now, _) in zip(views(given), got.tensors, strict=True):
        if path in expected.changed and isinstance(now, torch.Tensor):
            found.append(
                _Output(
                    f"{name_of(path, given, run.exercise.arguments)} on rank {fault.rank}",
                    now,
                    expected.changed[path],
                    plain(view),
                )
            )
    return [o for o in found if o.found.dtype == o.wanted.dtype and not o.found.dtype.is_complex]


def _returned(got: Result, expected: Expected, name: str) -> list[_Output]:
    pairs: list[tuple[str, Any, Any]] = [(name, got.returned, expected.returns)]
    if isinstance(expected.returns, list | tuple) and isinstance(got.returned, list | tuple):
        items = enumerate(zip(got.returned, expected.returns, strict=False))
        pairs = [(f"item {i} of {name}", a, b) for i, (a, b) in items]
    return [_Output(n, a, b, None) for n, a, b in pairs if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]


def _inputs(args: Sequence[Args]) -> dict[float, Source]:
    """Where each value of the floating inputs stands; a value that stands at several places is left out."""
    found: dict[float, Source] = {}
    twice: set[float] = set()
    for rank, given in enumerate(args):
        for path, view in views(given):
            values = plain(view).reshape(-1)
            if not values.dtype.is_floating_point:
                continue
            for index, value in enumerate(values.tolist()):
                if value in found:
                    twice.add(value)
                found[value] = Source(rank, path, index)
    return {value: source for value, source in found.items() if value not in twice}


# ------------------------------------------------------------------------------------------------------------ moves


def _moved(
    run: Run, fault: ResultFault, output: _Output, table: dict[float, Source], wanted: list[Source | None]
) -> tuple[str, str] | None:
    values = output.found.reshape(-1).tolist()
    wrong = output.wrong()
    first = wrong[0]
    held, right = table.get(values[first]), wanted[first]
    last = first
    while last + 1 in wrong and _follows(held, table.get(values[last + 1])) and _follows(right, wanted[last + 1]):
        held_next, right_next = table.get(values[last + 1]), wanted[last + 1]
        if _step(table.get(values[last]), held_next) and _step(wanted[last], right_next):
            last += 1
        else:
            break
    where, several = _place(run, fault, output, first, last)
    must = _named(run, fault, right, last - first + 1)
    is_unchanged = output.before is not None and torch.equal(output.found, output.before)
    verb = "hold" if several else "holds"
    if is_unchanged:
        holds = "is unchanged"
    elif held is not None:
        holds = f"{verb} {_named(run, fault, held, last - first + 1)}"
    elif values[first] == 0:
        holds = "are zero" if several else "is zero"
    else:
        holds = f"{verb} {'values' if several else 'a value'} that no rank was given"
    sentence = f"{where} {holds}, but must hold {must}"
    return sentence + _whether_it_came(run, fault, output, first, right), f"{where} {holds}"


def _follows(a: Source | None, b: Source | None) -> bool:
    return (a is None) == (b is None)


def _step(a: Source | None, b: Source | None) -> bool:
    if a is None or b is None:
        return a is b
    return (a.rank, a.path, a.index + 1) == (b.rank, b.path, b.index)


def _place(run: Run, fault: ResultFault, output: _Output, first: int, last: int) -> tuple[str, bool]:
    """The wrong part of the output in words, and whether the words are a plural."""
    size = output.wanted.numel()
    n = run.setup.size
    if first == 0 and last == size - 1:
        return output.name, False
    rows = output.wanted.dim() == 2 and output.wanted.shape[1] > 1
    if rows and first % output.wanted.shape[1] == 0:
        return f"row {first // output.wanted.shape[1]} of {output.name}", False
    if n and size == n * run.ranks and first % n == 0 and first // n == last // n:
        return f"place {first // n} of {output.name}", False
    if first == last:
        return f"element {first} of {output.name}", False
    return f"elements {first} to {last} of {output.name}", True


def _named(run: Run, fault: ResultFault, source: Source | None, count: int) -> str:
    if source is None:
        return "another value"
    view = next(v for path, v in views(run.args[fault.call][source.rank]) if path == source.path)
    shape = view.size
    whose = f"rank {source.rank}'s"
    if len(source.path) > 1 and source.path[-1] in ("grad", "data"):
        what = "gradient" if source.path[-1] == "grad" else "data"
        return f"{whose} {what} of parameter {source.path[-2]}"
    given = run.args[fault.call][source.rank]
    floating = [path for path, v in views(given) if v.base.dtype.is_floating_point]
    named = len({path[0] for path in floating}) > 1 and bool(run.exercise.arguments)
    if len(source.path) > 1 and not named:
        return f"chunk {source.path[-1]} of rank {source.rank}"
    what = name_of(source.path, given, run.exercise.arguments, the="") if named else "tensor"
    if len(shape) == 2 and shape[1] > 1 and len(floating) == 1 and source.index % shape[1] == 0 and count <= shape[1]:
        return f"row {source.index // shape[1]} of {whose} tensor"
    total = view.tensor().numel()
    if source.index == 0 and count >= total:
        return f"{whose} {what}"
    if count == 1:
        return f"element {source.index} of {whose} {what}"
    return f"elements {source.index} to {source.index + count - 1} of {whose} {what}"


def _whether_it_came(run: Run, fault: ResultFault, output: _Output, first: int, source: Source | None) -> str:
    """What the log says of the value that is missing at this place: whether it came to this rank at all."""
    rank, value = fault.rank, output.wanted.reshape(-1)[first].item()
    if source is None or source.rank == rank or run.collectives:
        return ""
    came = [e for e in received_by(run, rank) if e.call == fault.call]
    if not came:
        return f": rank {rank} received nothing"
    for entry in came:
        numbers = provenance.numbers(entry)
        if numbers is None:
            return ""
        if numbers.dtype == torch.float64 and bool((numbers == value).any()):
            places = torch.nonzero(output.found.reshape(-1) == value).reshape(-1).tolist()
            ends = f"and stands at element {places[0]} instead" if places else "but is not there at the end"
            return f": it came from rank {entry.rank}{run.at(entry.line)}, {ends}"
    return f": no message brought it to rank {rank}"


def _rearranged(output: _Output) -> str | None:
    """Whether all elements are the right ones, in reverse order or all moved by as many places: then no value is wrong."""
    found, wanted = output.found.reshape(-1).double(), output.wanted.reshape(-1).double()
    near = _near(output.wanted)

    def same(a: torch.Tensor, b: torch.Tensor) -> bool:
        return bool(((a - b).abs() <= near * (1 + b.abs())).all())

    if len(wanted.unique()) < max(3, len(wanted)) or not same(found.sort().values, wanted.sort().values):
        return None
    if same(found, wanted.flip(0)):
        return "in reverse order"
    if output.wanted.dim() > 1 and same(output.found.double(), output.wanted.double().flip(0)):
        return "its rows are in reverse order"
    places = int((found - wanted[0]).abs().argmin())
    if 2 * places != len(found) and same(found, wanted.roll(places)):  # of swapped halves more is told piece by piece
        back = 2 * places > len(found)
        off = len(found) - places if back else places
        ends = "too early, and the first ones stand last" if back else "too far on, and the last ones stand first"
        return f"each stands {off} place{'' if off == 1 else 's'} {ends}"
    return None


# ------------------------------------------------------------------------------------------------------------- sums


def _stored(run: Run, fault: ResultFault, output: _Output) -> tuple[str, str] | None:
    """Whether a rank that must add ends with what one message brought."""
    for entry in received_by(run, fault.rank):
        numbers = provenance.numbers(entry)
        if entry.call == fault.call and numbers is not None:
            if torch.equal(numbers.double(), output.found.reshape(-1).double()):
                short = f"{output.name} is what it received from rank {entry.rank}{run.at(entry.line)}, as it came"
                elsewhere = _missing_elsewhere(run, fault, output)
                if elsewhere:
                    return About(f"{short}, and {elsewhere}", entry), short
                return About(f"{short}: it was not added to what was there", entry, kind=_NOT_ADDED), short
    return None


def _missing_elsewhere(run: Run, fault: ResultFault, output: _Output) -> str | None:
    """Whose contribution the first wrong element lacks, if nothing that was here was left out: the fault is with who sent.

    The rank's own is in it, or has no share in it, and no other message brought the element.
    """
    counts = _how_often(run, fault, output)
    missing = [] if counts is None else [r for r, n in enumerate(counts) if n == 0]
    if counts is None or not missing or fault.rank in missing:
        return None
    if counts[fault.rank] and None not in counts:
        return f"that lacks {_contributions(missing)}"
    came = [e for e in received_by(run, fault.rank) if e.call == fault.call]
    numbers = [n.double() for e in came if (n := provenance.numbers(e)) is not None]
    if any(n.numel() != output.found.numel() for n in numbers) or len(numbers) < len(came):
        return None
    first, found = output.wrong()[0], output.found.reshape(-1).double()
    if any(bool(n.reshape(-1)[first]) for n in numbers if not torch.equal(n.reshape(-1), found)):
        return None
    return f"no message brought {_contributions(missing)} to rank {fault.rank}"


def _how_often(run: Run, fault: ResultFault, output: _Output) -> list[int | None] | None:
    """How often the first wrong element has each rank's contribution: None of a rank that has no share in it, such as a higher one in a
    scan; None of all if that can't be told."""
    first = output.wrong()[0]
    shares = _shares(run, fault, output) if run.ranks <= _MOST_RANKS else None
    basis = [] if shares is None else [s.reshape(-1)[first].double().item() for s in shares]
    if not any(basis):
        return None
    value = output.found.reshape(-1)[first].double().item()
    counted = _counts(value, [b for b in basis if b], _near(output.wanted) / 100)
    if counted is None:
        return None
    each = iter(counted)
    return [next(each) if b else None for b in basis]


def _added(
    run: Run, fault: ResultFault, output: _Output, table: dict[float, Source], outputs: list[_Output]
) -> tuple[str, str] | None:
    """Which contributions the first wrong element lacks, or has too often."""
    first = output.wrong()[0]
    value = output.found.reshape(-1)[first].double().item()
    where = output.name if output.wanted.numel() == 1 else f"element {first} of {output.name}"
    if value == 0:
        return (f"{where} is zero",) * 2
    if output.before is not None and value == output.before.reshape(-1)[first].double().item():
        nothing = not run.collectives and not received_by(run, fault.rank)
        short = f"{where} is unchanged"
        return short + (f": rank {fault.rank} received nothing" if nothing else ""), short
    copied = table.get(value)
    if copied is not None:
        return (f"{where} is {_named(run, fault, copied, 1)}, with nothing added",) * 2
    counts = _how_often(run, fault, output)
    if counts is None:
        strange = _with_strangers(run, fault, output)
        return (strange,) * 2 if strange else _elsewhere(run, fault, output, outputs, value)
    counted = [n for n in counts if n is not None]
    if not any(counts):
        return (f"{where} is zero",) * 2
    missing: list[int] = [r for r, n in enumerate(counts) if n == 0]
    most = max(counted)
    often = [r for r, n in enumerate(counts) if n == most > 1]
    minus = [r for r, n in enumerate(counts) if n is not None and n < 0]
    words = []
    if minus:
        words.append(f"has {_contributions(minus)} subtracted, not added")
    if missing and len(missing) == len(counted) - 1 and not often and not minus:
        words.append(f"holds the contribution of rank {counts.index(1)} only")
    elif missing:
        words.append(f"lacks {_contributions(missing)}")
    if often:
        words.append(f"has {_contributions(often)} {most} times")
    short = f"{where} {' and '.join(words)}"
    came = received_by(run, fault.rank)
    nothing = bool(missing) and not run.collectives and not came
    return short + (f": rank {fault.rank} received nothing" if nothing else ""), short


def _with_strangers(run: Run, fault: ResultFault, output: _Output) -> str | None:
    """Of a plain sum of some ranks' tensors, such as a scan: the contributions of ranks that have no share in it."""
    first = output.wrong()[0]
    shares = _shares(run, fault, output) if run.ranks <= _MOST_RANKS else None
    given = [plain(v) for args in run.args[fault.call] for _, v in views(args)[:1]]
    if shares is None or any(t.shape != output.wanted.shape for t in given):
        return None
    own = [t.reshape(-1)[first].double().item() for t in given]
    right = [s.reshape(-1)[first].double().item() for s in shares]
    strangers = [rank for rank, part in enumerate(right) if part == 0 != own[rank]]
    if any(part not in (0, whole) for part, whole in zip(right, own, strict=True)) or not strangers:
        return None
    counts = _counts(output.found.reshape(-1)[first].double().item(), own, _near(output.wanted) / 100)
    if counts is None:
        return None
    where = f"{_element(first, output.wanted)}{output.name}"
    added, minus = [r for r in strangers if counts[r] > 0], [r for r, n in enumerate(counts) if n < 0]
    words = [f"has {_contributions(added)}"] if added else []
    words += [f"has {_contributions(minus)} subtracted"] if minus else []
    missing = [r for r in range(run.ranks) if right[r] and not counts[r]]
    words += [f"lacks {_contributions(missing)}"] if missing else []
    must = [r for r in range(run.ranks) if right[r]]
    whose = _contributions(must) if must else "no rank's contribution"
    return f"{where} {' and '.join(words)}, and must hold {whose}" if words else None


def _contributions(ranks: Sequence[int]) -> str:
    return f"the contribution{'' if len(ranks) == 1 else 's'} of {name_ranks(ranks)}"


def _elsewhere(
    run: Run, fault: ResultFault, output: _Output, outputs: list[_Output], value: float
) -> tuple[str, str] | None:
    """Whether the first wrong element is the right value of another place, on this rank or on another."""
    if not math.isfinite(value):
        return None  # near nothing, and a distance to it is near everything
    where = f"{_element(output.wrong()[0], output.wanted)}{output.name}"
    places = [(output.name, output.wanted) for output in outputs]
    for rank, expected in enumerate(run.expected[fault.call]):
        if rank != fault.rank and isinstance(expected.returns, torch.Tensor):
            places.append((f"what rank {rank} must return", expected.returns))
        elif rank != fault.rank and isinstance(expected.returns, list):
            items = [(i, item) for i, item in enumerate(expected.returns) if isinstance(item, torch.Tensor)]
            places += [(f"item {i} of what rank {rank} must return", item) for i, item in items]
    for name, wanted in places:
        flat = wanted.reshape(-1).double()
        same = torch.nonzero((flat - value).abs() <= _near(wanted) * (1 + abs(value))).reshape(-1).tolist()
        if same:
            whose = "the same tensor" if wanted is output.wanted else name
            words = f"{where} holds the right value of {_element(same[0], wanted)}{whose}"
            return words, words
    return None


def _element(index: int, tensor: torch.Tensor) -> str:
    """ "element 8 (in row 2) of ", or nothing for a tensor of one element."""
    if tensor.numel() == 1:
        return ""
    row = f" (in row {index // tensor.shape[1]})" if tensor.dim() == 2 and tensor.shape[1] > 1 else ""
    return f"element {index}{row} of "


def _shares(run: Run, fault: ResultFault, output: _Output) -> list[torch.Tensor] | None:
    """Each rank's part of the wanted tensor, by the oracle with all other ranks' inputs zero; None if it is no sum of such parts."""
    given = run.args[fault.call]
    parts = []
    for rank in range(run.ranks):
        alone = [args if r == rank else zeroed(args) for r, args in enumerate(given)]
        try:
            expected = run.exercise.oracle(run.setup, alone)[fault.rank]
        except (RuntimeError, IndexError, ValueError):
            return None
        part = _same_output(expected, run.expected[fault.call][fault.rank], output.wanted)
        if part is None:
            return None
        parts.append(part)
    total = torch.stack([p.double() for p in parts]).sum(0)
    return (
        parts
        if torch.allclose(total, output.wanted.double(), rtol=_near(output.wanted), atol=_near(output.wanted))
        else None
    )


def _same_output(alone: Expected, expected: Expected, wanted: torch.Tensor) -> torch.Tensor | None:
    if expected.returns is wanted:
        return alone.returns if isinstance(alone.returns, torch.Tensor) else None
    return next((alone.changed[path] for path, value in expected.changed.items() if value is wanted), None)


def _counts(value: float, basis: Sequence[float], near: float) -> tuple[int, ...] | None:
    """How often each part was added, 0 to 2 times (to 3 of few ranks), or -1: subtracted; None if no count gives the value, or several do."""
    most = 4 if len(basis) <= 5 else 3
    return _counts_from(0, most, value, basis, near) or _counts_from(-1, most, value, basis, near)


def _counts_from(least: int, most: int, value: float, basis: Sequence[float], near: float) -> tuple[int, ...] | None:
    choices = torch.tensor(list(itertools.product(range(least, most), repeat=len(basis))), dtype=torch.float64)
    sums = choices @ torch.tensor(basis, dtype=torch.float64)
    scale = sum(abs(b) for b in basis) + 1e-300
    fits = torch.nonzero((sums - value).abs() <= near * scale).reshape(-1).tolist()
    if len(fits) != 1:
        return None
    return tuple(int(n) for n in choices[fits[0]].tolist())


# --------------------------------------------------------------------------------------- what was not added to anything


def ends_as_received(run: Run, fault: ResultFault) -> str | None:
    """With different values, of a function that adds: whether the rank ends with just what one message brought."""
    outputs = _outputs(run, fault) if fault.kind is FaultKind.VALUES else []
    told = next((words for o in outputs if o.wrong() and (words := _stored(run, fault, o))), None)
    return told[0] if told else None


def adds_another_buffer(run: Run) -> str | None:
    """With different values: whole tensors go round the ring as they must, each to every rank, and what comes is not what is added."""
    if run.setup.times != 1 or run.ranks < 2:
        return None
    for rank in range(run.ranks):
        sends = [e for e in run.sends if e.rank == rank and e.call == 0]
        own = plain(run.args[0][rank][0]).reshape(-1)
        if len(sends) < run.ranks - 1 or any(e.numel != own.numel() for e in sends):
            return None
        for step, entry in enumerate(sends[: run.ranks - 1]):
            came = (
                [own]
                if step == 0
                else [n for e in received_before(run, entry) if (n := provenance.numbers(e)) is not None]
            )
            numbers = provenance.numbers(entry)
            if numbers is None or not any(torch.equal(numbers, c.to(numbers.dtype)) for c in came):
                return None
    first = next(iter(received_by(run, 0)), None)
    if first is None:
        return None
    words = "the tensors of all other ranks come to every rank, and are not what it adds: it adds another buffer than the one received into"
    return About(words, first, kind=_NOT_ADDED)


def passed_on_as_received(run: Run) -> str | None:
    """With different values, of a function that adds: the first message that is just what its sender received before, or just its
    own tensor although something had come."""
    sent: Counter = Counter()
    for entry in run.sends:
        step = sent[entry.rank]
        sent[entry.rank] += 1
        if step >= run.ranks - 1 and entry.numel < run.setup.size:
            continue  # chunks on the way to everybody are passed on as they are
        before = received_before(run, entry)
        numbers = provenance.numbers(entry)
        if not before or numbers is None or not bool(numbers.any()):
            continue
        last, at = before[-1], run.at(entry.line)
        own = plain(run.args[entry.call][entry.rank][0]).reshape(-1)
        if entry.numel == own.numel() and torch.equal(numbers, own.to(numbers.dtype)):
            words = f"rank {entry.rank} sends its own tensor{at}, without what it received from rank {last.rank} before"
            return About(f"{words}: it must send the sum", entry, kind=_NOT_ADDED)
        received = provenance.numbers(last)
        if received is not None and torch.equal(received, numbers) and not _complete(run, entry.call, numbers):
            words = f"rank {entry.rank} sends on{at} what it received from rank {last.rank} as it came"
            return About(f"{words}: its own contribution was not added to it", entry, kind=_NOT_ADDED)
    return None


def _complete(run: Run, call: int, numbers: torch.Tensor) -> bool:
    """Whether the numbers are part of the whole sum already: then they are passed on as they are."""
    wanted = [t for e in run.expected[call] for t in (*e.changed.values(), e.returns) if isinstance(t, torch.Tensor)]
    whole = torch.cat([w.reshape(-1).double() for w in wanted])
    return bool(((whole[:, None] - numbers.double()).abs().min(0).values <= 1e-9 * (1 + numbers.double().abs())).all())
