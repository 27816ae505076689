"""The figure of docs/validation.md: whether the 80 % intervals hold, and all points."""

from __future__ import annotations

import math
from collections.abc import Sequence

INK, GREY, LIGHT, LINE = "#1b1f24", "#57606a", "#e8ebeb", "#c8ccd0"
ONE, SEVERAL = "#0072b2", "#d55e00"
WIDTH, HEIGHT, LEFT = 760, 560, 190


def coverage_and_points(
    rows: Sequence[tuple[str, float, float]], dots: Sequence[tuple[float, float, bool, bool]]
) -> str:
    """`rows` are (kind, share inside, width); `dots` (bytes, foretold over measured, several nodes, inside)."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_coverage(rows),
        *_points(dots),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _coverage(rows: Sequence[tuple[str, float, float]]) -> list[str]:
    def x(share: float) -> float:
        return LEFT + (WIDTH - LEFT - 110) * (share - 0.4) / 0.6

    bottom = 34 + 24 * len(rows)
    parts = [
        f'<text x="12" y="18" fill="{INK}" font-weight="bold">held by the 80 % interval, each site left out</text>',
        f'<text x="{WIDTH - 16}" y="18" text-anchor="end" fill="{GREY}">high / low</text>',
        f'<rect x="{x(0.7):.1f}" y="28" width="{x(0.9) - x(0.7):.1f}" height="{bottom - 28}" fill="{LIGHT}"/>',
        f'<line x1="{x(0.8):.1f}" x2="{x(0.8):.1f}" y1="28" y2="{bottom}" stroke="{GREY}" stroke-dasharray="3 3"/>',
    ]
    for at, (kind, share, width) in enumerate(rows):
        y = 46 + 24 * at
        parts.append(f'<text x="12" y="{y + 4}" fill="{INK}">{kind}</text>')
        parts.append(f'<circle cx="{x(share):.1f}" cy="{y}" r="5" fill="{INK}"/>')
        parts.append(f'<text x="{WIDTH - 16}" y="{y + 4}" text-anchor="end" fill="{GREY}">x {width:.1f}</text>')
    for share in (0.4, 0.6, 0.8, 1.0):
        parts.append(
            f'<text x="{x(share):.1f}" y="{bottom + 16}" text-anchor="middle" fill="{GREY}">{100 * share:.0f} %</text>'
        )
    return parts


def _points(dots: Sequence[tuple[float, float, bool, bool]]) -> list[str]:
    top, bottom, left, most = 230, HEIGHT - 40, 56, 8.0

    def x(nbytes: float) -> float:
        return left + (WIDTH - left - 16) * math.log2(max(nbytes, 4) / 4) / 33

    def y(ratio: float) -> float:
        share = math.log(max(1 / most, min(most, ratio))) / math.log(most)
        return (top + bottom) / 2 - share * (bottom - top) / 2

    parts = []
    for ratio, label in ((0.125, "1/8"), (0.25, "1/4"), (0.5, "1/2"), (1, "1"), (2, "2"), (4, "4"), (8, "8")):
        parts.append(f'<line x1="{left}" x2="{WIDTH - 16}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="{LINE}"/>')
        parts.append(f'<text x="{left - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end" fill="{GREY}">{label}</text>')
    for power, label in ((10, "1 KiB"), (16, "64 KiB"), (20, "1 MiB"), (28, "256 MiB"), (33, "8 GiB")):
        parts.append(f'<text x="{x(2**power):.1f}" y="{bottom + 18}" text-anchor="middle" fill="{GREY}">{label}</text>')
    for nbytes, ratio, several, inside in dots:
        colour = SEVERAL if several else ONE
        fill = f'fill="{colour}" fill-opacity="0.6"' if inside else f'fill="none" stroke="{colour}"'
        parts.append(f'<circle cx="{x(nbytes):.1f}" cy="{y(ratio):.1f}" r="2.2" {fill}/>')
    words = "foretold / measured, each site left out; blue: one node, orange: several; filled: inside its interval, hollow: outside"
    return [*parts, f'<text x="{left}" y="{HEIGHT - 6}" fill="{GREY}">{words}</text>']
