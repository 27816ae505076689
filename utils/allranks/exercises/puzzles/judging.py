"""Judges a reader's code: several numbers of ranks, hidden inputs, messages that come late; and lays out the run that is shown."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from allranks.base.errors import listed
from allranks.exercises.puzzles import verdict
from allranks.exercises.puzzles.moves import Moves, drawn, laid_out, trace
from allranks.exercises.puzzles.program import Fault, compiled
from allranks.exercises.puzzles.ranks import Cast, Run, play
from allranks.exercises.puzzles.table import PUZZLES, Inputs, Puzzle
from allranks.exercises.puzzles.vector import Store, Vector, mark
from allranks.exercises.puzzles.verdict import Told
from allranks.judge.causes import Code, cause
from allranks.ranks.wire.failures import DeadlockCause, Failure, FailureKind
from allranks.ranks.wire.wait import Doing

MOST_PRINTS = 200  # lines that are shown
MOST_DRAWN = 400  # messages
_STALLS = (FailureKind.DEADLOCK, FailureKind.LEFT_EARLY, FailureKind.DESYNC)


@dataclass
class Case:
    """One run: how many ranks, how long a vector, and how messages are delivered."""

    ranks: int
    size: int
    delivery: str = "rendezvous"
    seed: int = 0


@dataclass
class Tried:
    """A case, its inputs, its run, and what is wrong with it."""

    case: Case
    x: Inputs
    run: Run
    made: Moves | None = None
    told: Told | None = None


def cases(puzzle: Puzzle) -> Iterator[Case]:
    """The runs by which a puzzle is judged; the first one is shown."""
    for p in puzzle.counts:
        for size in puzzle.sizes(p):
            yield Case(p, size)
    shown, *_, last = puzzle.counts
    for p, seed in ((shown, 1), (shown, 2), (last, 3)):
        yield Case(p, puzzle.sizes(p)[0], "shuffled", seed)


def inputs(puzzle: Puzzle, case: Case) -> Inputs:
    """The vectors of a case, rank by rank."""
    chance = random.Random(f"{puzzle.id} {case.ranks} {case.size} {case.seed}")
    return puzzle.inputs(case.ranks, case.size, chance)


class Judging:
    """One judgement of one code."""

    def __init__(self, puzzle: Puzzle, code: str) -> None:
        self.puzzle, self.text = puzzle, code
        self.source = code.splitlines()

    def result(self) -> dict[str, Any]:
        """The verdict, as plain data."""
        puzzle = self.puzzle
        try:
            self.code = compiled(self.text, puzzle.function)
        except Fault as fault:
            return self._answer(verdict.of_fault(fault), None, {})
        tried: list[Tried] = []
        for case in cases(puzzle):
            one = self._tried(case, pictured=not tried)
            tried.append(one)
            if one.told is not None:
                break
        last = tried[-1]
        if last.told is not None:
            self._compare(tried)
            kept: dict[str, bool | None] = {"right": False}
            return self._answer(last.told, last, kept)
        kept = {"right": True}
        broken: tuple[Told, Tried] | None = None
        for rule in puzzle.rules:
            kept[rule.code] = True
            for one in tried:
                breach = rule.breach(self._laid_out(one)) if one.case.delivery == "rendezvous" else None
                if breach is not None:
                    kept[rule.code] = False
                    found = Told(cause(Code.RULE, rule=rule.text), *breach)
                    broken = broken or (found, one)
                    break
        if broken is None:
            return self._answer(None, tried[0], kept)
        told, one = broken
        return self._answer(told, one if one is tried[0] else self._played(one.case, True), kept)

    # ------------------------------------------------------------------------------------------------- running it

    def _cast(self, case: Case, x: Inputs, pictured: bool, first: int | None = None) -> Cast:
        n = case.size

        def vector(rank: int) -> Vector:
            marks = [mark(rank * n + i) for i in range(n)] if pictured else [0] * n
            return Vector(Store(x[rank], marks), range(n))

        return Cast(
            self.code,
            self.source,
            self.puzzle.function,
            case.ranks,
            vector,
            case.delivery,
            case.seed,
            node_size=self.puzzle.node_size(case.ranks),
            pictured=pictured,
            first=first,
        )

    def _played(self, case: Case, pictured: bool) -> Tried:
        x = inputs(self.puzzle, case)
        return Tried(case, x, play(self._cast(case, x, pictured)))

    def _is_right(self, one: Tried) -> bool:
        return one.run.failure is None and not verdict.wrong_ranks(self.puzzle, one.run, self.puzzle.expected(one.x))

    def _tried(self, case: Case, pictured: bool) -> Tried:
        """The case, and if it is wrong why."""
        one = self._played(case, pictured)
        if self._is_right(one):
            return one
        if not pictured:  # once more, with what each number is made of
            one = self._played(case, True)
        if one.run.failure is not None:
            one.told = verdict.of_failure(one.run.failure, one.run)
        elif not self._is_right(one):
            one.told = verdict.of_values(self.puzzle, one.run, self._laid_out(one), one.x)
        return one

    def _laid_out(self, one: Tried) -> Moves:
        if one.made is None:
            chunks = one.case.ranks if self.puzzle.chunked else 1
            one.made = laid_out(one.run, one.case.ranks, one.case.size, chunks)
        return one.made

    def _compare(self, tried: list[Tried]) -> None:
        """If it is right with some numbers of ranks, names what they have in common."""
        last = tried[-1]
        if last.told is None or last.case.delivery != "rendezvous":
            if last.told is not None and last.told.cause.code is not Code.FAILURE:
                last.told = verdict.delayed(last.told)
            return
        wrong = last.case.ranks
        seen = {one.case.ranks for one in tried[:-1]} - {wrong}
        if not seen or any(one.case.ranks == wrong for one in tried[:-1]):
            return
        others = [p for p in self.puzzle.counts if p != wrong and p not in seen]
        firsts = {p: Case(p, self.puzzle.sizes(p)[0]) for p in others}
        right = sorted(seen | {p for p, case in firsts.items() if self._is_right(self._played(case, False))})
        last.told = verdict.of_counts(last.told, right, wrong)

    # ------------------------------------------------------------------------------------------------- laying it out

    def _answer(self, told: Told | None, one: Tried | None, kept: dict[str, bool | None]) -> dict[str, Any]:
        puzzle = self.puzzle
        line = None if told is None or told.line is None else int(told.line)
        found: dict[str, Any] = {
            "puzzle": puzzle.id,
            "right": told is None,
            "code": None if told is None else told.cause.short,
            "headline": self._praise() if told is None else told.headline,
            "line": line,
            "note": "" if told is None else told.note,
            "rules": [{"code": c, "text": t, "kept": kept.get(c)} for c, t in rules_of(puzzle)],
            "ranks": puzzle.counts[0] if one is None else one.case.ranks,
            "where": "" if one is None else self._where(one.case),
            "prints": [],
            "trace": None,
            "drawn": None,
            "first_wrong": None,
            "waits": [],
            "circle": None,
            "receive_first": None,
            "reached": [],
            "lines": len(self.source),
            "lead": None,
            "next": next_line(puzzle),
        }
        return found if one is None else found | self._shown(told, one)

    def _praise(self) -> str:
        counts = listed(sorted(self.puzzle.counts))
        return f"Right, with {counts} ranks, and with messages that come late."

    def _where(self, case: Case) -> str:
        first = next(cases(self.puzzle))
        if case == first:
            return ""
        size = f", x of {case.size} number{'' if case.size == 1 else 's'}" if case.size != first.size else ""
        late = ", messages that come late" if case.delivery != "rendezvous" else ""
        return f"with {case.ranks} ranks{size}{late}"

    def _shown(self, told: Told | None, one: Tried) -> dict[str, Any]:
        run, made = one.run, self._laid_out(one)
        few = len(made.moves) <= MOST_DRAWN
        played = trace(made) if few else None
        wrong = None if told is None else told.wrong
        picture = drawn(made, played, None if wrong is None else wrong.move) if played is not None else None
        sent = [sum(move.send.nbytes for move in made.moves if move.send.rank == r) for r in range(one.case.ranks)]
        lead = {
            "messages": len(made.moves),
            "rounds": made.count,
            "most_bytes": max(sent),
            "x_bytes": 4 * one.case.size,
        }
        found: dict[str, Any] = {
            "prints": _prints(run),
            "trace": played.to_dict() if played is not None else None,
            "drawn": picture,
            "reached": [sorted(lines) for lines in run.reached],
            "lead": lead,
        }
        if told is None:
            found["note"] = (
                f"{lead['messages']} messages in {lead['rounds']} round{'' if lead['rounds'] == 1 else 's'}; a rank sends {lead['most_bytes']} bytes at most, "
                f"and x has {lead['x_bytes']}."
            )
        if wrong is not None and picture is not None:
            move = wrong.move
            event = next(
                (m["event"] for m in picture["steps"][move.step]["moves"] if m["wrong"]),
                None,
            )
            found["first_wrong"] = {
                "step": move.step,
                "event": event,
                "rank": move.send.rank,
                "peer": move.send.peer,
                "chunks": made.chunks_of(move),
                "want": list(wrong.want),
                "line": None if told is None or told.line is None else int(told.line),
            }
        failure = run.failure
        if failure is not None and failure.kind in _STALLS:
            found["waits"] = self._waits(run, failure)
            if failure.cycle:
                found["circle"] = list(failure.cycle)
                if failure.cause is DeadlockCause.SENDS_FIRST:
                    found["receive_first"] = [self._receiving_first(one.case, rank) for rank in failure.cycle]
        return found

    def _waits(self, run: Run, failure: Failure) -> list[dict[str, Any]]:
        rows = []
        for wait in failure.waits:
            op = run.router.ranks[wait.rank].on if wait.doing is Doing.WAITING else None
            line = None if wait.line is None else int(wait.line)
            call = ""
            if op is not None:
                call = f"{op.called}({self._first_argument(op.called, op.line)}, {op.peer})"
                call = call if op.line == wait.line else f"wait for {call}"
            rows.append(
                {"rank": wait.rank, "call": call, "line": line, "for": list(wait.peers), "doing": str(wait.doing)}
            )
        return rows

    def _first_argument(self, called: str, line: int | None) -> str:
        """The vector of a call, as the code writes it."""
        for node in ast.walk(ast.parse(self.text)):
            if (
                isinstance(node, ast.Call)
                and node.lineno == line
                and node.args
                and ast.unparse(node.func).endswith(called)
            ):
                return ast.unparse(node.args[0])
        return "x"

    def _receiving_first(self, case: Case, rank: int) -> dict[str, Any]:
        """The same code, but this rank's first send waits until the rank has received."""
        run = play(self._cast(case, inputs(self.puzzle, case), False, first=rank))
        messages = [[op.rank, op.peer] for op in run.messages()]
        order = list(dict.fromkeys(r for src, dst in messages for r in (dst, src)))
        count = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
        if run.failure is None:
            text = f"Rank {rank} receives first: {count} pass, one after the other, and every rank returns."
        else:
            text = f"Rank {rank} receives first: {count} pass, and then the ranks stand still again."
        return {"rank": rank, "goes_on": order, "messages": messages, "ends": run.failure is None, "text": text}


def rules_of(puzzle: Puzzle) -> list[tuple[str, str]]:
    """The code and the words of each rule, the right values first."""
    return [("right", puzzle.right), *((rule.code, rule.text) for rule in puzzle.rules)]


def next_line(puzzle: Puzzle) -> str:
    """How to go on from the page to the course."""
    number = PUZZLES.index(puzzle) + 1
    return f"The same on real processes, one line: allranks puzzle {number} FILE --real"


def _prints(run: Run) -> list[dict[str, Any]]:
    rows = [
        {"rank": rank, "text": line[:500]}
        for rank, texts in enumerate(run.printed)
        for line in "".join(texts).splitlines()
    ]
    if len(rows) <= MOST_PRINTS:
        return rows
    return [
        *rows[: MOST_PRINTS - 1],
        {"rank": rows[-1]["rank"], "text": f"... and {len(rows) - MOST_PRINTS + 1} lines more"},
    ]
