"""The verdict: which cases passed, which failed and why, as plain data, as text and as a card in the notebook."""

from __future__ import annotations

import html
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from allranks.notebook import in_notebook
from allranks.trace import Trace


@dataclass(frozen=True)
class Reason:
    """Why a case failed: a sentence for people, and a code that is equal for equal causes, whatever the ranks and sizes.

    `seen` and `cause` are the sentence's two halves, if it has them: what was seen, and why. `question` leads from one to the other.
    `rows` are the messages that found no partner.
    """

    sentence: str
    code: tuple[Hashable, ...]
    seen: str = ""
    question: str = ""
    cause: str = ""
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Case:
    """One named case: passed, or the reason why not. `group` is the property that it shows, `code` is the reason's.

    A rule that could not be judged is neither passed nor failed: `judged` is False, and it earns nothing.
    """

    name: str
    passed: bool
    reason: str = ""
    group: str = ""
    code: tuple[Hashable, ...] = ()
    judged: bool = True

    @property
    def short_name(self) -> str:
        """The name without its group."""
        return self.name.removeprefix(f"{self.group}: ")


def already_said(top: tuple[Hashable, ...], cases: Sequence[Case]) -> list[str]:
    """For each failed case where its reason was said before, such as "as at the top", or "" if it is new.

    `top` is the code of the reason above all cases; a case without a code says something new.
    """
    said: dict[tuple[Hashable, ...], str] = {top: "as at the top"} if top else {}
    found = []
    for case in cases:
        found.append(said.get(case.code, ""))
        if case.code:
            said.setdefault(case.code, f'as for "{case.short_name}"')
    return found


@dataclass(frozen=True)
class Verdict:
    """What `check` returns. `score` is between 0 and 1; `reason` is the cause of the first failure, or "" when passed.

    `code` is that reason's. `trace` has the messages of one case of the student's own run: `Player(verdict.trace)` plays
    them; `shown` names that case. `svg` is the picture of a deadlock's cycle of waits, if there is one. A notebook shows
    a verdict as a card: first what was `seen` and a `question`, and the `cause` on request; `rows` are the messages that found
    no partner. `rules` is "nccl" for a verdict under NCCL's rules; `skipped` says which cases NCCL can't have, and why.

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
    code: tuple[Hashable, ...] = ()
    rules: str | None = None
    skipped: tuple[str, ...] = ()
    seen: str = ""
    question: str = ""
    cause: str = ""
    rows: tuple[tuple[str, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON that `allranks check --json` prints."""
        told = {
            "exercise": self.exercise,
            "passed": self.passed,
            "score": self.score,
            "cases": [{"name": c.name, "passed": c.passed, "reason": c.reason} for c in self.cases],
            "reason": self.reason,
        }
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
        """The parts of the reason, (kind, words): what was seen, the question, the cause; or the whole of it."""
        if not self.seen:
            return [("reason", self.reason)] if self.reason else []
        parts = [("reason", self.seen), ("question", self.question), ("cause", self.cause)]
        return [part for part in parts if part[1]]

    def text(self) -> str:
        """The verdict for a terminal."""
        head = "passed" if self.passed else f"not yet, {self.score:.0%}"
        lines = [f"{self.exercise}{self._under}: {head} ({self._count})"]
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
        return "\n".join(lines)

    def already_said(self) -> dict[Case, str]:
        """For each failed case where its reason was said before, or ""; in the order in which cases are shown."""
        failed = [case for cases in self.groups.values() for case in cases if not case.passed]
        return dict(zip(failed, already_said(self.code, failed), strict=True))

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": self.text(), "text/html": self.html()}
        if self.trace is not None and len(self.trace) and in_notebook():
            bundle |= _with_button(self)
        return bundle

    def html(self, hint: bool = True) -> str:
        """A card in JupyterLab's own colours: the cause first, then each property with its cases.

        `hint` adds how to play the student's own messages.
        """
        say = html.escape
        mark = "✓" if self.passed else "✗"
        word = "passed" if self.passed else "not yet"
        parts = [
            _STYLE,
            f'<div class="allranks-verdict {"good" if self.passed else "bad"}" role="group" '
            f'aria-label="Verdict on {say(self.exercise)}{say(self._under)}: {word}">',
            f'<div class="head"><span class="mark" aria-hidden="true">{mark}</span>'
            f"<b>{say(self.exercise)}</b><span>{word}{say(self._under)}</span>"
            f'<span class="score">{self.score:.0%} · {self._count}</span></div>',
        ]
        for kind, words in self.told:
            if kind == "cause":
                parts.append(f"<details><summary>Show the cause</summary><p>{say(words)}</p></details>")
            else:
                parts.append(f'<p class="{kind}">{say(words)}</p>')
        parts.append(_table_html(self.rows))
        if self.svg:
            parts.append(f'<div class="cycle">{self.svg}</div>')
        said = self.already_said()
        for name, cases in self.groups.items():
            parts.append(_group_html(name, cases, said))
        if self.skipped:
            parts.append(f'<p class="hint">Skipped: {say(" ".join(self.skipped))}</p>')
        if hint and self.trace is not None and len(self.trace):
            shown = f" ({say(self.shown)})" if self.shown else ""
            parts.append(f'<p class="hint">Your own messages{shown}: <code>Player(verdict.trace)</code></p>')
        parts.append("</div>")
        return "".join(parts)


