"""The verdict: which cases passed, which failed and why, as plain data, as text and as a card in the notebook."""

from __future__ import annotations

import html
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from allranks.base.notebook import in_notebook
from allranks.base.variants import Variant
from allranks.judge.card import card, last_checks, variant_of
from allranks.theory.schedules import Schedule
from allranks.theory.trace import Trace

if TYPE_CHECKING:  # a gradebook reads points without torch
    from allranks.judge.causes import Cause


@dataclass(frozen=True)
class Blame:
    """The operation that a reason is about: the rank, the line as the ranks know it, and that line's text.

    Of a message also `src`, `dst` and the sender's `index` in the log, and in few words what was `sent` and what was `expected`.
    """

    rank: int
    line: int | None
    text: str | None = None
    src: int | None = None
    dst: int | None = None
    index: int | None = None
    sent: str = ""
    expected: str = ""


@dataclass(frozen=True)
class Reason:
    """Why a case failed: a sentence for people, and the `finding`, the cause that programs compare.

    `seen` and `cause` are the sentence's two halves, if it has them: what was seen, and why. `question` leads from one to the other.
    `more` are sentences on what was seen. `rows` are the messages that found no partner. `blame` is the operation that it is about. `shared` is what all failing
    cases have in common, if there is something.
    """

    sentence: str
    finding: Cause
    seen: str = ""
    question: str = ""
    cause: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    blame: Blame | None = field(default=None, compare=False)
    shared: Cause | None = None
    more: str = ""


@dataclass(frozen=True)
class Case:
    """One named case: passed, or the reason why not. `group` is the property that it shows, `finding` is the reason's.

    A rule that could not be judged is neither passed nor failed: `judged` is False, and it earns nothing.
    """

    name: str
    passed: bool
    reason: str = ""
    group: str = ""
    finding: Cause | None = None
    judged: bool = True

    @property
    def short_name(self) -> str:
        """The name without its group."""
        return self.name.removeprefix(f"{self.group}: ")


def already_said(top: Cause | None, cases: Sequence[Case]) -> list[str]:
    """For each failed case where its reason was said before, such as "as at the top", or "" if it is new.

    A case without a finding says something new.
    """
    said: dict[Cause, str] = {} if top is None else {top: "as at the top"}
    found = []
    for case in cases:
        if case.finding is None:
            found.append("")
            continue
        found.append(said.get(case.finding, ""))
        said.setdefault(case.finding, f'as for "{case.short_name}"')
    return found


