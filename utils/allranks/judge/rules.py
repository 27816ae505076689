"""Rules on messages that several exercises share, and the walk to the first wrong step.

Each function on a run returns how the run breaks the rule, without a full stop, or None.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from allranks.base.errors import capital, name_ranks
from allranks.judge import provenance
from allranks.judge.cases import Setup, views
from allranks.judge.exercise import About, Rule, Run, in_place_of
from allranks.judge.provenance import Element
from allranks.ranks.wire import LogEntry
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.values import DTYPES, dtype_name

Needs = Callable[[Run, int, int], int]  # (run, call, rank) -> bytes


_OFF = "off by one chunk"
_MISSING = "contributions are missing"


def nbytes_of(run: Run, call: int = 0, rank: int = 0) -> int:
    """Bytes of a rank's first tensor argument."""
    view = run.args[call][rank][0]
    return view.tensor().numel() * view.base.element_size()


def writes_files(run: Run) -> str | None:
    """No rank may write files: that is no message."""
    if not run.outcome.files:
        return None
    first = run.outcome.files[0]
    return About(
        f"rank {first.rank} writes to a file{run.at(first.line)}: "
        "ranks on different machines share no files, they only send messages",
        first,
    )


def no_messages(run: Run) -> str | None:
    """The result must have come by messages."""
    if run.ranks > 1 and run.setup.size and not run.sends and not run.collectives and _must_travel(run):
        return "the result is right, but no rank sent a message; the data came another way"
    return None


def _must_travel(run: Run) -> bool:
    """Whether some rank needs bytes of others, or they of it, as far as the exercise says so."""
    carried_rule = next((rule for rule in run.exercise.rules if isinstance(rule, CarriedRule)), None)
    return carried_rule is None or any(
        needs(run, call, rank)
        for needs in (carried_rule.receives, carried_rule.sends)
        for call in range(run.setup.times)
        for rank in range(run.ranks)
    )


def tensor_bytes(run: Run, call: int, rank: int) -> int:
    """What a rank needs of the others, or they of it, if it is as much as its first tensor."""
    return nbytes_of(run, call, rank)


def but_at_the_root(run: Run, call: int, rank: int) -> int:
    """Every rank but the root needs its first tensor's bytes of the others, or they need them of it."""
    return 0 if rank == run.setup.root else nbytes_of(run, call, rank)


def nothing(run: Run, call: int, rank: int) -> int:
    """A rank needs nothing."""
    return 0


def times(count: Callable[[int], float | Fraction]) -> Needs:
    """`count(p)` times the bytes of the rank's first tensor."""
    return lambda run, call, rank: int(count(run.ranks) * nbytes_of(run, call, rank))


def numbers(count: Callable[[Setup], int]) -> Needs:
    """So many elements of the first tensor's dtype, `count(setup)`, on each rank."""
    return lambda run, call, rank: count(run.setup) * run.itemsize


@dataclass(frozen=True)
class CarriedRule(Rule):
    """The rule that the result came by messages; `receives` and `sends` give the least bytes of each rank."""

    receives: Needs = tensor_bytes
    sends: Needs = tensor_bytes


def carried(receives: Needs = tensor_bytes, sends: Needs = tensor_bytes) -> CarriedRule:
    """The rule that the result came by messages: the least bytes that each rank must receive and send in one call.

    The number of messages, their tags and times, and messages without bytes carry nothing. With provenance values each rank
    can only send, and end with, what it had or received.
    """

    def breach(run: Run) -> str | None:
        return too_few_bytes(run, receives, sends) or unexplained(run)

    return CarriedRule("carried by messages", 1, breach, essential=True, receives=receives, sends=sends)


def exchanged(needs: Needs) -> CarriedRule:
    """The same where each rank must send as much as it must receive."""
    return carried(needs, needs)


