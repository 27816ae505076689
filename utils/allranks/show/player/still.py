"""The still picture: what every cell holds after each step, side by side, with arrows for the messages in between.

It is for places where no script runs: GitHub, a PDF, an e-mail. The background is white, because the theme is unknown
there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from allranks.base.theme import LIGHT
from allranks.show.player.animation import Animation, Bar, Transfer, contributors

COLOURS = tuple(LIGHT[f"rank-{rank}"] for rank in range(4))
_INK, _SOFT, _LINE, _PANEL, _WIRE, _WORK, _LOST, _LOST_TEXT = (
    LIGHT[name] for name in ("ink", "soft", "line", "panel", "wire", "work", "lost", "lost-text")
)
_HUES = 8
_COLUMNS = 8
_ROWS = 16
_BUSY = 200


def still(animations: Sequence[Animation]) -> str:
    """One SVG document with the pictures of all animations, one below the other."""
    pieces, top, wide = [], 0.0, 0.0
    for f in animations:
        body, w, h = _picture(f)
        pieces.append(f'<g transform="translate(0 {top:g})">{body}</g>')
        top, wide = top + h, max(wide, w)
    title = escape("; ".join(f"{f.title}, {f.ranks} ranks" for f in animations))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {top:g}" width="{wide:g}" height="{top:g}" '
        f'role="img" aria-label="{title}" font-family="Helvetica, Arial, sans-serif"><title>{title}</title>'
        f'{_dots()}<rect width="{wide:g}" height="{top:g}" fill="#fff"/>{"".join(pieces)}</svg>'
    )


def _dots() -> str:
    """The patterns of ranks 4 to 7: the hues of ranks 0 to 3, dotted."""
    tiles = "".join(
        f'<pattern id="rank-{r}" width="4" height="4" patternUnits="userSpaceOnUse"><rect width="4" height="4" '
        f'fill="{COLOURS[r % 4]}"/><circle cx="1.4" cy="1.4" r="0.9" fill="{_INK if r % 4 else "#fff"}"/></pattern>'
        for r in range(4, _HUES)
    )
    return f"<defs>{tiles}</defs>"


def _hue(rank: int, ranks: int) -> str:
    """Whose numbers: a hue, the same ones dotted from rank 4 on, and none among more than eight ranks."""
    if ranks > _HUES:
        return _SOFT
    return COLOURS[rank] if rank < len(COLOURS) else f"url(#rank-{rank})"


def _picture(f: Animation) -> tuple[str, float, float]:
    if f.bars and not f.transfers and not f.chunks:
        return _lanes(f)
    rows = min(f.ranks, _ROWS)
    shown = min(f.chunks, 16)
    cell = 14.0 if shown <= 4 else 8.0 if shown <= 8 else 4.0
    tall = max(32.0, min(44.0, 2.5 * rows)) if f.chunks else 18.0
    column, row, gap = max(24.0, shown * (cell + 2)), tall + 16, 62.0
    keep = _kept(f.steps)
    states = dict(zip(keep, f.states(keep), strict=True)) if f.chunks else {}
    left, top = 62.0, 52.0
    wide = left + len(keep) * column + (len(keep) - 1) * gap + 16
    high = top + rows * row + 8
    signs = "; + adds, = stores" if any(transfer.effect_known for transfer in f.transfers) else ""
    out = _head(f, f"{f.steps} steps{signs}", rows, top, row, tall)
    paths: dict[str, list[str]] = defaultdict(list)
    for number, step in enumerate(keep):
        x = left + number * (column + gap)
        name = "start" if step == 0 else f"step {step}"
        out.append(f'<text x="{x:g}" y="{top - 5:g}" font-size="11" fill="{_SOFT}">{name}</text>')
        for r in range(rows):
            y = top + r * row
            if not f.chunks:
                out.append(f'<rect x="{x:g}" y="{y:g}" width="{column:g}" height="{tall:g}" fill="{_PANEL}"/>')
            for c in range(shown):
                held = contributors(states[step].get((r, c), ()))
                at = x + c * (cell + 2)
                _cell(paths, at, y, cell, tall, held, f.ranks)
                if f.goal.get((r, c)) and held == contributors(f.goal[r, c]):
                    paths["done"].append(f"M{at:g} {y:g}h{cell:g}v{tall:g}h-{cell:g}z")
        if number + 1 < len(keep) and keep[number + 1] == step + 1:
            now = [
                transfer
                for transfer in f.transfers
                if transfer.step == step and transfer.src < rows and transfer.dst < rows
            ]
            if len(now) <= _BUSY:
                out += [_arrow(transfer, x + column + 3, gap - 6, top + tall / 2, row, rows) for transfer in now]
            for item in f.bars:
                if item.end_step is None and item.step == step and item.rank < rows and item.peer is not None:
                    words, y = f"waits for {item.peer}", top + item.rank * row + tall / 2 + 4
                    out.append(
                        f'<text x="{x + column + 4:g}" y="{y:g}" font-size="11" fill="{_LOST_TEXT}">{words}</text>'
                    )
        elif number + 1 < len(keep):
            out.append(f'<text x="{x + column + gap / 2 - 6:g}" y="{top + rows * row / 2:g}" font-size="16">…</text>')
    frame, twice, done = paths.pop("frame", []), paths.pop("twice", []), paths.pop("done", [])
    out.append(f'<path d="{"".join(frame)}" fill="#fff" stroke="{_LINE}" stroke-width="0.8"/>')
    out += [f'<path d="{"".join(d)}" fill="{colour}"/>' for colour, d in paths.items()]
    out.append(f'<path d="{"".join(done)}" fill="none" stroke="{_INK}" stroke-width="1.6"/>')
    out.append(f'<path d="{"".join(twice)}" stroke="{_LOST}" stroke-width="2.5" stroke-dasharray="2 1"/>')
    return "".join(out), max(wide, 320.0), high


def _lanes(f: Animation) -> tuple[str, float, float]:
    """Bars along the time, with a lane for each rank: for runs where only whole collectives are known."""
    rows = min(f.ranks, _ROWS)
    bars = [bar for bar in f.bars if bar.rank < rows]
    timed = [(bar.start, bar.end) for bar in bars if bar.start is not None]
    first = min((start for start, _ in timed), default=0.0)
    last = max((start if end is None else end for start, end in timed), default=0.0)
    spans = {}
    for number, bar in enumerate(bars):
        if last > first and bar.start is not None:
            spans[number] = (bar.start - first, (last if bar.end is None else bar.end) - first)
        else:  # no clock: by step
            spans[number] = (float(bar.step), float(f.steps if bar.end_step is None else bar.end_step + 1))
    whole = max((end for _, end in spans.values()), default=1.0) or 1.0
    left, top, wide, row = 62.0, 52.0, 700.0, 30.0
    names = list(dict.fromkeys(short(bar) for bar in bars))
    # hues say whose numbers, so operations have none: work is grey, what is on the wire is sky
    colour_of = {short(bar): _LINE if bar.own else {"wait": _LOST, "compute": _WORK}.get(bar.op, _WIRE) for bar in bars}
    span = f"{(last - first) * 1e3:.3g} ms" if last > first else f"{f.steps} steps"
    out = _head(f, f"{span} from left to right, a lane for each rank", rows, top, row, 22)
    out += [
        f'<rect x="{left:g}" y="{top + r * row:g}" width="{wide:g}" height="22" fill="{_PANEL}"/>' for r in range(rows)
    ]
    paths: dict[str, list[str]] = defaultdict(list)
    inside: list[str] = []
    for number, bar in enumerate(bars):
        x, until = (left + wide * t / whole for t in spans[number])
        y, w = top + bar.rank * row, max(until - x, 1.0)
        paths[short(bar)].append(f"M{x:.1f} {y + 1:g}h{w:.1f}v20h-{w:.1f}z")
        if w > 7 * len(short(bar)) + 8:
            inside.append(f'<text x="{x + 4:.1f}" y="{y + 15:g}" font-size="11">{escape(short(bar))}</text>')
    for name, d in paths.items():
        out.append(
            f'<path d="{"".join(d)}" fill="{colour_of[name]}" fill-opacity="0.75" stroke="#fff" stroke-width="0.6"/>'
        )
    out += inside
    x, y = left, top + rows * row + 12
    for name in names[:12]:
        if x + 7 * len(name) + 24 > left + wide:
            x, y = left, y + 16
        out.append(f'<rect x="{x:g}" y="{y - 9:g}" width="10" height="10" fill="{colour_of[name]}"/>')
        out.append(f'<text x="{x + 14:g}" y="{y:g}" font-size="11">{escape(name)}</text>')
        x += 7 * len(name) + 30
    return "".join(out), left + wide + 16, y + 10


def _head(f: Animation, said: str, rows: int, top: float, row: float, tall: float) -> list[str]:
    """The title, a line below it, and the names of the rows."""
    line = f"{f.ranks} ranks, {said}" + (f"; the first {rows} ranks" if rows < f.ranks else "")
    out = [
        f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(f.title)}</text>',
        f'<text x="8" y="36" font-size="11" fill="{_SOFT}">{line}</text>',
    ]
    for r in range(rows):
        y = top + r * row + tall / 2
        out.append(f'<circle cx="12" cy="{y:g}" r="4" fill="{_hue(r, f.ranks)}"/>')
        out.append(f'<text x="20" y="{y + 4:g}" font-size="11">rank {r}</text>')
    return out


def short(bar: Bar) -> str:
    """The name of a bar: its label, or torch's name without the ending that describes the arguments."""
    if bar.op == "wait":
        return "wait for its call" if bar.own else "wait"
    return bar.label or bar.op.removesuffix("_single").removesuffix("_tensor").removesuffix("_into")


