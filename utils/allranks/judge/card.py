"""The card of a verdict: the one layout of the notebook's verdict and of a student's feedback, made from plain data.

The data are `Verdict.card()`, or the same that another process sent as JSON: only exercise, passed, score, cases and reason must
be there. All text is escaped, because a submission chooses some of it.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from allranks.base.theme import style
from allranks.judge.message_picture import message_svg

MOST_CHARACTERS = 2000
_SEEN = ("reason", "more")
BLOCKING = "sends that wait for their receiver"  # a rule; where it is broken, the cases ran with sends that do not wait
PASSED = "passed"  # what a check says of a right answer, in the row of the last ones


def short(text: str) -> str:
    """The text, cut where it is a flood."""
    text = str(text)
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " ..."


def told_of(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was seen, a question and the cause, (kind, words); or the reason as a whole."""
    if data["passed"]:
        return []
    whole = [("reason", data["reason"])] if data.get("reason") else []
    return [(kind, words) for kind, words in data.get("told") or whole]


def cases_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each case with its group, whether it was judged, and why it failed: where that was said before, or the reason."""
    said = iter(data.get("already_said", ()))  # for the failed cases
    found = []
    for case, judged, group in zip_longest(data["cases"], data.get("judged", ()), data.get("groups", ())):
        why = "" if case["passed"] else next(said, "") or case.get("reason") or ""
        found.append(case | {"judged": judged is not False, "group": group or "cases", "why": why})
    return found


def variant_of(data: Mapping[str, Any]) -> list[str]:
    """The student's variant in a sentence; empty where there is none."""
    found = data.get("variant")
    return [f"The variant of {short(found['student'])}: {short(found['words'])}"] if found else []


def won_of(data: Mapping[str, Any]) -> list[str]:
    """What a right answer does, as its headline; empty before it passed, and where nobody said it."""
    name, won = short(data["exercise"]), data.get("won")
    return [f"Right: your {name} {short(won)}."] if data["passed"] and won else []


def card(data: Mapping[str, Any], *, points: str = "", picture: str = "", foot: str = "") -> str:
    """The card: the cause first, the line at fault beside its message, then the cases by property and the rules.

    `points` stands in place of the share, `picture` is HTML for what the ranks did where no single message is drawn, and `foot` is
    HTML for the end.

    >>> "not yet" in card({"exercise": "ring_shift", "passed": False, "score": 0.5, "cases": [], "reason": "It is late."})
    True
    """
    name, good = _say(data["exercise"]), data["passed"]
    word = ("passed" if good else "not yet") + _say(data.get("under", ""))
    score = points or f"{data['score']:.0%}"
    head = f'<div class="head"><code>{name}</code><span>{word}</span><strong class="score">{_say(score)}</strong></div>'
    told = told_of(data)
    parts = [
        f'{style()}{_STYLE}<div class="ar-theme ar-verdict {"good" if good else "bad"}" role="group" '
        f'aria-label="Verdict on {name}: {word}">{head}',
        *(f'<p class="won">{_say(words)}</p>' for words in won_of(data)),
        *(f'<p class="variant">{_say(words)}</p>' for words in variant_of(data)),
        *(f'<p class="{kind}">{_say(words)}</p>' for kind, words in told if kind in _SEEN),
        "" if good else _fault(data.get("fault"), picture),
        *(_question_or_cause(kind, words) for kind, words in told if kind not in _SEEN),
        "" if good else _table(data.get("rows", ())),
        _cases(cases_of(data)) if data["cases"] else "",
    ]
    if data.get("skipped"):
        parts.append(f'<p class="hint">Skipped: {_say(" ".join(data["skipped"]))}</p>')
    if data.get("speed"):
        parts.append(f'<p class="speed">{"<br>".join(map(_say, data["speed"]))}</p>')
    return "".join([*parts, foot, "</div>"])


def _say(text: str) -> str:
    return html.escape(short(text)).replace("\n", "<br>")


def _question_or_cause(kind: str, words: str) -> str:
    if kind == "cause":
        return f"<details><summary>Show the cause</summary><p>{_say(words)}</p></details>"
    return f'<p class="{kind}">{_say(words)}</p>'


