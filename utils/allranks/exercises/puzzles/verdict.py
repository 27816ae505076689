"""From a run to a verdict: what is wrong first, in a sentence, with its line and its cause's code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from allranks.base.errors import listed, name_ranks
from allranks.exercises.puzzles.moves import Moves, Wrong, first_wrong_copy, first_wrong_sum
from allranks.exercises.puzzles.program import Fault
from allranks.exercises.puzzles.ranks import Run
from allranks.exercises.puzzles.table import Puzzle
from allranks.exercises.puzzles.vector import AWAITED, RESERVED, Vector, places
from allranks.judge.causes import Cause, Code, cause
from allranks.ranks.wire.failures import DeadlockCause, Failure, FailureKind
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.wait import outermost

_COUNTED = dict(enumerate("no one two three four five six seven eight".split()))
CLOSE = 1e-4


@dataclass(frozen=True)
class Told:
    """What is wrong: its cause, the sentence, the line, a second sentence, and the first wrong move if there is one."""

    cause: Cause
    headline: str
    line: int | None = None
    note: str = ""
    wrong: Wrong | None = None


# ---------------------------------------------------------------------------------------------- a run that failed


def of_fault(fault: Fault) -> Told:
    """Code that can't be read, or has no such function."""
    return Told(cause(Code.FAILURE, failed=fault.kind), fault.sentence, fault.line)


def of_failure(failure: Failure, run: Run) -> Told:
    """A run that stood still, or in which a rank failed."""
    found = cause(Code.FAILURE, failed=failure.kind, waits=failure.cause, error=failure.error, op=failure.op)
    line, messages = failure.line, len(run.messages())
    known = f"Known at once, after {messages} message{'' if messages == 1 else 's'}; no time ran out."
    place = f"Rank {failure.rank}" + (f", line {line}," if line else "")
    match failure.kind:
        case FailureKind.DEADLOCK if failure.cycle:
            plain = failure.cause in (
                DeadlockCause.SENDS_FIRST,
                DeadlockCause.RECEIVES_FIRST,
                DeadlockCause.SENDS_AWAITED_FIRST,
            )
            return Told(found, _circle(failure, run), line, known if plain else f"{failure.advice} {known}")
        case FailureKind.DEADLOCK | FailureKind.LEFT_EARLY:
            return Told(found, failure.message, line, known)
        case FailureKind.CPU_LIMIT:
            return Told(found, f"{place} {_said(run, failure)}", line)
        case FailureKind.IMPORT:
            return Told(found, f"Line {line}: {_said(run, failure)}." if line else f"{_said(run, failure)}.", line)
        case FailureKind.EXCEPTION:
            if failure.error == "NotImplementedError":
                return Told(found.with_fields(unwritten=True), "This is not written yet.", line)
            return Told(found, _raised(failure, place), line, _after(messages))
        case FailureKind.EXITED:
            return Told(found, f"{place} ends the program; return from the function instead.", line)
        case FailureKind.CHANGED_BEFORE_WAIT | FailureKind.NEVER_WAITED | FailureKind.UNMATCHED:
            return Told(found, failure.message, line, _after(messages))
    return Told(found, failure.message, line)


def _said(run: Run, failure: Failure) -> str:
    fault = run.router.first_fault()
    return fault.message if fault is not None else failure.message


def _after(messages: int) -> str:
    return f"{messages} message{' was' if messages == 1 else 's were'} received before." if messages else ""


def _raised(failure: Failure, place: str) -> str:
    text = failure.error_text.rstrip(".")
    if failure.misuse is not None:
        return f"{place} can't do that: {text}."
    return f"{place} raises {failure.error}{': ' + text if text else ''}."