def _with_button(verdict: Verdict) -> dict[str, Any]:
    """The card as a widget, with a button that plays the student's own messages; {} if ipywidgets is not installed."""
    try:
        import ipywidgets

        from allranks.player import Player
    except ImportError:
        return {}
    button = ipywidgets.Button(
        description="Play my messages", icon="play", tooltip=verdict.shown, layout=ipywidgets.Layout(width="auto")
    )
    box = ipywidgets.VBox([ipywidgets.HTML(verdict.html(hint=False)), button])

    def play(_: Any) -> None:
        box.children = (box.children[0], Player(verdict.trace))

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


def _table_html(rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="unmet"><caption>Without a partner</caption><tbody>{body}</tbody></table>'


def _group_html(name: str, cases: list[Case], said: dict[Case, str]) -> str:
    say = html.escape
    if not any(case.judged for case in cases):
        why = say(cases[0].reason)
        return f'<div class="group none" title="{why}"><span class="mark" aria-label="not judged">–</span> {say(name)}</div>'
    good = sum(c.passed for c in cases)
    done = good == len(cases)
    count = f" <small>{good}/{len(cases)}</small>" if len(cases) > 1 else ""
    label = f'<span class="mark" aria-hidden="true">{"✓" if done else "✗"}</span> {say(name)}{count}'
    kind = "good" if done else "bad"
    rows = []
    for case in cases:
        where = say(case.short_name)
        if case.passed:
            rows.append(f'<li class="good">{where}</li>')
        else:
            rows.append(f'<li class="bad"><b>{where}</b>: {say(said[case] or case.reason)}</li>')
    if len(cases) == 1 and cases[0].name == name and (done or said[cases[0]]):
        return f'<div class="group {kind}">{label}</div>'
    return f'<details class="group {kind}"><summary>{label}</summary><ul>{"".join(rows)}</ul></details>'


_STYLE = """<style>
.allranks-verdict{border:1px solid var(--jp-border-color2,#ccc);border-left-width:4px;border-radius:4px;padding:8px 12px;
 max-width:56em;font:var(--jp-content-font-size1,14px)/1.45 var(--jp-content-font-family,sans-serif);
 color:var(--jp-content-font-color1,#222);background:var(--jp-layout-color1,#fff)}
.allranks-verdict.good{border-left-color:var(--jp-success-color1,#2e7d32)}
.allranks-verdict.bad{border-left-color:var(--jp-error-color1,#c62828)}
.allranks-verdict .head{display:flex;gap:.6em;align-items:baseline;flex-wrap:wrap}
.allranks-verdict .head b{font-family:var(--jp-code-font-family,monospace)}
.allranks-verdict .score{margin-left:auto;color:var(--jp-content-font-color2,#555);font-variant-numeric:tabular-nums}
.allranks-verdict.good>.head .mark,.allranks-verdict .group.good>.mark,.allranks-verdict .group.good>summary .mark{color:var(--jp-success-color1,#2e7d32)}
.allranks-verdict.bad>.head .mark,.allranks-verdict .group.bad>.mark,.allranks-verdict .group.bad>summary .mark{color:var(--jp-error-color1,#c62828)}
.allranks-verdict .reason{margin:.5em 0;white-space:pre-line}
.allranks-verdict .group{display:inline-block;vertical-align:top;margin:.15em 1em .15em 0}
.allranks-verdict details.group[open]{display:block}
.allranks-verdict summary{cursor:pointer}
.allranks-verdict ul{margin:.2em 0 .4em;padding-left:1.6em}
.allranks-verdict li.good{color:var(--jp-content-font-color2,#555)}
.allranks-verdict li b{font-weight:600}
.allranks-verdict .question{margin:.3em 0;font-style:italic}
.allranks-verdict .none{color:var(--jp-content-font-color3,#777)}
.allranks-verdict .unmet{margin:.4em 0;border-collapse:collapse}
.allranks-verdict .unmet caption{text-align:left;color:var(--jp-content-font-color2,#555)}
.allranks-verdict .unmet td{padding:0 1em 0 0;text-align:left}
.allranks-verdict small,.allranks-verdict .hint{color:var(--jp-content-font-color2,#555)}
.allranks-verdict .hint{margin:.4em 0 0}
.allranks-verdict .cycle svg{max-width:100%;height:auto}
</style>"""
