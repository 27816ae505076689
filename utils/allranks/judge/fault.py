"""What the card shows of a cause: the student's line with its neighbours, and the message that it sent, both as plain data."""

from __future__ import annotations

import inspect
import linecache
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from allranks.judge.exercise import About, Run
from allranks.judge.source import Source
from allranks.judge.verdict import Blame
from allranks.ranks.wire import Failure, LogEntry
from allranks.ranks.wire.messages import OpKind
from allranks.ranks.wire.student_code import filename_of
from allranks.ranks.wire.wait import outermost
from allranks.show.player.animation import Animation, Transfer, animate, contributors
from allranks.theory.trace import Trace

AROUND = 2  # lines shown before the one at fault, and behind it
_MOST_DRAWN = 4  # ranks and chunks
_LONGEST = 160  # characters of a line


def blame_of(words: str | None) -> Blame | None:
    """The operation that the words are about."""
    if not isinstance(words, About) or words.entry is None:
        return None
    entry = words.entry
    if not isinstance(entry, LogEntry):
        return Blame(entry.rank, entry.line)
    sends = entry.kind is OpKind.SEND
    peer, index = (entry.peer, entry.index) if sends else (None, None)
    return Blame(
        entry.rank, entry.line, entry.text, entry.rank if sends else None, peer, index, words.sent, words.expected
    )


def blame_of_failure(failure: Failure) -> Blame | None:
    """The operation that a run failed in, and between which ranks its message goes, if it is one."""
    if failure.rank is None:
        return None
    blame = Blame(failure.rank, failure.line, failure.source_line)
    if failure.between is not None:
        src, dst, sent, expected = failure.between
        return Blame(failure.rank, failure.line, failure.source_line, src, dst, None, sent, expected)
    left = next((one for one in failure.unmet if one.rank == failure.rank and len(one.peers) == 1), None)
    if left is None or failure.cycle or left.kind is OpKind.COLLECTIVE:
        return blame
    (peer,) = left.peers
    if left.kind is OpKind.SEND:
        return Blame(failure.rank, failure.line, failure.source_line, failure.rank, peer, None, "never received")
    return Blame(failure.rank, failure.line, failure.source_line, peer, failure.rank, None, "never sent")


def fault_of(
    blame: Blame | None, run: Run | None, trace: Trace | None, answer: Callable | Source
) -> dict[str, Any] | None:
    """The line at fault and its message: {"code", "message"}, each None where it is not known.

    Where the cause names no message, the first one in the trace that can't be right is drawn.
    """
    animation = animate(trace) if trace is not None and len(trace) else None
    message = _message(blame, run, animation) if blame is not None and blame.src is not None else None
    line, text = (blame.line, blame.text) if blame is not None else (None, None)
    wrong = animation.first_wrong_move() if animation is not None and line is None else None
    if animation is not None and wrong is not None:
        transfer = animation.transfers[wrong[0]]
        line, message = transfer.line, message_of(animation, transfer) | {"why": wrong[1]}
    code = code_around(answer, line, text)
    return {"code": code, "message": message} if code or message else None


def _message(blame: Blame, run: Run | None, animation: Animation | None) -> dict[str, Any]:
    about = {"src": blame.src, "dst": blame.dst, "sent": blame.sent, "expected": blame.expected}
    if run is None or animation is None or blame.index is None:
        return about | {"ranks": run.ranks if run is not None else 2}
    sent = [e for e in run.sends if (e.rank, e.peer) == (blame.src, blame.dst)]
    number = sum(e.index < blame.index for e in sent)
    same = [t for t in animation.transfers if (t.src, t.dst) == (blame.src, blame.dst)]
    return (message_of(animation, same[number]) if number < len(same) else {"ranks": run.ranks}) | about


def message_of(animation: Animation, transfer: Transfer) -> dict[str, Any]:
    """A message with its step, and where they are few what both ranks held before it and what it carried."""
    found: dict[str, Any] = {
        "src": transfer.src,
        "dst": transfer.dst,
        "ranks": animation.ranks,
        "delivered": transfer.delivered,
    }
    found |= {"step": transfer.step + 1, "steps": animation.steps, "chunks": list(transfer.chunks)}
    if not 0 < animation.chunks <= _MOST_DRAWN or animation.ranks > _MOST_DRAWN or not transfer.chunks:
        return found
    (before,) = animation.states([transfer.step])
    for end, rank in (("src_cells", transfer.src), ("dst_cells", transfer.dst)):
        found[end] = [contributors(before.get((rank, chunk), ())) for chunk in range(animation.chunks)]
    return found | {"carried": contributors(transfer.carried[0]) if transfer.carried else []}


# ---------------------------------------------------------------------------------------------------- the code


def code_around(answer: Callable | Source, line: int | None, text: str | None = None) -> dict[str, Any] | None:
    """The line that led to the operation, with its neighbours: {"place", "marked", "lines"}; None if it is not in the answer's text.

    `text` is what the ranks saw in that line: in another file the same line says something else.
    """
    lines, place_of = _lines_of(answer)
    if not line or line > len(lines) or (text is not None and lines[line - 1].strip() != text.strip()):
        return None
    outer = outermost(line)
    if outer is None or not 0 < outer <= len(lines):
        return None
    first_of_cell, place = place_of(outer)
    shown = [n for n in range(max(first_of_cell, outer - AROUND), min(len(lines), outer + AROUND) + 1)]
    while shown and not lines[shown[-1] - 1].strip():
        shown.pop()
    texts = textwrap.dedent("\n".join(lines[n - 1].rstrip() for n in shown)).split("\n")
    numbered = [[n - first_of_cell + 1, text[:_LONGEST]] for n, text in zip(shown, texts, strict=True)]
    return {"place": place, "marked": outer - first_of_cell + 1, "lines": numbered}


def code_of(answer: Callable | Source) -> dict[str, Any] | None:
    """The whole function for the player: {"first", "shown", "lines"}; the number of its first line in the ranks' text and as shown."""
    lines, place_of = _lines_of(answer)
    first, last = _span_of(answer, lines)
    if not first:
        return None
    first_of_cell, _ = place_of(first)
    return {
        "first": first,
        "shown": first - first_of_cell + 1,
        "lines": [t.rstrip()[:_LONGEST] for t in lines[first - 1 : last]],
    }


def text_of(answer: Callable | Source) -> str:
    """The lines of the function; "" if they are not found."""
    lines, _ = _lines_of(answer)
    first, last = _span_of(answer, lines)
    return "\n".join(lines[first - 1 : last]) if first else ""


def _lines_of(answer: Callable | Source) -> tuple[Sequence[str], Callable[[int], tuple[int, str]]]:
    """The lines of the answer's text; and for a line the first one of its cell, and its place in words."""
    if isinstance(answer, Source):
        firsts = [first for first, _ in answer.cells]
        return answer.text.split("\n"), lambda line: (
            max([f for f in firsts if f <= line], default=1),
            answer.where(line),
        )
    return linecache.getlines(filename_of(answer)), lambda line: (1, f"line {line}")


def _span_of(answer: Callable | Source, lines: Sequence[str]) -> tuple[int, int]:
    """The first and the last line of the function; (0, 0) if it is not found."""
    if isinstance(answer, Source):
        return answer.span
    try:
        block, first = inspect.getsourcelines(inspect.unwrap(answer))
    except (OSError, TypeError):
        return 0, 0
    return (first, first + len(block) - 1) if 0 < first <= len(lines) else (0, 0)