def _circle(failure: Failure, run: Run) -> str:
    """All four wait in send, in a circle."""
    inside = [w for w in failure.waits if w.rank in failure.cycle]
    everybody = len(inside) == len(failure.waits)
    ranks = [w.rank for w in inside]
    who = (
        f"All {_COUNTED.get(len(inside), len(inside))}"
        if everybody and len(inside) > 2
        else name_ranks(ranks).capitalize()
    )
    who = "Both ranks" if everybody and len(inside) == 2 else who
    calls = {op.called for r in ranks if (op := run.router.ranks[r].on) is not None}
    whom = {OpKind.SEND: "a receiver", OpKind.RECV: "a sender"}
    kinds = {w.kind for w in inside}
    if len(calls) == 1 and len(kinds) == 1:
        call = calls.pop()
        where = f"for their {call}" if call in ("isend", "irecv") else f"in {call}"
        return f"{who} wait {where}, in a circle: each for {whom[kinds.pop()]} that is itself waiting."
    parts = [f"rank {w.rank} for rank {w.peer} in {w.op}" for w in inside[:4]]
    return f"{who} wait for each other: {'; '.join(parts)}{' ...' if len(inside) > 4 else ''}."


# ------------------------------------------------------------------------------------------------- wrong values


def values_of(result: Any) -> list[float] | None:
    """The numbers of a result, or None if it is none."""
    if isinstance(result, Vector):
        return result.values
    if isinstance(result, bool):
        return None
    try:
        if isinstance(result, int | float):
            return [float(result)]
        if isinstance(result, list | tuple) and all(isinstance(v, Vector | int | float) for v in result):
            return [v for one in result for v in (one.values if isinstance(one, Vector) else [float(one)])]
    except OverflowError:  # a whole number of hundreds of digits
        return [math.inf]
    return None


def result_of(puzzle: Puzzle, run: Run, rank: int) -> Any:
    """What the rank returned; x, if it returned nothing and need not."""
    result = run.results[rank]
    return run.args[rank] if result is None and not puzzle.returns else result


def is_right(found: Any, wanted: list[float]) -> bool:
    """Whether a result has these numbers."""
    values = values_of(found)
    if values is None or len(values) != len(wanted):
        return False
    return all(math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-12) for a, b in zip(values, wanted, strict=True))


def wrong_ranks(puzzle: Puzzle, run: Run, wanted: list[list[float]]) -> list[int]:
    """The ranks that end with other numbers than the right ones."""
    return [rank for rank, right in enumerate(wanted) if not is_right(result_of(puzzle, run, rank), right)]


def of_values(puzzle: Puzzle, run: Run, made: Moves, x: list[list[float]]) -> Told:
    """Why the results are wrong, of a run that has some."""
    wanted = puzzle.expected(x)
    results = [result_of(puzzle, run, rank) for rank in range(made.ranks)]
    wrong = wrong_ranks(puzzle, run, wanted)
    if (other := _of_another_kind(puzzle, results, wrong, wanted)) is not None:
        return other
    if made.ranks > 1 and not run.router.log:
        return Told(cause(Code.NO_MESSAGE), "No rank sends a message, so no rank has the others' numbers.")
    move = None
    if puzzle.kind == "sum":
        move = first_wrong_sum(made)
    elif puzzle.kind == "copy":
        move = first_wrong_copy(made, puzzle.source)
    if move is not None:
        return _of_move(puzzle, made, move)
    if puzzle.id == "softmax":
        return _of_softmax(results, wrong[0], x, wanted)
    if puzzle.id == "straggler":
        return _of_straggler(results, x, int(wanted[0][0]))
    return _of_end(puzzle, made, results, wrong, wanted)


def _of_another_kind(puzzle: Puzzle, results: list[Any], wrong: list[int], wanted: list[list[float]]) -> Told | None:
    """Nothing came back, or something that is no vector, or one of another size."""
    for rank in wrong:
        result = results[rank]
        if result is None:
            who = "Every rank returns" if len(wrong) == len(results) else f"Rank {rank} returns"
            return Told(cause(Code.NOTHING_RETURNED), f"{who} nothing; {puzzle.function} must return its result.")
        values = values_of(result)
        if values is None:
            return Told(
                cause(Code.RESULT, seen="returned"), f"Rank {rank} returns a {type(result).__name__}, not a vector."
            )
        if len(values) != len(wanted[rank]):
            many = f"{len(values)} number{'' if len(values) == 1 else 's'}"
            return Told(
                cause(Code.RESULT, seen="shape"), f"Rank {rank} ends with {many}; it should have {len(wanted[rank])}."
            )
    return None


