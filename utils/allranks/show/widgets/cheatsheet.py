"""The cheat sheet: every collective on one page, with the numbers that live ranks held before and after it."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from allranks.show.pictures.moves import html_table
from allranks.show.pictures.palette import page_style
from allranks.theory.cost import FORMULAS
from allranks.theory.schedules import ceil_lg


@dataclass(frozen=True)
class Amount:
    """How much a rank sends or receives, in units of n, the full vector: as text, and as a function of p."""

    text: str
    of: Callable[[int], Fraction | int]


NOTHING = Amount("", lambda p: 0)
WHOLE = Amount("n", lambda p: 1)
PART = Amount("n/p", lambda p: Fraction(1, p))
REST = Amount("n(p-1)/p", lambda p: Fraction(p - 1, p))
TWICE_REST = Amount("2n(p-1)/p", lambda p: Fraction(2 * (p - 1), p))
TREE_TIMES = Amount("⌈lg p⌉·n", ceil_lg)


@dataclass(frozen=True)
class Entry:
    """One row of the sheet: how a collective is called, where its result is, its traffic, its cost and its use.

    `example` is the algorithm whose traffic `root_sends`, `root_receives`, `sends` and `receives` describe. `short` and
    `long` are the algorithms to compare for few and for many bytes. Without a root, `sends` and `receives` are those of
    every rank.
    """

    collective: str
    call: str
    place: str
    example: str
    short: str
    long: str
    use: str
    chapter: str
    root_sends: Amount = NOTHING
    root_receives: Amount = NOTHING
    sends: Amount = NOTHING
    receives: Amount = NOTHING

    @property
    def rooted(self) -> bool:
        """Whether one rank, the root, sends or receives another amount than the others."""
        return self.root_sends is not self.sends or self.root_receives is not self.receives

    def traffic(self) -> list[str]:
        """The traffic in words: one line for the root and one for the others, or one line for all ranks."""
        lines = [_flow("each", self.sends, self.receives)]
        if self.rooted:
            lines = [_flow("root", self.root_sends, self.root_receives), _flow("others", self.sends, self.receives)]
        return [line for line in lines if line]

    def costs(self) -> list[tuple[str, str]]:
        """(algorithm, formula of its cost); the algorithm for few bytes first."""
        names = dict.fromkeys((self.short, self.long))
        return [(name, FORMULAS[self.collective, name].text) for name in names]


def _flow(who: str, out: Amount, into: Amount) -> str:
    if out.text == into.text:
        return f"{who} out and in {out.text}" if out.text else ""
    return who + "".join(f" {word} {flow.text}" for word, flow in (("out", out), ("in", into)) if flow.text)


def _everyone(flow: Amount) -> dict[str, Amount]:
    return dict.fromkeys(("root_sends", "root_receives", "sends", "receives"), flow)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "broadcast", "broadcast(x, src)", "in place", "binomial", "binomial", "pipelined chain",
        "rank 0's weights to all; one rank's decision", "10", root_sends=TREE_TIMES, receives=WHOLE,
    ),
    Entry(
        "scatter", "scatter(x, parts or None, src)", "in x; a list on the root only", "flat", "binomial", "binomial",
        "parts that only the root has; no data sets", "11", root_sends=REST, receives=PART,
    ),
    Entry(
        "gather", "gather(x, room or None, dst)", "in a list, on the root only", "flat", "binomial", "binomial",
        "experience to a learner; samples to a writer", "11", root_receives=REST, sends=PART,
    ),
    Entry(
        "reduce", "reduce(x, dst)", "in place on the root; else undefined", "binomial", "binomial", "rabenseifner",
        "a metric that one rank logs", "12", root_receives=TREE_TIMES, sends=WHOLE,
    ),
    Entry(
        "all_reduce", "all_reduce(x)", "in place", "ring", "recursive doubling", "ring",
        "DDP's gradients; tensor parallelism; what all must know", "04", **_everyone(TWICE_REST),
    ),
    Entry(
        "all_gather", "all_gather_single(y, x)", "new buffer y, p times x", "ring", "bruck", "ring",
        "FSDP's weights before use; candidates of all ranks", "13", **_everyone(REST),
    ),
    Entry(
        "reduce_scatter", "reduce_scatter_single(y, "
                          "x)", "new buffer y, x divided by p", "ring", "recursive halving", "ring",
        "ZeRO, FSDP: to each its share of the summed gradient", "14", **_everyone(REST),
    ),
    Entry(
        "all_to_all", "all_to_all_single(y, x)", "new buffer y, as large as x", "pairwise", "bruck", "pairwise",
        "MoE: tokens to experts and back; sharded embeddings", "15", **_everyone(REST),
    ),
    Entry(
        "barrier", "barrier()", "no data", "dissemination", "dissemination", "dissemination",
        "before a clock is read or rank 0's file is opened", "16",
    ),
)  # fmt: skip

_STYLE = (
    f"<style>{page_style('.ar-sheet')}"
    + """
