"""The verdict: which cases passed, which failed and why, as plain data, as text and as a card in the notebook."""

from __future__ import annotations

import html
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from allranks.notebook import in_notebook
from allranks.theme import style
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
        word = "passed" if self.passed else "not yet"
        under = say(self._under)
        parts = [
            style(),
            _STYLE,
            f'<div class="ar-theme ar-verdict {"good" if self.passed else "bad"}" role="group" '
            f'aria-label="Verdict on {say(self.exercise)}{under}: {word}">',
            f'<div class="head"><code>{say(self.exercise)}</code><span>{word}{under}</span>'
            f'<b class="score">{self.score:.0%}</b></div>',
        ]
        for kind, words in self.told:
            if kind == "cause":
                parts.append(f"<details><summary>Show the cause</summary><p>{say(words)}</p></details>")
            else:
                parts.append(f'<p class="{kind}">{say(words)}</p>')
        parts.append(_table_html(self.rows))
        if self.svg:
            parts.append(f'<div class="cycle">{self.svg}</div>')
        parts.append(self._cases_html())
        if self.skipped:
            parts.append(f'<p class="hint">Skipped: {say(" ".join(self.skipped))}</p>')
        if hint and self.trace is not None and len(self.trace):
            shown = f" ({say(self.shown)})" if self.shown else ""
            parts.append(f'<p class="hint">Your own messages{shown}: <code>Player(verdict.trace)</code></p>')
        parts.append("</div>")
        return "".join(parts)

    def _cases_html(self) -> str:
        """The properties with a square for each case, and beside them the rules with a box each."""
        said = self.already_said()
        rules = {name: cases[0] for name, cases in self.groups.items() if [case.name for case in cases] == [name]}
        groups = {name: cases for name, cases in self.groups.items() if name not in rules}
        failed = sum(case.judged and not case.passed for case in self.cases)
        head = f"<h4>{self._count} pass</h4>" if failed else f"<h4>All {len(self.cases)} cases pass</h4>"
        parts = ['<div class="sides"><div>', head, *(_group_html(name, cases, said) for name, cases in groups.items())]
        if rules:
            later = not any(case.judged for case in rules.values())
            heading = "Judged once the results are right" if later else "Rules"
            parts += [f"</div><div><h4>{heading}</h4>", *(_rule_html(case, said) for case in rules.values())]
        return "".join([*parts, "</div></div>"])


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
    """A line with a square for each case; its failed cases are folded below."""
    squares = "".join(f'<i class="{"good" if case.passed else "bad"}"></i>' for case in cases)
    good = sum(case.passed for case in cases)
    line = f'<span>{html.escape(name)}</span><span class="squares" aria-hidden="true">{squares}</span><small>{good} of {len(cases)}</small>'
    if good == len(cases):
        return f'<div class="group">{line}</div>'
    rows = [
        f"<li><b>{html.escape(case.short_name)}</b>: {html.escape(said[case] or case.reason)}</li>"
        for case in cases
        if not case.passed
    ]
    return f'<details><summary class="group">{line}</summary><ul>{"".join(rows)}</ul></details>'


def _rule_html(case: Case, said: dict[Case, str]) -> str:
    """A rule with its box: ticked, hatched, or empty while it can't be judged."""
    name = html.escape(case.name)
    if not case.judged:
        return f'<div class="rule" title="{html.escape(case.reason)}"><i aria-label="not judged"></i>{name}</div>'
    if case.passed:
        return f'<div class="rule"><i class="good" aria-label="kept">✓</i>{name}</div>'
    why = said[case] or case.reason
    return f'<div class="rule"><i class="bad" aria-label="broken"></i><div>{name}<br><small>{html.escape(why)}</small></div></div>'


_STYLE = """<style>
.ar-verdict{border:1px solid var(--ar-line);border-left:5px solid var(--ar-lost);border-radius:10px;padding:14px 20px;max-width:900px}
.ar-verdict.good{border-left-color:var(--ar-ink)}
.ar-verdict code{font:14px var(--ar-mono)!important;color:var(--ar-ink)!important;background:none!important;padding:0}
.ar-verdict .head{display:flex;gap:10px;align-items:baseline;flex-wrap:wrap;color:var(--ar-soft)}
.ar-verdict .score{margin-left:auto;color:var(--ar-ink);font-size:17px}
.ar-verdict p{margin:6px 0!important}
.ar-verdict .reason{font-size:20px;font-weight:600;line-height:1.3;white-space:pre-line;overflow-wrap:anywhere}
.ar-verdict summary{cursor:pointer;min-height:30px;align-content:center}
.ar-verdict .sides{display:flex;flex-wrap:wrap;gap:4px 48px;margin-top:12px;border-top:1px solid var(--ar-hair);padding-top:8px}
.ar-verdict .sides>div{flex:1 1 320px;min-width:0}
.ar-verdict h4{font:600 15px var(--ar-font)!important;margin:4px 0 8px!important;color:var(--ar-ink)!important}
.ar-verdict .group{display:flex;gap:10px;align-items:center;min-height:26px}
.ar-verdict .group small{white-space:nowrap}
.ar-verdict .group>span:first-of-type{flex:0 0 142px}
.ar-verdict div.group>span:first-of-type{padding-left:18px;flex-basis:160px}
.ar-verdict summary.group::before{content:"›";width:8px;color:var(--ar-soft);font-size:18px}
.ar-verdict details[open]>summary.group::before{transform:rotate(90deg)}
.ar-verdict i{flex:none;display:inline-block;width:13px;height:13px;border-radius:3px;font-style:normal}
.ar-verdict .squares{display:flex;gap:3px;flex-wrap:wrap}
.ar-verdict i.good{background:var(--ar-work)}
.ar-verdict i.bad{background:repeating-linear-gradient(135deg,var(--ar-lost) 0 3px,transparent 3px 6px);border:1px solid var(--ar-lost)}
.ar-verdict .rule{display:flex;gap:10px;align-items:baseline;padding:3px 0}
.ar-verdict .rule i{border:1px solid var(--ar-soft);width:15px;height:15px;line-height:14px;font-size:12px;text-align:center;transform:translateY(2px)}
.ar-verdict .rule i.good{background:none;color:var(--ar-ink)}
.ar-verdict ul{margin:2px 0 6px!important;padding-left:36px}
.ar-verdict li b{font-weight:600}
.ar-verdict .unmet{margin:6px 0;border-collapse:collapse;font-size:14px}
.ar-verdict .unmet caption{text-align:left;color:var(--ar-soft)}
.ar-verdict .unmet td{padding:0 1em 0 0;text-align:left;color:var(--ar-ink);background:none}
.ar-verdict small,.ar-verdict .hint{color:var(--ar-soft);font-size:13px}
.ar-verdict .cycle svg{max-width:100%;height:auto}
</style>"""