def _chunk_words(made: Moves, move: Any) -> str:
    chunks = made.chunks_of(move)
    if len(made.cuts) <= 2 or not chunks:
        return "its numbers" if not chunks else "a vector"
    if len(chunks) == len(made.cuts) - 1:
        return "all of x"
    return f"chunk {chunks[0]}" if len(chunks) == 1 else f"chunks {', '.join(map(str, chunks))}"


def _numbers_of(ranks: list[int], own: int) -> str:
    """ "its own numbers", "the numbers of ranks 0 and 1"."""
    if ranks == [own]:
        return "its own numbers"
    return f"the numbers of {name_ranks(sorted(set(ranks)))}" if ranks else "nothing"


def _steps_before(made: Moves, step: int) -> str:
    """What is right before the first wrong move."""
    if step == 0:
        return "It is in the first step."
    before = [move for move in made.moves if move.step < step]
    if any(move.how == "other" for move in before):
        all_of_it = all(move.how == "other" for move in before)
        return "What came in the steps before was not added to x, nor stored in it." if all_of_it else ""
    said = "Step 1 is right" if step == 1 else f"Steps 1 to {step} are right"
    states = [made.state(rank, made.before(step, rank)) for rank in range(made.ranks)]
    complete = {sum(whose == list(range(made.ranks)) for whose in state) for state in states}
    if len(made.cuts) > 2 and len(complete) == 1 and (count := complete.pop()):
        chunks = "one complete chunk" if count == 1 else f"{count} complete chunks"
        return f"{said}: each rank has {chunks}."
    return f"{said}."


