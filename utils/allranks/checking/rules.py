"""Rules of the wire that several exercises share, each a breach in words or None, and the walk to the first wrong step."""

from __future__ import annotations

from collections import Counter

from allranks.checking import provenance
from allranks.checking.exercise import Run


def nbytes_of(run: Run, call: int = 0, rank: int = 0) -> int:
    """Bytes of a rank's first tensor argument."""
    view = run.args[call][rank][0]
    return view.tensor().numel() * view.base.element_size()


def through_files(run: Run) -> str | None:
    """A rank that writes files: that is no message."""
    if not run.outcome.files:
        return None
    first = run.outcome.files[0]
    return f"rank {first.rank} writes to a file{run.at(first.line)}: ranks on different machines share no files, only messages"


def went_round_the_wire(run: Run) -> str | None:
    """The right result without any message."""
    if run.ranks > 1 and run.setup.size and not run.sends and not run.collectives:
        return "the result is right but no message carried it: it went round the wire"
    return None


def other_dtype(run: Run) -> str | None:
    """A message in another dtype than the input's."""
    wanted = str(run.args[0][0][0].base.dtype).removeprefix("torch.")
    as_pairs = {"complex64": "float32", "complex128": "float64"}.get(wanted)  # torch sends complex numbers as pairs
    for entry in run.outcome.log:
        if entry.dtype and entry.numel and entry.dtype not in (wanted, as_pairs):
            return f"rank {entry.rank} sends {entry.dtype} where the tensor is {wanted}{run.at(entry.line)}: keep the dtype on the wire"
    return None


def ring_neighbours(run: Run) -> str | None:
    """A message to a rank that is no neighbour on the ring."""
    p = run.ranks
    strange = [e for e in run.sends if (e.peer - e.rank) % p not in (1, p - 1)]
    if not strange:
        return None
    entry = strange[0]
    centre = set.intersection(*({e.rank, e.peer} for e in run.sends))
    if centre:
        return (
            f"every message goes through rank {min(centre)} (rank {entry.rank} sends to rank {entry.peer}{run.at(entry.line)}): "
            f"that rank carries p-1 vectors each way. On a ring each rank talks to its two neighbours only"
        )
    return (
        f"rank {entry.rank} sends to rank {entry.peer}{run.at(entry.line)}, which is not its neighbour on the ring: "
        f"only ranks {(entry.rank - 1) % p} and {(entry.rank + 1) % p} are"
    )


def round_the_ring(run: Run) -> str | None:
    """The right result without messages, or by others than between neighbours on the ring in the tensor's dtype."""
    return went_round_the_wire(run) or ring_neighbours(run) or other_dtype(run)