@dataclass(frozen=True)
class Verdict:
    """What `check` returns. `score` is between 0 and 1; `reason` is the cause of the first failure, or "" when passed.

    `finding` is that reason's, and `code` what a class overview counts it by. `trace` has the messages of one case of the student's own run: `Player(verdict.trace)` plays
    them; `shown` names that case. `svg` is the picture of a deadlock's cycle of waits, if there is one. A notebook shows
    a verdict as a card: first what was `seen` and a `question`, and the `cause` on request; `rows` are the messages that found
    no partner; `fault` has the line at fault and its message, as plain data, and `expected` is how the messages may go. `history` are the reader's last checks of this exercise, (time, words), this one last. `rules` is "nccl" for a verdict under NCCL's rules; `skipped` says which cases NCCL can't have, and why. `speed` says, sentence by sentence, how long the run of
    `trace` took on a machine, what it waited for, and what would make it faster. `variant` is what the course drew for this student, if it draws. `won` is what a right answer does.

    Example (needs ranks):
        >>> def tree_reduce(tensor, dst):
        ...     pass
        >>> verdict = check(tree_reduce)
        >>> verdict.passed, len(verdict.cases) > 10
        (False, True)
    """

    exercise: str
    passed: bool
    score: float
    cases: tuple[Case, ...]
    reason: str = ""
    trace: Trace | None = field(default=None, compare=False)
    svg: str | None = field(default=None, compare=False)
    shown: str = ""
    finding: Cause | None = None
    rules: str | None = None
    skipped: tuple[str, ...] = ()
    seen: str = ""
    question: str = ""
    cause: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    fault: dict[str, Any] | None = field(default=None, compare=False)
    expected: Schedule | None = field(default=None, compare=False)
    history: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    shared: Cause | None = None
    speed: tuple[str, ...] = field(default=(), compare=False)
    variant: Variant | None = None
    more: str = ""
    won: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON that `allranks check --json` prints."""
        told = {
            "exercise": self.exercise,
            "passed": self.passed,
            "score": self.score,
            "cases": [{"name": c.name, "passed": c.passed, "reason": c.reason} for c in self.cases],
            "reason": self.reason,
        }
        if self.speed:
            told["speed"] = list(self.speed)
        if self.variant is not None:
            told["variant"] = asdict(self.variant)
        return told if self.rules is None else {**told, "rules": self.rules, "skipped": list(self.skipped)}

    @property
    def _under(self) -> str:
        return " under NCCL's rules" if self.rules == "nccl" else ""

    @property
    def groups(self) -> dict[str, list[Case]]:
        """The cases by property, in the order in which they ran."""
        found: dict[str, list[Case]] = {}
        for case in self.cases:
            found.setdefault(case.group or case.name, []).append(case)
        return found

    @property
    def _count(self) -> str:
        """How many of the cases that were judged passed."""
        return f"{sum(c.passed for c in self.cases)} of {sum(c.judged for c in self.cases)} cases"

    @property
    def told(self) -> list[tuple[str, str]]:
        """The parts of the reason, (kind, words): what was seen, more on it, the question, the cause; or the whole of it."""
        if not self.seen:
            return [("reason", self.reason)] if self.reason else []
        parts = [("reason", self.seen), ("more", self.more), ("question", self.question), ("cause", self.cause)]
        return [part for part in parts if part[1]]

    @property
    def mistake(self) -> str:
        """The mistake in a few words that are equal for equal mistakes, such as "sends before it receives"; "" if it passed."""
        return "" if self._named is None else self._named.short

    @property
    def _named(self) -> Cause | None:
        """What a class overview counts: what all failing cases have in common says more than the cause of one of them."""
        return self.shared or self.finding

    @property
    def code(self) -> tuple[Hashable, ...]:
        """The cause as programs compare and count it, whatever its words; () if the answer passed."""
        return () if self.finding is None else self.finding.key

    def brief(self, cause: bool = True) -> str:
        """The verdict in a few words, such as "deadlock". Without `cause`, only what was seen, as above the folded cause."""
        return "passed" if self.passed else "not yet" if self.finding is None else self.finding.brief(told=cause)

    def text(self) -> str:
        """The verdict for a terminal."""
        head = "passed" if self.passed else f"not yet, {self.score:.0%}"
        lines = [f"{self.exercise}{self._under}: {head} ({self._count})"]
        lines += [f"  {words}" for words in variant_of(self.to_dict())]
        if self.reason:
            told = [f"  {'Cause: ' if kind == 'cause' else ''}{words}" for kind, words in self.told]
            lines += ["", *told, *_table_text(self.rows), ""]
        said = self.already_said()
        for name, cases in self.groups.items():
            good = sum(c.passed for c in cases)
            if not any(case.judged for case in cases):
                lines.append(f"  – {name}: {cases[0].reason}")
                continue
            count = f" {good}/{len(cases)}" if len(cases) > 1 else ""
            new = [case for case in cases if not case.passed and not said[case]]
            above = ", as above" if good < len(cases) and not new else ""
            lines.append(f"  {'✓' if good == len(cases) else '✗'} {name}{count}{above}")
            for case in new:
                where = case.short_name
                lines.append(f"      {where}: {case.reason}" if where != name else f"      {case.reason}")
        lines += [f"  - skipped: {sentence}" for sentence in self.skipped]
        lines += ["", *(f"  {sentence}" for sentence in self.speed)] if self.speed else []
        return "\n".join(lines)

    def already_said(self) -> dict[Case, str]:
        """For each failed case where its reason was said before, or ""; in the order in which cases are shown."""
        failed = [case for cases in self.groups.values() for case in cases if not case.passed]
        return dict(zip(failed, already_said(self.finding, failed), strict=True))

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": self.text(), "text/html": self.html()}
        if self.trace is not None and len(self.trace) and in_notebook():
            bundle |= _with_button(self)
        return bundle

    def card(self) -> dict[str, Any]:
        """All that the card shows, as plain data: `to_dict`, and what JSON's readers of a verdict don't need."""
        failed = [case for case in self.cases if not case.passed]
        return {
            **self.to_dict(),
            "under": self._under,
            "told": self.told,
            "rows": [list(row) for row in self.rows],
            "judged": [case.judged for case in self.cases],
            "groups": [case.group or case.name for case in self.cases],
            "already_said": already_said(self.finding, failed),
            "skipped": list(self.skipped),
            "fault": self.fault,
            "mistake": self.mistake,
            "code": [getattr(part, "name", str(part)) for part in self._named.key] if self._named else [],
            "speed": list(self.speed),
            "won": self.won,
        }

    def html(self, hint: bool = True) -> str:
        """The card in JupyterLab's own colours: the cause first, then each property with its cases.

        `hint` adds how to play the student's own messages, and a folded player of them that needs no kernel.
        """
        shown = f" ({html.escape(self.shown)})" if self.shown else ""
        hinted = f'<p class="hint">Your own messages{shown}: <code>Player(verdict.trace)</code></p>'
        foot = hinted + _players(self) if hint and self.trace is not None and len(self.trace) else ""
        foot += last_checks(self.history)
        return card(self.card(), picture=self.svg or "", foot=foot)


def points_of(score: float, passed: bool, most: float) -> float:
    """The points for a score between 0 and 1, to two decimals: in proportion, all of them only if all cases passed.

    >>> points_of(0.9999, False, 6)
    5.99
    """
    if passed:
        return float(most)
    return min(round(min(max(float(score), 0.0), 1.0) * most, 2), max(0.0, float(most) - 0.01))


_MOST_PLAYED = 2000  # events: of more the output would be large
PLAY, BESIDE = "Play my messages", "Beside the right schedule"
TITLES = ("your messages", "the right schedule")


def _players(verdict: Verdict) -> str:
    """The same as the buttons, folded, for a page without a kernel; nothing where there is nothing to play."""
    from allranks.show.player.page import page_without_kernel

    trace = verdict.trace
    if trace is None or len(trace) > _MOST_PLAYED:
        return ""
    found = [(PLAY, page_without_kernel(trace))]
    if verdict.expected is not None:
        found.append((BESIDE, page_without_kernel(trace, verdict.expected, titles=TITLES)))
    return "".join(f"<details><summary>{words}</summary>{page}</details>" for words, page in found)


def _with_button(verdict: Verdict) -> dict[str, Any]:
    """The card as a widget, with a button that plays the student's own messages; {} if ipywidgets is not installed."""
    try:
        import ipywidgets

        from allranks.show.player import Player
    except ImportError:
        return {}
    own = ipywidgets.Button(description=PLAY, icon="play", tooltip=verdict.shown, layout={"width": "auto"})
    beside = ipywidgets.Button(description=BESIDE, icon="columns", layout={"width": "auto"})
    buttons = ipywidgets.HBox([own, beside] if verdict.expected is not None else [own])
    box = ipywidgets.VBox([ipywidgets.HTML(verdict.html(hint=False)), buttons])

    def play(pressed: Any) -> None:
        several = pressed is beside
        compared, titles = (verdict.expected, TITLES) if several else (None, ())
        player = Player(verdict.trace, compared, titles=titles, pressed=True)
        box.children = (box.children[0], buttons, player)

    for button in buttons.children:
        button.on_click(play)
    view = box._repr_mimebundle_() or {}
    return {kind: data for kind, data in view.items() if kind.startswith("application/vnd.jupyter.widget-view")}


def _table_text(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The messages that found no partner, in columns."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return ["", "  Without a partner:", *(f"    {line}" for line in lines)]