def _of_move(puzzle: Puzzle, made: Moves, found: Wrong) -> Told:
    move = found.move
    src, dst = move.send.rank, move.send.peer or 0
    sent, received = outermost(move.send.line), outermost(move.send.partner.line) if move.send.partner else None
    note, what = _steps_before(made, move.step), _chunk_words(made, move)
    whose = made.sources(move.marks)
    origin: Callable[[str], Cause] = lambda kind: cause(Code.ORIGIN, kind=kind)  # noqa: E731
    match found.why:
        case "sends a buffer that is still empty":
            return Told(
                origin(found.why), f"Rank {src} sends a vector into which nothing was written yet.", sent, note, found
            )
        case "reads early":
            told = f"Rank {src} sends what an irecv is to fill, before wait(): what comes is not in it yet."
            return Told(cause(Code.READ_EARLY), told, sent, note, found)
        case "mixed":
            told = f"Rank {src} sends numbers of different places added together."
            return Told(origin("off by one chunk"), told, sent, note, found)
        case "twice":
            twice = next(r for r in whose if whose.count(r) > 1)
            told = f"Rank {src} sends {what} in which the numbers of rank {twice} are added more than once."
            return Told(origin("adds a contribution twice"), told, sent, note, found)
        case "elsewhere":
            place = made.chunk(move.landed or 0)
            does = "adds" if move.how == "add" else "stores"
            to = f"in its chunk {place}" if does == "stores" else f"to its chunk {place}"
            if len(made.cuts) <= 2 or place in made.chunks_of(move):
                to = "at another place"
            return Told(
                origin("off by one chunk"), f"Rank {dst} {does} {what} of rank {src} {to}.", received, note, found
            )
        case "again":
            there = [p // made.size for p in places(move.before)]
            both = next(r for r in whose if r in there)
            has = "its own numbers" if both == dst else f"the numbers of rank {both}"
            told = f"Rank {dst} adds {what} of rank {src}, with {has} in it, which it has already: they count twice."
            return Told(origin("adds a contribution twice"), told, sent, note, found)
        case "incomplete":
            if len(made.cuts) > 2:
                told = f"Rank {src} hands out {what}, which holds only {_numbers_of(whose, src)}."
            else:
                lost = sorted({p // made.size for p in places(move.before)} - set(whose))
                told = f"Rank {dst} stores what rank {src} sends in place of {_numbers_of(lost, dst)}, which are lost."
            return Told(origin("hands out what is not complete"), told, sent, note, found)
        case _:
            wanted = f"rank {puzzle.source}'s message" if puzzle.source is not None else "its own vector"
            told = f"Rank {src} sends {_numbers_of(whose, src)}, not {wanted}."
            if not whose:
                told = f"Rank {src} sends a vector into which nothing was written yet."
            return Told(origin("sends something else"), told, sent, note, found)


def _of_end(puzzle: Puzzle, made: Moves, results: list[Any], wrong: list[int], wanted: list[list[float]]) -> Told:
    """Whose numbers the first wrong rank ends without, or has twice."""
    p, rank = made.ranks, wrong[0]
    at = f"Rank {rank} ends"
    if factor := _factor(results, wanted):
        return Told(
            cause(Code.FACTOR, thing="each number is", value=factor),
            f"Every rank's numbers are {factor} times the right ones.",
        )
    marks = results[rank].marks if isinstance(results[rank], Vector) else []
    if any(m & AWAITED for m in marks):
        told = (
            f"{at} with numbers that it read before they were there: what irecv receives is in its vector after wait()."
        )
        return Told(cause(Code.READ_EARLY), told)
    if any(m & RESERVED for m in marks) or any(math.isnan(v) for v in values_of(results[rank]) or ()):
        return Told(
            cause(Code.NOT_A_NUMBER), f"{at} with numbers that nobody has written: a vector of empty or empty_like."
        )
    received = {move.send.peer for move in made.moves if move.how != "lost"}
    own = [r for r in wrong if isinstance(results[r], Vector) and made.sources(results[r].marks) == [r]]
    if not puzzle.returns and len(own) == p and received == set(range(p)):
        new, old = (
            ("clone() and c[i] + new make", "c[i] += new") if puzzle.chunked else ("x = x + new makes", "x += new")
        )
        vector = "new vectors" if puzzle.chunked else "a new vector"
        told = f"On every rank x is as it was: {new} {vector}, {old} changes x. Or return the result."
        return Told(cause(Code.NOTHING_CHANGED), told)
    if p > 2 and len(wrong) == p - 1 and puzzle.kind == "sum" and not puzzle.returns:
        only = next(r for r in range(p) if r not in wrong)
        return Told(
            cause(Code.ONLY_ONE_HAS_IT, ranks=(only,)), f"Only rank {only} has the sum; every rank must end with it."
        )
    if puzzle.kind == "copy":
        source = puzzle.source if puzzle.source is not None else (rank - 1) % p
        if rank in own and rank not in received:
            without = [r for r in own if r not in received]
            told = f"{name_ranks(without).capitalize()} received nothing, and should have the numbers of rank {source}."
            return Told(cause(Code.RECEIVED_NOTHING, ranks=tuple(without)), told)
        if rank in own:
            that = f"that of rank {source}" if puzzle.source is not None else "what came from the left"
            told = f"{name_ranks(own, p).capitalize()} received, but {'return their' if len(own) > 1 else 'returns its'} own vector, not {that}."
            return Told(cause(Code.ORIGIN, kind="ends with its own numbers"), told)
        told = f"{at} with {_numbers_of(made.sources(marks), rank)}; it should have the numbers of rank {source}."
        return Told(cause(Code.ORIGIN), told)
    tail = made.size - made.size % p
    if puzzle.chunked and len(marks) == made.size and made.size % p and all(is_whole(made, m) for m in marks[:tail]):
        told = f"{at} without the sum of the last {made.size % p} of {made.size} numbers: p = {p} does not divide {made.size}."
        return Told(cause(Code.REST_LEFT_OUT, what="p", named="p"), told)
    if puzzle.id == "half":
        return _of_own_chunk(made, rank, marks)
    for chunk, (start, end) in enumerate(pairwise(made.cuts)):
        if end > start and puzzle.chunked and not all(is_whole(made, m) for m in marks[start:end]):
            if told_of := _not_in_x(made, rank, chunk):
                return told_of
        whose, what = made.sources(marks[start:end]), f"chunk {chunk}" if len(made.cuts) > 2 else "x"
        if missing := _of_sources(whose, p, f"{at} with {'an ' * (what == 'x')}{what}") if end > start else None:
            return missing
    told = f"{at} with other numbers: those of every rank are in them, each once, but they are not just added up."
    return Told(cause(Code.ORIGIN, kind="not added up"), told)


def _not_in_x(made: Moves, rank: int, chunk: int) -> Told | None:
    """The rank sent this chunk, or received it, when it was complete, but x does not have it."""
    size, at = made.cuts[chunk + 1] - made.cuts[chunk], f"Rank {rank} ends without the sum of chunk {chunk} in x"
    missed = cause(Code.ORIGIN, kind="not written into x")
    for move in made.moves:
        whole = (
            len(move.marks) == size and made.chunks_of(move) == [chunk] and all(is_whole(made, m) for m in move.marks)
        )
        if whole and move.send.rank == rank:
            why = "though it sends it on: c[i] = c[i] + new makes a new vector, c[i] += new adds in x"
            return Told(missed, f"{at}, {why}.", outermost(move.send.line))
        if whole and move.send.peer == rank and move.send.partner is not None:
            return Told(
                missed, f"{at}, though it receives it: store there what comes.", outermost(move.send.partner.line)
            )
    return None


def is_whole(made: Moves, marks: int) -> bool:
    """Whether an element is the sum over all ranks, each once."""
    found = places(marks)
    return len(found) == made.ranks and set(found.values()) == {1} and len({p % made.size for p in found}) == 1


def _of_sources(whose: list[int], p: int, at: str) -> Told | None:
    """Which ranks' numbers are missing, or there twice."""
    missing = [r for r in range(p) if r not in whose]
    if missing:
        told = f"{at} that lacks {_numbers_of(missing, -1)}."
        return Told(cause(Code.ORIGIN, kind="contributions are missing"), told)
    twice = next((r for r in whose if whose.count(r) > 1), None)
    if twice is None:
        return None
    return Told(
        cause(Code.ORIGIN, kind="adds a contribution twice"),
        f"{at} in which the numbers of rank {twice} are added more than once.",
    )


def _of_own_chunk(made: Moves, rank: int, marks: list[int]) -> Told:
    """A reduce-scatter that returns another chunk, or one that is not complete while another one is."""
    chunks = sorted({made.chunk(place) for m in marks for place in places(m)})
    named = f"chunk {chunks[0]}" if len(chunks) == 1 else "chunks " + " and ".join(map(str, chunks))
    last = made.run.pictures[rank][-1] if made.run.pictures[rank] else None
    complete = [c for c, whose in enumerate(made.state(rank, last)) if whose == list(range(made.ranks))]
    told = _of_sources(made.sources(marks), made.ranks, f"Rank {rank} returns {named}")
    if told is not None and complete and chunks == [rank]:
        instead = (
            f"Rank {rank} returns {named}, which is not complete; the one that it completes is chunk {complete[0]}."
        )
        return Told(cause(Code.ORIGIN, kind="off by one chunk"), instead)
    if told is None and chunks and chunks != [rank]:
        instead = f"Rank {rank} returns the sum of {named}, not of chunk {rank}."
        return Told(cause(Code.ORIGIN, kind="off by one chunk"), instead)
    return told or Told(cause(Code.RESULT, seen="values"), f"Rank {rank} returns other numbers than the right ones.")


def _factor(results: list[Any], wanted: list[list[float]]) -> str:
    """By how much every number is too large or too small, if it is the same for all."""
    ratios = [
        a / b
        for result, right in zip(results, wanted, strict=True)
        for a, b in zip(values_of(result) or [], right, strict=False)
        if b
    ]
    if not ratios or not all(math.isclose(r, ratios[0], rel_tol=CLOSE) for r in ratios) or math.isclose(ratios[0], 1):
        return ""
    for below in range(1, 9):
        above = ratios[0] * below
        if math.isclose(above, round(above), rel_tol=CLOSE) and round(above):
            return f"{round(above)}/{below}" if below > 1 else str(round(above))
    return ""


def _of_softmax(results: list[Any], rank: int, x: list[list[float]], wanted: list[list[float]]) -> Told:
    """What is wrong with a softmax."""
    values = values_of(results[rank]) or []
    if any(math.isnan(v) for v in values):
        why = "exp of a large number is infinite, and infinite over infinite is NaN. First subtract the largest number of all ranks"
        return Told(cause(Code.NOT_A_NUMBER), f"Rank {rank} returns NaN: {why}.")
    own = sum(wanted[rank])
    if own and all(math.isclose(a, b / own, rel_tol=1e-3) for a, b in zip(values, wanted[rank], strict=True)):
        told = f"Rank {rank} returns the softmax of its own part: its numbers add up to 1, but those of all ranks must."
        return Told(cause(Code.ORIGIN, kind="of its own part only"), told)
    by_own = [[math.exp(v - max(row)) for v in row] for row in x]
    below = sum(map(sum, by_own))
    if all(math.isclose(a, b / below, rel_tol=1e-3) for a, b in zip(values, by_own[rank], strict=True)):
        told = "Each rank subtracts the largest number of its own part; all ranks must subtract the same one."
        return Told(cause(Code.ORIGIN, kind="each rank subtracts another number"), told)
    ratios = [a / b for a, b in zip(values, wanted[rank], strict=True) if b]
    if ratios and abs(ratios[0]) > 1e-6 and all(math.isclose(r, ratios[0], rel_tol=1e-3) for r in ratios):
        told = f"Rank {rank} returns {ratios[0]:.3g} times the right numbers: it divides by another sum than that of all ranks."
        return Told(cause(Code.ORIGIN, kind="divides by another sum"), told)
    total = sum(sum(values_of(r) or []) for r in results)
    if abs(total - 1) > 1e-3:
        told = f"The numbers of all ranks add up to {total:.3g}, not to 1."
        return Told(cause(Code.ORIGIN, kind="does not add up to one"), told)
    return Told(cause(Code.RESULT, seen="values"), f"Rank {rank} returns other numbers than the right ones.")


def _of_straggler(results: list[Any], x: list[list[float]], slow: int) -> Told:
    """What is wrong with the straggler's number."""
    said = [(values_of(r) or [math.nan])[0] for r in results]
    if len(set(said)) > 1:
        told = ", ".join(f"rank {rank} says {value:g}" for rank, value in enumerate(said))
        return Told(cause(Code.ORIGIN, kind="the ranks disagree"), f"The ranks disagree: {told}.")
    sums, least = [sum(row) for row in x], [min(row) for row in x]
    not_this = f"Rank {slow} is slow, not rank {said[0]:g}"
    if said[0] == sums.index(max(sums)):
        told = f"{not_this}: that one waits longest, since it waits for others; who is slow waits least."
        return Told(cause(Code.ORIGIN, kind="the one that waits longest"), told)
    if said[0] == least.index(min(least)):
        told = f"{not_this}: that one hardly waited in one step only. Add up all steps."
        return Told(cause(Code.ORIGIN, kind="by one step only"), told)
    return Told(cause(Code.RESULT, seen="values"), f"Every rank says {said[0]:g}, but rank {slow} is slow.")


# ------------------------------------------------------------------------------------------------ several rank counts


def of_counts(told: Told, right: list[int], wrong: int) -> Told:
    """The same, if the code is right with other rank counts: then what these have in common comes first."""
    code = _common(right, wrong)
    if code is None:
        return told
    with_these = f"Right with {listed(right)} rank{'' if right == [1] else 's'}, wrong with {wrong}"
    return Told(
        cause(code), f"{with_these}: {told.headline[:1].lower()}{told.headline[1:]}", told.line, told.note, told.wrong
    )


def delayed(told: Told) -> Told:
    """The same, of code that is wrong only when messages come late."""
    return Told(
        cause(Code.DELAYED), f"Wrong when messages come late: {told.headline}", told.line, told.note, told.wrong
    )


def _common(right: list[int], wrong: int) -> Code | None:
    if right == [2]:
        return Code.ONLY_TWO
    if right == [4]:
        return Code.ONLY_FOUR
    if len(right) > 1 and all(p & (p - 1) == 0 for p in right) and wrong & (wrong - 1):
        return Code.POWER_OF_TWO if set(right) >= {2, 4} else None
    return None