def too_few_bytes(run: Run, receives: Needs, sends: Needs) -> str | None:
    """Each rank must receive and send at least so many bytes in one call."""
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            mine = run.operations(call, rank)
            got, gave = sum(map(received_from_others, mine)), sum(map(_sent_to_others, mine))
            if receives(run, call, rank) and no_messages(run):
                return no_messages(run)
            if got < receives(run, call, rank):
                return (
                    f"rank {rank} receives {got} bytes from other ranks, but its result needs at least "
                    f"{receives(run, call, rank)}: the data must be in the messages, and an empty message carries nothing"
                )
            if gave < sends(run, call, rank):
                return (
                    f"rank {rank} sends {gave} bytes, but other ranks need at least {sends(run, call, rank)} of its own: "
                    "the data must be in the messages, and an empty message carries nothing"
                )
    return None


def received_from_others(entry: LogEntry) -> int:
    """Bytes that an operation brought its rank from other ranks."""
    if entry.kind is not OpKind.COLLECTIVE or entry.group is None:
        return entry.received_nbytes
    if len(entry.group) < 2:
        return 0
    if entry.op.startswith(("all_gather", "gather")) and entry.received_nbytes:
        return entry.received_nbytes - entry.nbytes
    if entry.op.startswith("all_to_all"):
        return entry.received_nbytes - entry.splits[entry.group.index(entry.rank)]
    if entry.op == "scatter" and entry.rank == entry.peer:
        return 0
    return entry.received_nbytes


def _sent_to_others(entry: LogEntry) -> int:
    if entry.kind is not OpKind.COLLECTIVE or entry.group is None:
        return entry.nbytes if entry.kind is OpKind.SEND else 0
    return entry.nbytes if len(entry.group) > 1 else 0


def between(run: Run, call: int) -> list[list[int]]:
    """Bytes that each rank gave each other one in all_to_alls: [sender][receiver]."""
    made = [[0] * run.ranks for _ in range(run.ranks)]
    for entry in run.collectives:
        if entry.call == call and entry.op.startswith("all_to_all") and entry.group is not None:
            for peer, nbytes in zip(entry.group, entry.splits, strict=True):
                made[entry.rank][peer] += nbytes
    return made


def unexplained(run: Run) -> str | None:
    """With provenance values: a rank must have had, or received, every contribution that it sends or ends with."""
    if run.setup.values != "provenance":
        return None
    known = [{(i, rank) for i in range(run.setup.size)} for rank in range(run.ranks)]
    for entry in run.sends:
        elements = provenance.elements_of(entry)
        if entry.numel and elements is None:
            return None  # these messages carry other numbers, of which only the amount can be judged
        known[entry.peer or 0] |= {(e.position, c) for e in elements or () for c in e.contributors}
    if run.collectives:
        return None  # what they bring is in no entry
    for entry in run.sends:
        for element in provenance.elements_of(entry) or ():
            missing = [c for c in element.contributors if (element.position, c) not in known[entry.rank]]
            if missing and element.position is not None:
                return About(
                    f"rank {entry.rank} sends element {element.position} of {name_ranks(missing)}{run.at(entry.line)}, "
                    "which it never received: the data must be in the messages",
                    entry,
                )
    for rank, result in enumerate(run.results[0]):
        wanted = run.expected[0][rank]
        found = [wanted.returns] if wanted.returns is not None else list(wanted.changed.values())
        for value in found if result is not None else ():
            for element in (provenance.read(value) or ()) if isinstance(value, torch.Tensor) else ():
                missing = [c for c in element.contributors if (element.position, c) not in known[rank]]
                if missing:
                    return (
                        f"rank {rank} ends with element {element.position} of {name_ranks(missing)}, which no message "
                        "brought it: the data must be in the messages"
                    )
    return None


def on_one_call(setup: Setup) -> bool:
    """Whether the virtual time of a run counts the rounds of one call."""
    return setup.ranks > 1 and setup.times == 1 and setup.delivery == "rendezvous"


def in_rounds(limit: Callable[[int], int], formula: str, weight: float) -> Rule:
    """The rule that messages one after the other are at most `limit(ranks)`; `formula` names it, such as "2(p-1)"."""

    def breach(run: Run) -> str | None:
        words = rounds(run, limit(run.ranks), formula)
        if words is None or no_messages(run) or (run.ranks > 2 and _common_rank(run.sends) is not None):
            return words
        more = "In each round every rank sends and receives at the same time (one batch_isend_irecv, or isend and then recv)"
        return in_place_of(words, f"{words}. {more}")

    return Rule(f"at most {formula} rounds", weight, breach, on_one_call)


