"""The race as one page of HTML: every task with its machine, its bound and its entries; nothing is loaded for it.

By hand and with `escape`, not by Jinja2: the live page makes its table in the browser, where there is Python alone.
"""

from __future__ import annotations

from html import escape

from allranks.base import theme
from allranks.theory.race.leaderboard import Entry
from allranks.theory.race.scoring import in_us
from allranks.theory.race.tasks import TASKS, Task

_STYLE = """
body { margin: 0; } main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.2rem; }
h1 { margin: 0 0 .4rem; font-size: 2rem; line-height: 1.2; } h2 { margin: 2.4rem 0 .3rem; font-size: 1.2rem; }
p { margin: .3rem 0; } .soft { color: var(--ar-soft); font-size: .87rem; }
table { width: 100%; border-collapse: collapse; margin-top: .6rem; } th { text-align: left; font-weight: 600; }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--ar-hair); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; } td.s { min-width: 10rem; } .reference { color: var(--ar-soft); }
.bar { display: block; height: .5rem; background: var(--ar-rank-0); } .reference .bar { background: var(--ar-work); }
code { font-family: var(--ar-mono); } .wide { overflow-x: auto; }
"""


def page(entries: list[Entry]) -> str:
    """The HTML of the tasks and of a leaderboard's entries, the fastest first."""
    parts = [section(one, [e for e in entries if e.task == one.name]) for one in TASKS.values()]
    count = sum(e.file is not None for e in entries)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>All Ranks: the race</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{theme.style()}<style>{_STYLE}</style></head>"
        '<body class="ar-theme"><main><h1>The race</h1>'
        f"<p>{len(TASKS)} tasks, {count} schedules. The score is the lower bound over the time: 1 can't be beaten, and "
        "may not be reachable. A schedule is proved right on symbols and timed message by message in whole "
        "picoseconds, so that it has the same score on every machine.</p>"
        "<p class=soft>Try yours: <code>allranks race TASK FILE</code>. Run these again: <code>allranks race "
        "--verify</code>. The grey entries are times by NCCL's tuner, not schedules.</p>"
        f"{''.join(parts)}</main></body></html>\n"
    )


def section(one: Task, entries: list[Entry], yours: Entry | None = None) -> str:
    """The HTML of one task with its entries, the fastest first; `yours` is one of them, and is marked."""
    entries = sorted(entries, key=lambda entry: entry.picoseconds)
    rows = "".join(_row(place, entry, entry is yours) for place, entry in enumerate(entries, 1))
    size = f"{one.ranks} ranks, {one.nbytes} bytes" + (f", from rank {one.root}" if one.root is not None else "")
    return (
        f'<h2 id="{one.name}"><code>{one.name}</code>: {escape(one.title)}</h2><p>{one.collective}, {size}.</p>'
        f"<p class=soft>{escape(one.machine)}.</p>"
        f"<p class=soft>Bound: {in_us(one.bound.picoseconds)}; {escape(one.bound.why)}.</p>"
        "<div class=wide tabindex=0><table><thead><tr><th>entry</th><th class=n>time</th><th class=n>score</th>"
        f"<td></td></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(place: int, entry: Entry, yours: bool) -> str:
    kind = ' class="yours"' if yours else "" if entry.model is None else ' class="reference"'
    share = min(100.0, 100 * float(entry.score))
    source = f'<br><span class="soft">{escape(entry.source)}</span>' if entry.source else ""
    return (
        f"<tr{kind}><td>{place}. {escape(entry.name)} ({escape(entry.by)}){source}</td>"
        f"<td class=n>{in_us(entry.picoseconds)}</td><td class=n>{entry.score}</td>"
        f'<td class=s><span class="bar" style="width:{share:.1f}%"></span></td></tr>'
    )
