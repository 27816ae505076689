"""The message that is at fault, drawn: what its sender and its receiver held before it, and what it carried."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

_HUES = 4
_CELL, _TALL, _GAP = 36, 60, 6
_TOP = 34  # of the cells in a rank's card
_BETWEEN = 150  # where the packet flies
_LINE = 18


def message_svg(message: Mapping[str, Any]) -> str:
    """The picture, an SVG that follows the theme's colours. `message` is what `fault.message_of` found; it holds no inputs.

    >>> 'rank 1' in message_svg({"src": 0, "dst": 1, "ranks": 2, "sent": "6 elements", "expected": "3"})
    True
    """
    cells = len(message.get("src_cells") or ())
    wide = max(96, cells * (_CELL + _GAP) + 18)
    tall = _TOP + (_TALL + 26 if cells else 12)
    middle = max(tall, 72) / 2 + 4  # the packet is 60 high, and its cross sticks out
    whole = 2 * wide + _BETWEEN
    said = [words for words in _below(message) if words]
    top = 2 * middle + 2
    looks = ("fill:var(--ar-lost-text);font-weight:600", "fill:var(--ar-soft)")
    parts = [
        _rank((1, middle - tall / 2), (wide, tall), message["src"], message.get("src_cells") or (), message["ranks"]),
        _rank(
            (whole - wide - 1, middle - tall / 2),
            (wide, tall),
            message["dst"],
            message.get("dst_cells") or (),
            message["ranks"],
        ),
        _flight(wide, whole - wide, middle, message),
        *(
            _text(whole / 2, top + 14 + number * _LINE, words, f"{looks[number]};text-anchor:middle")
            for number, words in enumerate(said)
        ),
    ]
    height = top + 6 + _LINE * len(said)
    label = html.escape(in_words(message), quote=True)
    return (
        f'<svg class="ar-message" viewBox="0 0 {whole} {height}" width="{whole}" height="{height}" role="img" '
        f'aria-label="{label}" style="font:13px var(--ar-font);display:block">{"".join(parts)}</svg>'
    )


def in_words(message: Mapping[str, Any]) -> str:
    """The same in a sentence, for those who can't see it."""
    chunks = ", ".join(f"c{c}" for c in message.get("chunks") or ())
    words = f"rank {message['src']} sends {chunks or 'a message'} to rank {message['dst']}"
    sent, expected = _below(message)
    return ", ".join(filter(None, [f"{words}: {sent}" if sent else words, expected]))


def _below(message: Mapping[str, Any]) -> tuple[str, str]:
    """Two lines below the packet: what it carried, and what was expected."""
    sent = message.get("sent") or message.get("why") or ("" if message.get("delivered", True) else "never received")
    expected = message.get("expected")
    return sent, f"expected: {expected}" if expected else ""


def _hue(rank: int) -> str:
    return f"var(--ar-rank-{rank % _HUES})"


def _text(x: float, y: float, words: str, look: str = "fill:var(--ar-ink)") -> str:
    return f'<text x="{x:g}" y="{y:g}" style="{look}">{html.escape(words)}</text>'


def _rank(
    at: tuple[float, float], size: tuple[float, float], rank: int, cells: Sequence[Sequence[int]], ranks: int
) -> str:
    (x, y), (wide, tall) = at, size
    box = f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="6" style="fill:var(--ar-panel);stroke:var(--ar-line)"/>'
    dot = f'<rect x="{x + 10:g}" y="{y + 11:g}" width="11" height="11" rx="2" style="fill:{_hue(rank)}"/>'
    out = [box, dot, _text(x + 27, y + 21, f"rank {rank}", "fill:var(--ar-ink);font-weight:600")]
    for number, held in enumerate(cells):
        left = x + 12 + number * (_CELL + _GAP)
        out.append(_cell(left, y + _TOP, _CELL, _TALL, held, ranks))
        out.append(
            _text(
                left + _CELL / 2,
                y + _TOP + _TALL + 17,
                f"c{number}",
                "fill:var(--ar-soft);text-anchor:middle;font-size:12px",
            )
        )
    return "".join(out)


def _cell(x: float, y: float, wide: float, tall: float, held: Sequence[int], ranks: int) -> str:
    """A chunk: a stripe for each rank whose numbers are in it, an ink frame once all are, hatched where one is there twice."""
    out = [
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" style="fill:var(--ar-paper);stroke:var(--ar-line)"/>'
    ]
    stripe = tall / ranks
    for rank in sorted(set(held)):
        top = y + rank * stripe
        out.append(f'<rect x="{x:g}" y="{top:g}" width="{wide:g}" height="{stripe:g}" style="fill:{_hue(rank)}"/>')
        times = list(held).count(rank)
        words = f"{rank}×{times}" if times > 1 else f"{rank}"
        ink = "var(--ar-on-rank-0)" if rank % _HUES == 0 else "var(--ar-on-rank)"
        look = f"fill:{ink};text-anchor:middle;font-size:12px;font-weight:600"
        if stripe >= 12:
            out.append(_text(x + wide / 2, top + stripe / 2 + 4, words, look))
        if times > 1:
            frame = "fill:none;stroke:var(--ar-lost);stroke-width:3"
            out.append(f'<rect x="{x:g}" y="{top:g}" width="{wide:g}" height="{stripe:g}" style="{frame}"/>')
    if sorted(held) == list(range(ranks)):
        frame = "fill:none;stroke:var(--ar-ink);stroke-width:2"
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="2" style="{frame}"/>')
    return "".join(out)


def _flight(left: float, right: float, y: float, message: Mapping[str, Any]) -> str:
    """The packet between the two, in vermilion, with a cross at its corner."""
    carried = message.get("carried") or ()
    middle, lost = (left + right) / 2, "stroke:var(--ar-lost)"
    line = f'<path d="M{left + 6:g} {y:g}H{right - 12:g}" style="{lost};stroke-width:2.5;stroke-dasharray:5 4"/>'
    head = f'<path d="M{right - 15:g} {y - 5:g}l11 5-11 5z" style="fill:var(--ar-lost)"/>'
    chunks: Sequence[int] = message.get("chunks") or ()
    w, h = (66 if len(chunks) == 1 else 108, 60) if chunks else (40, 32)
    box = (
        f'<rect x="{middle - w / 2:g}" y="{y - h / 2:g}" width="{w}" height="{h}" rx="6" '
        f'style="fill:var(--ar-paper);{lost};stroke-width:2.5"/>'
    )
    name = f"c{chunks[0]}" if len(chunks) == 1 else f"{len(chunks)} chunks" if chunks else ""
    inside = [_text(middle + 15, y + 5, name, "fill:var(--ar-ink);font-weight:600;text-anchor:middle")]
    if carried:
        inside.append(_cell(middle - w / 2 + 8, y - 22, 22, 44, carried, message["ranks"]))
    cross = (
        f'<circle cx="{middle + w / 2:g}" cy="{y - h / 2:g}" r="9" style="fill:var(--ar-lost)"/><path d="M{middle + w / 2 - 4:g} {y - h / 2 - 4:g}l8 8m0-8l-8 8" '
        'style="stroke:#fff;stroke-width:2"/>'
    )
    return "".join([line, head, box, *inside, cross])