def chunk_bytes(run: Run, steps_per_p: int, what: str) -> str | None:
    """Each rank must send `steps_per_p` x (p-1)/p of the vector's bytes, up to the rounding of chunks."""
    missing = went_round_the_wire(run) or other_dtype(run)
    if missing:
        return missing
    p, calls = run.ranks, run.setup.times
    nbytes = nbytes_of(run)
    # tensor_split cuts whole rows, a ring over the flat vector single elements: both roundings are right
    rows = max(run.args[0][0][0].size[0], 1)
    n = nbytes // run.itemsize
    longest = max(-(-n // p), -(-rows // p) * (n // rows))
    low = steps_per_p * calls * (n - longest) * run.itemsize
    high = steps_per_p * calls * (p - 1) * longest * run.itemsize
    for rank, sent in enumerate(run.bytes_sent()):
        if low <= sent <= high:
            continue
        whole = next((e for e in run.sends if e.rank == rank and e.nbytes >= nbytes), None)
        if whole is not None and sent >= calls * (p - 1) * nbytes and sent > high:
            return (
                f"rank {rank} sends whole vectors{run.at(whole.line)}: {sent} bytes in all, where {what} ({high} bytes) do. "
                "Cut the tensor into p chunks and send one chunk a step"
            )
        lengths = [e.nbytes // run.itemsize for e in run.sends]
        most = max(lengths)
        if most > longest and most - min(lengths) > 1:
            entry = run.sends[lengths.index(most)]
            return (
                f"chunks of unequal length: rank {entry.rank} sends a message of {most} elements{run.at(entry.line)}, "
                f"where tensor_split's longest chunk has {longest}"
            )
        much = "too many" if sent > high else "too few"
        return f"rank {rank} sends {sent} bytes, {much}: {what} are {low}" + (f" to {high}" if high > low else "")
    return None


def rounds(run: Run, limit: int, what: str) -> str | None:
    """The longest chain of messages one after the other, with alpha = 1 and beta = 0, must not exceed the limit."""
    missing = went_round_the_wire(run)
    if missing:
        return missing
    took = round(run.outcome.seconds)
    if took <= limit:
        return None
    centre = set.intersection(*({e.rank, e.peer} for e in run.sends)) if run.sends else set()
    through = f", all of them through rank {min(centre)}" if centre and run.ranks > 2 else ""
    return f"{took} rounds of messages one after the other{through}, where {what} = {limit} are enough"


def calls(run: Run, operation: str, enough: str, *, least: int = 0, most: int) -> str | None:
    """In one call of the function each rank must call its collective `least` to `most` times; `enough` says so to who calls it oftener."""
    missing = went_round_the_wire(run)
    if missing:
        return missing
    times = run.setup.times
    for rank in range(run.ranks):
        mine = [e for e in run.collectives if e.rank == rank]
        if len(mine) > most * times:
            return f"rank {rank} calls {operation} {_often(len(mine))}{run.at(mine[-1].line)}: {enough}"
        if len(mine) < least * times:
            return f"rank {rank} calls {operation} {_often(len(mine))}, where every rank must call it {_often(least * times)}"
    return None


def _often(times: int) -> str:
    return {0: "not at all", 1: "once"}.get(times, f"{times} times")


def received_at_most(run: Run, limit: int, what: str) -> str | None:
    """What collectives brought each rank, in bytes, must not exceed the limit in one call."""
    missing = went_round_the_wire(run)
    if missing:
        return missing
    for rank in range(run.ranks):
        for call in range(run.setup.times):
            mine = [e for e in run.outcome.log if e.rank == rank and e.call == call]
            total = sum(e.received_nbytes for e in mine)
            if total > limit:
                worst = max(mine, key=lambda e: e.received_nbytes)
                return f"rank {rank} receives {total} bytes{run.at(worst.line)}, where {what} = {limit} are enough"
    return None


def first_wrong_step(run: Run) -> str | None:
    """With provenance values: the first message that carried something wrong, by rank, step and line."""
    p = run.ranks
    sent: Counter = Counter()
    size = run.setup.size
    for entry in run.sends:
        step = sent[entry.rank]
        sent[entry.rank] += 1
        elements = provenance.cargo(entry)
        if not elements:
            continue
        at = f"rank {entry.rank}, step {step}{run.at(entry.line)}"
        chunks = provenance.chunks_of(elements, size, p)
        chunk = f"chunk {chunks[0]}" if len(chunks) == 1 else "a payload"
        if any(e.mixed for e in elements):
            return f"{at}: what it sends holds elements of different chunks added together. The chunk that came was added to another one: off by one chunk"
        twice = next((r for e in elements for r, times in Counter(e.bag).items() if times > 1), None)
        if twice is not None:
            return f"{at}: it sends {chunk} with the contribution of rank {twice} in it more than once: what came was added where it should be stored, or added twice"
        # where p does not divide the size, whole chunks may be padding
        if len(elements) > -size % p and not any(e.bag for e in elements):
            return f"{at}: it sends elements that are still zero: a buffer into which nothing was received yet"
    return None


def ring_steps(run: Run) -> str | None:
    """For a chunked ring of 2(p-1) messages a rank: the first step that sends the wrong chunk."""
    p, size = run.ranks, run.setup.size
    sent: Counter = Counter()
    if Counter(e.rank for e in run.sends) != Counter(dict.fromkeys(range(p), 2 * (p - 1))):
        return None
    for entry in run.sends:
        step = sent[entry.rank]
        sent[entry.rank] += 1
        elements = provenance.cargo(entry)
        if not elements or any(e.position is None for e in elements):
            continue
        held = set(elements[0].bag)
        wanted = min(step + 1, p)
        if len(held) == wanted:
            continue
        at = f"rank {entry.rank}, step {step}{run.at(entry.line)}"
        chunks = provenance.chunks_of(elements, size, p)
        chunk = f"chunk {chunks[0]}" if len(chunks) == 1 else "a payload"
        ranks = ", ".join(map(str, sorted(held)))
        if step < p - 1:
            return f"{at}: it sends {chunk} with the contributions of ranks {ranks} only, but should pass on the chunk that it added last, with {wanted}: off by one chunk"
        return f"{at}, step {step - p + 1} of the all-gather: it sends {chunk}, which holds the contributions of ranks {ranks} only; send the chunk that is complete: off by one chunk"
    return None


def end_state(run: Run, rank: int, call: int = 0) -> str | None:
    """With provenance values: what the first wrong element of a rank's in-place result holds."""
    result, p = run.results[call][rank], run.ranks
    if result is None or result.tensors[0][0] is None:
        return None
    elements = provenance.read(result.tensors[0][0])
    if elements is None:
        return None
    for index, element in enumerate(elements):
        if element.position == index and Counter(element.bag) == Counter(range(p)):
            continue
        chunk = next(c for c, (a, b) in enumerate(provenance.bounds(run.setup.size, p)) if a <= index < b)
        at = f"at the end rank {rank}, chunk {chunk} (index {index})"
        if not element.bag:
            first = next((i for i, e in enumerate(elements) if e.position == 0), None)
            if index == 0 and first is not None and run.setup.size % p:
                return f"{at}: it is zero, and element 0 of the vector is at index {first}: padding belongs behind the vector"
            return f"{at}: it is zero: nothing was received into it, or what came was not stored"
        if element.position is None:
            return f"{at}: elements of different chunks were added together: off by one chunk"
        if element.position != index:
            return f"{at}: it holds element {element.position} of the vector: the chunk was stored in the wrong place: off by one chunk"
        counts = Counter(element.bag)
        twice = [r for r, times in counts.items() if times > 1]
        if twice:
            return f"{at}: the contribution of rank {twice[0]} was added {counts[twice[0]]} times"
        lacking = ", ".join(str(r) for r in range(p) if r not in counts)
        return f"{at}: the contributions of ranks {lacking} are missing"
    return None