def messages_at_most(run: Run, limit: int, what: str) -> str | None:
    """In one call each rank must send at most `limit` messages; `what` is the limit in words."""
    for call in range(run.setup.times):
        sent = Counter(e.rank for e in run.sends if e.call == call)
        for rank, count in sorted(sent.items()):
            if count > limit:
                first = next(e for e in run.sends if e.rank == rank)
                words = f"rank {rank} sends {count} messages{run.at(first.line)}, but {what} = {limit} are enough"
                return About(words, first, f"{count} messages", str(limit))
    return None


_PAIRS = {"complex64": "float32", "complex128": "float64"}  # torch sends complex numbers as pairs
BYTES = frozenset({"uint8", "int8"})  # numbers of another dtype may go as their bytes
WHOLE = frozenset({"int64", "int32", "int16", "uint64", "uint32", "uint16", "bool"}) | BYTES


def wrong_dtype(run: Run) -> str | None:
    """Messages must have the dtype of the first tensor argument."""
    return _other_dtype(run, [dtype_name(views(run.args[0][0])[0][1].base.dtype)], frozenset())


def in_dtype(*places: int, whole: bool = False) -> Rule:
    """The rule that values travel in the dtype of the arguments at these `places`, or as their bytes.

    With `whole` there are indices or counts too, which travel in any integer dtype. The rule has no weight and takes nothing from the
    others' share: who breaks it has most points, as with any rule.
    """
    name = "in the tensors' dtype" if places else "in an integer dtype"
    return Rule(name, 0, lambda run: other_dtype(run, *places, whole=whole))


def other_dtype(run: Run, *places: int, whole: bool = False) -> str | None:
    """How a message has another dtype than the tensors at these `places`, their bytes, or with `whole` an integer dtype."""
    found = [dtype_name(view.base.dtype) for place, view in views(run.args[0][0]) if place[0] in places]
    return _other_dtype(run, found, WHOLE if whole or not found else BYTES)


def _other_dtype(run: Run, found: Sequence[str], more: frozenset[str]) -> str | None:
    allowed = {*found, *(_PAIRS.get(kind, kind) for kind in found), *more}
    entry = next((e for e in run.outcome.log if e.dtype and e.numel and e.dtype not in allowed), None)
    return None if entry is None else _with_dtype(run, entry, found[0] if found else None, more)


def wider(run: Run, entry: LogEntry) -> str | None:
    """That a message has more bytes than it needs because its dtype is wider than that of the first argument, if it is."""
    wanted = dtype_name(next(view.base.dtype for path, view in views(run.args[0][0]) if path[0] == 0))
    sent = str(entry.dtype)
    if (sent in WHOLE) is not (wanted in WHOLE) or not _times_the_bytes(sent, wanted):
        return None
    return _with_dtype(run, entry, wanted, frozenset())


def _with_dtype(run: Run, entry: LogEntry, wanted: str | None, more: frozenset[str]) -> str:
    """What dtype a message has, and which one it must have."""
    sent, at = str(entry.dtype), run.at(entry.line)
    if wanted is None:
        words = f"rank {entry.rank} sends {sent}{at}: counts are whole numbers, so send them in an integer dtype"
        return About(words, entry, sent, "an integer dtype", "numbers in a floating dtype")
    own = "send the tensor's own dtype"
    if more >= WHOLE:
        own = "send values in the tensor's own dtype, and indices and counts in an integer dtype"
    words = f"rank {entry.rank} sends {sent}, but the tensor is {wanted}{at}{_times_the_bytes(sent, wanted)}: {own}"
    return About(words, entry, sent, wanted)


def _times_the_bytes(sent: str, wanted: str) -> str:
    """What a wider dtype costs."""
    times = DTYPES[sent].itemsize // DTYPES[wanted].itemsize if sent in DTYPES and wanted in DTYPES else 1
    return f", and {sent} has {'twice' if times == 2 else f'{times} times'} the bytes" if times > 1 else ""