def _kept(steps: int) -> list[int]:
    """The steps whose states are shown: all of them if they fit, else the first ones and the last."""
    if steps <= _COLUMNS:
        return list(range(steps + 1))
    return [*range(_COLUMNS - 1), steps]


def _cell(paths: dict[str, list[str]], x: float, y: float, w: float, h: float, held: list[int], ranks: int) -> None:
    """Adds a cell to the paths. There is one path for each colour, so that a large picture is still a small file."""
    stripe = h / ranks
    paths["frame"].append(f"M{x:g} {y:g}h{w:g}v{h:g}h-{w:g}z")
    if ranks > _ROWS:
        # too many ranks for stripes: the height shows how many contributed
        full = round(h * len(set(held)) / ranks, 1)
        paths[_SOFT].append(f"M{x:g} {y + h - full:g}h{w:g}v{full:g}h-{w:g}z")
        return
    for r in sorted(set(held)):
        paths[_hue(r, ranks)].append(f"M{x:g} {round(y + r * stripe, 1):g}h{w:g}v{round(stripe, 2):g}h-{w:g}z")
        if held.count(r) > 1:
            paths["twice"].append(f"M{x:g} {round(y + (r + 0.5) * stripe, 1):g}h{w:g}")


def _arrow(transfer: Transfer, x: float, wide: float, top: float, row: float, rows: int) -> str:
    a, b = top + transfer.src * row, top + transfer.dst * row
    colour, words = _WIRE, _INK
    dash, end = "", x + wide
    if not transfer.delivered:
        colour, words, dash = _LOST, _LOST_TEXT, ' stroke-dasharray="4 3"'
        end, b = x + wide * 0.55, a + (b - a) * 0.55
    label = _named(transfer.chunks)
    sign = {"adds": "+", "stores": "=", "receives": ""}[transfer.does] if transfer.delivered else "✗"
    # put the label near the sender, where the arrows do not cross yet
    near = 0.2 if abs(transfer.dst - transfer.src) < rows / 2 else 0.08
    tx, ty = x + wide * near, a + (b - a) * near - 3
    return (
        f'<path d="M{x:g} {a:.1f}L{end:g} {b:.1f}" stroke="{colour}" stroke-width="1.3"{dash}/>'
        f'<circle cx="{end:g}" cy="{b:.1f}" r="2.4" fill="{colour}"/>'
        f'<text x="{tx:.1f}" y="{ty:.1f}" font-size="10" fill="{words}" stroke="#fff" stroke-width="2" '
        f'paint-order="stroke">{label}{sign}</text>'
    )


def _named(chunks: tuple[int, ...]) -> str:
    """The chunks of a message, in a short form: "c0", "c0…3", "c0,2…6"."""
    if len(chunks) < 2:
        return "".join(f"c{c}" for c in chunks)
    whole = chunks == tuple(range(chunks[0], chunks[-1] + 1))
    first = f"c{chunks[0]}" if whole else f"c{chunks[0]},{chunks[1]}"
    return first if len(chunks) == 2 and not whole else f"{first}…{chunks[-1]}"