def _fault(fault: Mapping[str, Any] | None, picture: str) -> str:
    """The student's line with its neighbours, beside the message that it sent or the picture of the whole run."""
    code, message = (fault or {}).get("code"), (fault or {}).get("message")
    sides = []
    if code:
        rows = "".join(
            f"<tr{_MARKED if number == code['marked'] else ''}><td>{number}</td><td>{_say(text)}</td></tr>"
            for number, text in code["lines"]
        )
        place = _say(code["place"])
        sides.append(f'<div><h4>Your {place}</h4><table class="code"><tbody>{rows}</tbody></table></div>')
    if message:
        sides.append(f"<div><h4>{_heading(message)}</h4>{message_svg(message)}</div>")
    elif picture:
        sides.append(f'<div class="cycle">{picture}</div>')
    return f'<div class="fault">{"".join(sides)}</div>' if sides else ""


_MARKED = ' class="marked" aria-label="the line at fault"'


def _heading(message: Mapping[str, Any]) -> str:
    step = f", step {message['step']} of {message['steps']}" if message.get("step") else ""
    return f"The message{step}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    body = "".join("<tr>" + "".join(f"<td>{_say(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="unmet"><caption>Without a partner</caption><tbody>{body}</tbody></table>'


def _cases(cases: Sequence[Mapping[str, Any]]) -> str:
    """The properties with a square for each case, and beside them the rules with a box each."""
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for case in cases:
        by_group.setdefault(case["group"], []).append(case)
    rules = [own[0] for name, own in by_group.items() if [case["name"] for case in own] == [name]]
    groups = {name: own for name, own in by_group.items() if own[0] not in rules}
    counted = [case for own in groups.values() for case in own if case["judged"]]
    passed = sum(case["passed"] for case in counted)
    head = f"{passed} of {len(counted)} cases pass" if passed < len(counted) else f"All {passed} cases pass"
    if any(case["name"] == BLOCKING and case["judged"] and not case["passed"] for case in rules):
        head += ", if sends do not wait"
    parts = [f'<div class="sides"><div><h4>{head}</h4>', *(_group(name, own) for name, own in groups.items())]
    if rules:
        parts += [f"</div><div><h4>{_rules_heading(rules)}</h4>", *map(_rule, rules)]
    return "".join([*parts, "</div></div>"])


def _rules_heading(rules: Sequence[Mapping[str, Any]]) -> str:
    """How many rules are kept, of those that could be judged; the others are neither kept nor broken.

    >>> _rules_heading([{"judged": True, "passed": True}, {"judged": False, "passed": False}])
    '1 of 1 rule kept; 1 not judged yet'
    """
    judged = [case for case in rules if case["judged"]]
    if not judged:
        return "Judged once the results are right"
    kept, later = sum(case["passed"] for case in judged), len(rules) - len(judged)
    words = f"{kept} of {len(judged)} {'rule' if len(judged) == 1 else 'rules'} kept"
    return words + (f"; {later} not judged yet" if later else "")


def _group(name: str, cases: Sequence[Mapping[str, Any]]) -> str:
    """A line with a square for each case; its failed cases are folded below."""
    squares = "".join(f'<i class="{"good" if case["passed"] else "bad"}"></i>' for case in cases)
    good = sum(case["passed"] for case in cases)
    line = f'<span>{_say(name)}</span><span class="squares" aria-hidden="true">{squares}</span><small>{good} of {len(cases)}</small>'
    if good == len(cases):
        return f'<div class="group">{line}</div>'
    rows = [
        f"<li><strong>{_say(case['name'].removeprefix(f'{name}: '))}</strong>: {_say(case['why'])}</li>"
        for case in cases
        if not case["passed"]
    ]
    return f'<details><summary class="group">{line}</summary><ul>{"".join(rows)}</ul></details>'


def _rule(case: Mapping[str, Any]) -> str:
    """A rule with its box: ticked, hatched, or empty while it can't be judged."""
    name = _say(case["name"])
    if not case["judged"]:
        return f'<div class="rule" title="{_say(case["why"])}"><i aria-label="not judged"></i>{name}</div>'
    if case["passed"]:
        return f'<div class="rule"><i class="good" aria-label="kept">✓</i>{name}</div>'
    why = f"<br><small>{_say(case['why'])}</small>"
    return f'<div class="rule"><i class="bad" aria-label="broken"></i><div>{name}{why}</div></div>'


def last_checks(history: Sequence[tuple[str, str]]) -> str:
    """A row with what the last checks of this exercise said, (time, words); nothing where there is only one.

    >>> "deadlock" in last_checks([("13:41", "deadlock"), ("13:55", "whole vectors")])
    True
    """
    if len(history) < 2:
        return ""
    row = "".join(f"<span>{_dot(words)}<small>{_say(at)}</small> {_say(words)}</span>" for at, words in history)
    words = [said for _, said in history]
    different = len(set(words)) == len(words) and PASSED not in words
    praise = f"<small>{len(words)} different mistakes: that is progress</small>" if different else ""
    return f'<div class="last"><strong>Your last checks</strong>{row}{praise}</div>'


def _dot(words: str) -> str:
    return '<i class="good" aria-hidden="true">✓</i>' if words == PASSED else "<i></i>"


_STYLE = """<style>
.ar-verdict{border:1px solid var(--ar-line);border-left:5px solid var(--ar-lost);border-radius:10px;padding:14px 20px;max-width:1000px}
.ar-verdict.good{border:2px solid var(--ar-ink);border-left-width:8px}
.ar-verdict code{font:14px var(--ar-mono)!important;color:var(--ar-ink)!important;background:none!important;padding:0}
.ar-verdict .head{display:flex;gap:10px;align-items:baseline;flex-wrap:wrap;color:var(--ar-soft)}
.ar-verdict .score{margin-left:auto;color:var(--ar-ink);font-size:17px}
.ar-verdict p{margin:6px 0!important}
.ar-verdict .reason{font-size:20px;font-weight:600;line-height:1.3;overflow-wrap:anywhere}
.ar-verdict .won{font-size:28px;font-weight:700;line-height:1.2;margin:10px 0 14px!important;overflow-wrap:anywhere}
.ar-verdict .speed{margin-top:12px!important;border-top:1px solid var(--ar-hair);padding-top:10px;overflow-wrap:anywhere}
.ar-verdict summary{cursor:pointer;min-height:30px;align-content:center}
.ar-verdict .fault{display:flex;flex-wrap:wrap;gap:8px 40px;margin:10px 0}
.ar-verdict .fault>div{flex:1 1 320px;min-width:0;overflow-x:auto}
.ar-verdict table.code{table-layout:auto!important;border-collapse:collapse;width:100%;margin:0!important;background:var(--ar-panel);border-radius:6px}
.ar-verdict .code tr{background:none!important}
.ar-verdict .code td{font:13px/1.7 var(--ar-mono)!important;color:var(--ar-ink)!important;white-space:pre-wrap;overflow-wrap:anywhere;text-align:left!important;
padding:0 12px 0 0!important;border:0!important;background:none!important}
.ar-verdict .code td:first-child{width:1%;white-space:nowrap;overflow-wrap:normal;padding:0 14px 0 12px!important;text-align:right!important;color:var(--ar-soft)!important}
.ar-verdict .code .marked td{background:var(--ar-you)!important;color:var(--ar-on-you)!important}
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
.ar-verdict .unmet{margin:6px 0;border-collapse:collapse;font-size:14px}
.ar-verdict .unmet caption{text-align:left;color:var(--ar-soft)}
.ar-verdict .unmet td{padding:0 1em 0 0;text-align:left;color:var(--ar-ink);background:none}
.ar-verdict .last{display:flex;flex-wrap:wrap;gap:4px 28px;align-items:baseline;margin-top:12px;border-top:1px solid var(--ar-hair);padding-top:10px}
.ar-verdict .last i{width:12px;height:12px;border-radius:6px;background:var(--ar-you);border:2px solid var(--ar-ink);margin-right:8px;transform:translateY(1px)}
.ar-verdict .last i.good{background:none;border:0;font:700 15px/12px var(--ar-font);color:var(--ar-ink)}
.ar-verdict .last>small{margin-left:auto}
.ar-verdict small,.ar-verdict .hint{color:var(--ar-soft);font-size:13px}
.ar-verdict .cycle svg,.ar-verdict .cycle img{max-width:100%;height:auto}
</style>"""