def messages_in_dtype(run: Run) -> str | None:
    """There must be messages, in the dtype of the first tensor argument."""
    return no_messages(run) or wrong_dtype(run)


def ring_neighbours(run: Run) -> str | None:
    """Every message must go to a neighbour on the ring."""
    p = run.ranks
    entry = next((e for e in run.sends if (e.peer - e.rank) % p not in (1, p - 1)), None)
    if entry is None:
        return None
    centre = _common_rank(run.sends)
    if centre is not None:
        return About(
            f"every message goes through rank {centre} (rank {entry.rank} sends to rank {entry.peer}{run.at(entry.line)}): "
            f"that rank carries p-1 vectors each way. On a ring each rank sends to its two neighbours only",
            entry,
        )
    return About(
        f"rank {entry.rank} sends to rank {entry.peer}{run.at(entry.line)}, which is not its neighbour on the ring: "
        f"only ranks {(entry.rank - 1) % p} and {(entry.rank + 1) % p} are",
        entry,
        f"to rank {entry.peer}",
        f"to rank {(entry.rank - 1) % p} or {(entry.rank + 1) % p}",
    )


def _common_rank(sends: Sequence[LogEntry]) -> int | None:
    """The lowest rank that sends or receives every message, if there is one."""
    common = set.intersection(*({e.rank, e.peer} for e in sends)) if sends else set()
    return min(common) if common else None


def ring_messages(run: Run) -> str | None:
    """There must be messages, between neighbours on the ring only, in the tensor's dtype."""
    return no_messages(run) or ring_neighbours(run) or wrong_dtype(run)