.ar-sheet{font:12px/1.3 var(--jp-ui-font-family,system-ui,sans-serif);color:var(--ar-ink);overflow-x:auto}
.ar-sheet table{border-collapse:collapse;margin:0 0 8px!important;font-size:12px;width:100%;table-layout:auto!important}
.ar-sheet th,.ar-sheet td{border:1px solid var(--ar-line)!important;padding:2px 5px!important;
 text-align:left!important;vertical-align:top!important;white-space:normal;max-width:none!important;color:inherit}
.ar-sheet thead th{background:var(--ar-panel)}
.ar-sheet code,.ar-sheet .ar-held{font:12px/1.4 var(--jp-code-font-family,monospace)!important;
 background:none!important;padding:0!important;border:0!important;color:inherit!important;white-space:nowrap}
.ar-sheet th code{font-weight:700!important}
.ar-sheet caption{caption-side:top;text-align:left;font-weight:600;padding:2px 0;color:inherit}
.ar-sheet small{font-size:12px;color:var(--ar-soft)}
.ar-sheet th code{white-space:normal!important}
.ar-sheet th small{font-weight:400}
.ar-sheet span{white-space:nowrap}
.ar-sheet p{margin:2px 0!important}
.ar-moves{max-width:760px}
.ar-moves a{display:inline-flex;align-items:center;gap:8px;min-height:30px;color:inherit!important}
.ar-moves svg{flex:none}
@media print{
@page{size:A4 landscape;margin:8mm}
body:has(.ar-sheet) *:not(:has(.ar-sheet)):not(.ar-sheet):not(.ar-sheet *){display:none!important}
body:has(.ar-sheet),body:has(.ar-sheet) *:has(.ar-sheet){margin:0!important;padding:0!important;border:0!important;
 max-width:none!important;min-height:0!important}
.ar-sheet,.ar-sheet table{font-size:7.5pt;line-height:1.2;color:#000;overflow:visible}
.ar-sheet th,.ar-sheet td{padding:1px 4px!important}
.ar-sheet code,.ar-sheet .ar-held{font-size:6.8pt!important;line-height:1.3!important}
.ar-sheet small{font-size:6.5pt;color:#000}
.ar-sheet table{margin:0 0 5px!important}
.ar-moves svg{width:52px;height:33px}
.ar-sheet tr,.ar-sheet table+table{break-inside:avoid}}
</style>"""
)


class CheatSheet:
    """The cheat sheet: every collective, with its call, its result, its bytes and its cost, and what your ranks held.

    `held` has one dict for each rank: collective -> (numbers before, numbers after). A collective that is missing there
    gets empty cells. A notebook shows the sheet as HTML, which prints on one page; elsewhere it is text.

    Example:
        >>> sheet = CheatSheet([{"broadcast": ([7], [7])}, {"broadcast": ([0], [7])}])
        >>> sheet.changes("broadcast")
        ['7 → 7', '0 → 7']
    """

    def __init__(self, held: Sequence[Mapping[str, tuple[object, object]]]) -> None:
        self.held = tuple(held)

    def changes(self, collective: str) -> list[str]:
        """For each rank the text "before → after"; "" for a rank that did not run the collective."""
        found = []
        for rank in self.held:
            before, after = rank.get(collective, (None, None))
            found.append("" if collective not in rank else f"{_numbers(before)} → {_numbers(after)}")
        return found

    def __repr__(self) -> str:
        lines = []
        for entry in ENTRIES:
            lines.append(f"{entry.call}: {entry.place}; {'; '.join(entry.traffic()) or 'no bytes'}; {entry.use}")
            lines += [f"    rank {rank}: {text}" for rank, text in enumerate(self.changes(entry.collective)) if text]
            lines += [f"    {name}: {cost}" for name, cost in entry.costs()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        ranks = "".join(f"<th scope=col>rank {rank}</th>" for rank in range(len(self.held)))
        head = (
            f"<tr><th scope=col>dist. and its result</th>{ranks}<th scope=col>bytes out and in</th>"
            "<th scope=col>seconds</th><th scope=col>use</th></tr>"
        )
        body = "".join(self._row(entry) for entry in ENTRIES)
        return (
            f'<div class="ar-sheet" role="region" aria-label="cheat sheet" tabindex="0">{_STYLE}'
            "<table><caption>Collectives: what each rank held before → after; measured on "
            f"{len(self.held)} live ranks</caption><thead>{head}</thead><tbody>{body}</tbody></table>"
            '<table class="ar-moves"><caption>Which one? Whose numbers, and who needs them afterwards</caption>'
            f"{html_table()}</table>{_NOTES}</div>"
        )

    def _row(self, entry: Entry) -> str:
        held = "".join(f'<td><div class="ar-held">{_arrow(text)}</div></td>' for text in self.changes(entry.collective))
        traffic = "<br>".join(_breaking(line, " ") for line in entry.traffic()) or "empty messages"
        costs = "<br>".join(f"{_breaking(cost, ' + ')} <small>{name}</small>" for name, cost in entry.costs())
        use = f"{html.escape(entry.use)} <small>(ch.&nbsp;{entry.chapter})</small>"
        return (
            f"<tr><th scope=row>{_call(entry.call)}<br><small>{html.escape(entry.place)}</small></th>{held}"
            f"<td>{traffic} <small>{entry.example}</small></td><td>{costs}</td><td>{use}</td></tr>"
        )


def _numbers(held: object) -> str:
    if held is None:
        return "–"
    return " ".join(f"{x:g}" if isinstance(x, float) else str(x) for x in held) if isinstance(held, list) else str(held)


def _breaking(text: str, where: str) -> str:
    """A formula that may be broken there, and nowhere else: its terms have hyphens."""
    return where.join(f"<span>{part}</span>" for part in text.split(where))


def _call(text: str) -> str:
    name, bracket, rest = html.escape(text).partition("(")
    return f"<code>{name.replace('_single', '<wbr>_single')}<br>{bracket}{rest}</code>"


def _arrow(text: str) -> str:
    before, arrow, after = html.escape(text).partition(" → ")
    return f"{before}<br>→ {after}" if arrow else ""


_NOTES = (
    "<p><b>n</b> bytes of the full vector (all_gather, reduce_scatter: of all parts together; all_to_all: "
    "what one rank sends in all), <b>p</b> ranks, <b>k</b> segments, <b>α</b> s a message, <b>β</b> s a byte "
    "and direction, <b>γ</b> s a byte added. Few bytes: count α. Many: count nβ. A row with lg p is for "
    "powers of two; else a step or two more.</p><p><b>Always:</b> every rank of the group calls it, in the "
    "same order, with the same shape, dtype and op; nobody checks. Contiguous tensors. An averaged gradient "
    "is a sum divided by p. all_reduce = reduce_scatter + all_gather. The gradient of all_gather is "
    "reduce_scatter, and the other way round.</p>"
)