def chunk_bytes(run: Run, steps_per_p: int, what: str) -> str | None:
    """Each rank must send `steps_per_p` x (p-1)/p of the vector's bytes, up to the rounding of chunks.

    `what` names that amount, such as "2(p-1)/p of the bytes".
    """
    if broken := messages_in_dtype(run):
        return broken
    p, calls = run.ranks, run.setup.times
    nbytes = nbytes_of(run)
    # tensor_split cuts whole rows, a ring over the flat vector single elements: both roundings are right
    rows = max(run.first_view.size[0], 1)
    n = nbytes // run.itemsize
    longest = max(-(-n // p), -(-rows // p) * (n // rows))
    low = steps_per_p * calls * (n - longest) * run.itemsize
    high = steps_per_p * calls * (p - 1) * longest * run.itemsize
    for rank, sent in enumerate(run.bytes_sent()):
        if low <= sent <= high:
            continue
        whole = next((e for e in run.sends if e.rank == rank and e.nbytes >= nbytes), None)
        if whole is not None and sent >= calls * (p - 1) * nbytes and sent > high:
            # a chunk that padding made longer can be as long as a short vector
            sends, chunks = "whole vectors", "p chunks"
            if whole.numel <= longest + 1:
                sends += ", or padded chunks as long as one"
                chunks += f" of at most {longest} element{'s' * (longest != 1)}"
            return About(
                f"rank {rank} sends {sends}{run.at(whole.line)}: {sent} bytes in all, but {what} ({high} bytes) "
                f"are enough. Cut the tensor into {chunks} and send one chunk in each step",
                whole,
                f"{whole.numel} elements",
                f"{longest}",
                "whole vectors instead of chunks",
            )
        lengths = [e.nbytes // run.itemsize for e in run.sends]
        most = max(lengths)
        if most > longest and most - min(lengths) > 1:
            entry = run.sends[lengths.index(most)]
            return About(
                f"chunks of unequal length: rank {entry.rank} sends a message of {most} elements{run.at(entry.line)}, "
                f"but tensor_split's longest chunk has {longest}",
                entry,
                f"{most} elements",
                f"{longest}",
                "chunks of unequal length",
            )
        much = "too many" if sent > high else "too few"
        return f"rank {rank} sends {sent} bytes, {much}: {what} are {low}" + (f" to {high}" if high > low else "")
    return None


def only_receives(run: Run, slow: int) -> str | None:
    """Rank `slow`, modulo the number of ranks, must send to nobody, unless it is the root: whom it sends to waits for it."""
    rank = slow % run.ranks
    if rank == run.setup.root:
        return None
    first = next((e for e in run.sends if e.rank == rank), None)
    if first is None:
        return None
    return About(
        f"rank {rank} is slow, and rank {first.peer} waits for what it sends{run.at(first.line)}: it must only receive",
        first,
        kind="the slow rank sends",
    )


def rounds(run: Run, limit: int, what: str) -> str | None:
    """The longest chain of messages one after the other must not exceed the limit; `what` is the limit's formula.

    The run must have had alpha = 1 and beta = 0, so that its virtual seconds are rounds.
    """
    if broken := no_messages(run):
        return broken
    took = round(run.outcome.seconds)
    if took <= limit:
        return None
    centre = _common_rank(run.sends)
    through = f", all of them through rank {centre}" if centre is not None and run.ranks > 2 else ""
    return f"{took} rounds of messages one after the other{through}, but {what} = {limit} are enough"


def calls(run: Run, operation: str, enough: str, *, least: int = 0, most: int) -> str | None:
    """In one call of the function each rank must call the collective `least` to `most` times.

    `enough` ends the sentence if a rank calls it more often, such as "one is enough".
    """
    if broken := no_messages(run):
        return broken
    times = run.setup.times
    for rank in range(run.ranks):
        mine = [e for e in run.collectives if e.rank == rank]
        if len(mine) > most * times:
            return About(f"rank {rank} {_calls(operation, len(mine))}{run.at(mine[-1].line)}: {enough}", mine[-1])
        if len(mine) < least * times:
            return (
                f"rank {rank} {_calls(operation, len(mine))}, but every rank {_calls('it', least * times, 'must call')}"
            )
    return None


def _calls(operation: str, times: int, verb: str = "calls") -> str:
    often = {1: "once"}.get(times, f"{times} times")
    return f"{verb} {operation} {often}" if times else f"never {verb} {operation}"


def reduces_other(run: Run, numels: Sequence[int], why: str) -> str | None:
    """Every collective must have one of these numbers of elements; `why` says which."""
    other = next((e for e in run.collectives if e.numel not in numels), None)
    if other is None:
        return None
    return About(f"rank {other.rank} reduces {other.numel} elements{run.at(other.line)}, but {why}", other)


def received_at_most(run: Run, limit: int, what: str) -> str | None:
    """In one call each rank must receive at most `limit` bytes; `what` is the limit's formula."""
    if broken := no_messages(run):
        return broken
    for rank in range(run.ranks):
        for call in range(run.setup.times):
            mine = run.operations(call, rank)
            total = sum(e.received_nbytes for e in mine)
            if total > limit:
                worst = max(mine, key=lambda e: e.received_nbytes)
                return About(
                    f"rank {rank} receives {total} bytes{run.at(worst.line)}, but {what} = {limit} are enough", worst
                )
    return None


def first_wrong_step(run: Run) -> str | None:
    """With provenance values: the first message that carried something wrong, by rank, step and line."""
    p = run.ranks
    sent: Counter = Counter()
    size = run.setup.size
    if astray := _added_elsewhere(run):
        return astray
    # with segments or two directions a step has several messages
    most = max(Counter(e.rank for e in run.sends).values(), default=0)
    what = "step" if most <= 2 * (p - 1) * run.setup.times else "message"
    for entry in run.sends:
        step = sent[entry.rank]
        sent[entry.rank] += 1
        elements = provenance.elements_of(entry)
        if not elements:
            continue
        at = f"rank {entry.rank}, {what} {step}{run.at(entry.line)}"
        if any(e.mixed for e in elements):
            why = _added_into(run, entry.rank, entry) or "the chunk that it received was added to another one"
            return About(
                f"{at}: it sends elements of different chunks added together. {capital(why)}: off by one chunk",
                entry,
                "different chunks, added",
                "one chunk",
                _OFF,
            )
        twice = next((r for e in elements for r, times in Counter(e.contributors).items() if times > 1), None)
        if twice is not None:
            named = "a chunk" if run.exercise.chunking == "none" else _chunk_name(elements, size, p)
            return About(
                f"{at}: it sends {named} with the contribution of rank {twice} in it more than "
                "once: what it received was added where it should be stored, or added twice",
                entry,
                f"rank {twice} more than once",
                "each rank once",
                "adds where it should store",
            )
        # if p does not divide the size, whole chunks may be padding
        if len(elements) > -size % p and not any(e.contributors for e in elements):
            words = f"{at}: it sends elements that are still zero: a buffer into which nothing was received yet"
            return About(words, entry, "zeros", "numbers", "sends a buffer that is still empty")
    return None


def _added_elsewhere(run: Run) -> str | None:
    """The first receive whose elements the rank sends next without what came: by then they must have been added to its own."""
    times = run.message_times
    sent = [(entry, elements) for entry in run.sends if (elements := provenance.elements_of(entry))]
    to: dict[tuple[int | None, int], list[tuple[LogEntry, list[Element]]]] = defaultdict(list)
    for entry, elements in sent:
        to[entry.peer, entry.call].append((entry, elements))
    for entry, held in sent:
        begun = times.get((entry.rank, entry.match))
        if begun is None or any(e.contributors != (entry.rank,) or e.mixed for e in held):
            continue
        here = {e.position for e in held}
        if len(here) == run.setup.size > 1:
            continue  # a whole vector: what is told of that has other words
        for came, read in to[entry.rank, entry.call]:
            ended = times.get((entry.rank, came.match))
            if ended is None or ended.end > begun.start or {e.position for e in read} != here:
                continue
            if any(not e.contributors or entry.rank in e.contributors for e in read):
                continue
            name = _part_name(held, run.setup.size, run.ranks)
            into = _added_into(run, entry.rank, came)
            mine = next(
                (
                    e
                    for e in run.outcome.log
                    if e.kind is OpKind.RECV and e.rank == entry.rank and e.match == came.match
                ),
                came,
            )
            words = (
                f"rank {entry.rank} received {name} from rank {came.rank}{run.at(mine.line)}, but sends {name} "
                f"with its own contribution only after that{run.at(entry.line)}: "
            )
            if into:
                return About(f"{words}{into}", mine, kind="adds to another chunk")
            words += "what came was added to another chunk, or to another tensor than the one that it sends, or was not added"
            return About(words, mine, kind="what comes is not added to its own chunk")
    return None


def _added_into(run: Run, rank: int, about: LogEntry) -> str | None:
    """Into which chunk of a rank something that it received was added, read from its messages and its result; None if that shows nowhere.

    `about` is the message that came, or one in which such a sum was sent.
    """
    size, p = run.setup.size, run.ranks
    sums = [e for e in run.sends if e.rank == rank] if about.peer == rank else [about]
    found = [(n, n.numel()) for e in sums if (n := provenance.numbers(e)) is not None]
    result = run.results[about.call][rank]
    if about.peer == rank and result is not None and result.tensors and result.tensors[0][0] is not None:
        end = result.tensors[0][0].reshape(-1)
        found += [(end[a:b], b - a) for a, b in provenance.bounds(size, p) if len(end) == size]
    if about.peer == rank and result is not None and isinstance(result.returned, torch.Tensor):
        found.append((result.returned.reshape(-1), result.returned.numel()))
    arrived = [about] if about.peer == rank else [e for e in run.sends if e.peer == rank and e.call == about.call]
    for came in arrived:
        part, read = provenance.numbers(came), provenance.elements_of(came)
        for numbers, count in found:
            if part is None or not read or count != part.numel() or numbers.dtype != part.dtype:
                continue
            own = provenance.read(numbers - part)
            if own and all(e.position is not None and e.contributors == (rank,) for e in own):
                into, of = _part_name(own, size, p), _part_name(read, size, p)
                if into != of:
                    return f"what came from rank {came.rank} was for {of}, but it was added to {into}"
    return None


def _part_name(elements: Sequence[Element], size: int, ranks: int) -> str:
    """ "chunk 2" for the whole chunk, else "elements 3 to 4"."""
    held = sorted(e.position for e in elements if e.position is not None)
    for chunk, (a, b) in enumerate(provenance.bounds(size, ranks)):
        if held == list(range(a, b)):
            return f"chunk {chunk}"
    return f"element {held[0]}" if len(held) == 1 else f"elements {held[0]} to {held[-1]}"


def _chunk_name(elements: Sequence[Element], size: int, ranks: int) -> str:
    chunks = provenance.chunks_of(elements, size, ranks)
    return f"chunk {chunks[0]}" if len(chunks) == 1 else "a message"


def wrong_ring_step(run: Run) -> str | None:
    """For a chunked ring of 2(p-1) messages a rank: the first step that sends the wrong chunk."""
    p, size = run.ranks, run.setup.size
    sent: Counter = Counter()
    if Counter(e.rank for e in run.sends) != Counter(dict.fromkeys(range(p), 2 * (p - 1))):
        return None
    for entry in run.sends:
        step = sent[entry.rank]
        sent[entry.rank] += 1
        elements = provenance.elements_of(entry)
        if not elements or any(e.position is None for e in elements):
            continue
        held = sorted(set(elements[0].contributors))
        wanted = min(step + 1, p)
        if len(held) == wanted or not held:
            continue
        at = f"rank {entry.rank}, step {step}{run.at(entry.line)}"
        holds = f"{_chunk_name(elements, size, p)}, which holds only the contribution{'' if len(held) == 1 else 's'} of {name_ranks(held)}"
        if step < p - 1:
            return About(
                f"{at}: it sends {holds}, but it must send the chunk that it added last, which holds {wanted} "
                "contributions: off by one chunk",
                entry,
                f"holds {name_ranks(held)} only",
                f"{wanted} contributions",
                _OFF,
            )
        return About(
            f"{at}, step {step - p + 1} of the all-gather: it sends {holds}; "
            "send the chunk that is complete: off by one chunk",
            entry,
            f"holds {name_ranks(held)} only",
            "all ranks' contributions",
            _OFF,
        )
    return None


def wrong_end_state(run: Run, rank: int, call: int = 0) -> str | None:
    """With provenance values: what the first wrong element of a rank's in-place result holds."""
    result, p = run.results[call][rank], run.ranks
    if result is None or result.tensors[0][0] is None:
        return None
    elements = provenance.read(result.tensors[0][0])
    if elements is None:
        return None
    for index, element in enumerate(elements):
        if element.position == index and Counter(element.contributors) == Counter(range(p)):
            continue
        chunk = next(c for c, (a, b) in enumerate(provenance.bounds(run.setup.size, p)) if a <= index < b)
        where = f"index {index}" if run.exercise.chunking == "none" else f"chunk {chunk} (index {index})"
        at = f"at the end rank {rank}, {where}"
        if not element.contributors:
            first = next((i for i, e in enumerate(elements) if e.position == 0), None)
            if index == 0 and first is not None and run.setup.size % p:
                return (
                    f"{at}: it is zero, and element 0 of the vector is at index {first}: put padding behind the vector"
                )
            return f"{at}: it is zero: nothing was received into it, or what was received was not stored"
        if element.position is None:
            return About(f"{at}: elements of different chunks were added together: off by one chunk", None, kind=_OFF)
        if element.position != index:
            return About(
                f"{at}: it holds element {element.position} of the vector: "
                "the chunk was stored in the wrong place: off by one chunk",
                None,
                kind=_OFF,
            )
        counts = Counter(element.contributors)
        twice = next((r for r, times in counts.items() if times > 1), None)
        if twice is not None:
            words = f"{at}: the contribution of rank {twice} was added {counts[twice]} times"
            return About(words, None, kind="adds a contribution more than once")
        missing = [r for r in range(p) if r not in counts]
        if len(missing) == 1:
            return About(f"{at}: the contribution of {name_ranks(missing)} is missing", None, kind=_MISSING)
        return About(f"{at}: the contributions of {name_ranks(missing)} are missing", None, kind=_MISSING)
    return None
