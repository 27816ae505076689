"""The nine moves in their order: where the numbers come from, and where they go; with the chapter that explains each.

Text, Markdown and HTML tables of them are made here, so that the cheat sheet, the drill and the site show the same.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from html import escape

from allranks.show.pictures.pictogram import pictogram

TO = ("to one", "to all", "a part to each")


@dataclass(frozen=True)
class Move:
    """One of the nine: its picture's name, its own, what it does in a few words, and its chapter as PART/STEM."""

    name: str
    called: str
    does: str
    chapter: str


# Rows: whose numbers, and whether they are joined or added. Columns: TO.
MOVES: tuple[tuple[str, tuple[Move, Move, Move]], ...] = (
    (
        "from one",
        (
            Move("send_recv", "send / recv", "one rank to another", "1_first_hours/03_point_to_point"),
            Move("broadcast", "broadcast", "the same to everybody", "2_collectives/10_broadcast"),
            Move("scatter", "scatter", "to each its part", "2_collectives/11_scatter_and_gather"),
        ),
    ),
    (
        "from all, side by side",
        (
            Move("gather", "gather", "all parts, on one rank", "2_collectives/11_scatter_and_gather"),
            Move("all_gather", "all-gather", "all parts, on every rank", "2_collectives/13_all_gather"),
            Move("all_to_all", "all-to-all", "my part j to rank j", "2_collectives/15_all_to_all"),
        ),
    ),
    (
        "from all, added up",
        (
            Move("reduce", "reduce", "the sum, on one rank", "2_collectives/12_reduce"),
            Move("all_reduce", "all-reduce", "the sum, on every rank", "1_first_hours/04_all_reduce"),
            Move("reduce_scatter", "reduce-scatter", "of the sum, to each its part", "2_collectives/14_reduce_scatter"),
        ),
    ),
)


def data_uri(svg: str) -> str:
    """An SVG as the address of a picture, so that a notebook needs no second file.

    >>> data_uri("<svg/>")
    'data:image/svg+xml;base64,PHN2Zy8+'
    """
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def image(svg: str, alt: str, width: int) -> str:
    """The HTML of a picture for a text cell. Markdown's own image would be refused: some readers accept no SVG there.

    >>> image("<svg/>", "nothing", 48)
    '<img alt="nothing" width="48" src="data:image/svg+xml;base64,PHN2Zy8+">'
    """
    return f'<img alt="{escape(alt)}" width="{width}" src="{data_uri(svg)}">'


def markdown_table() -> str:
    """The nine moves as a Markdown table; every picture links to its chapter, as seen from another one."""
    lines = ["| | " + " | ".join(TO) + " |", "|---|---|---|---|"]
    for whence, moves in MOVES:
        cells = [
            f"[{image(pictogram(move.name, 168), '', 168)}<br>**{move.called}**]"
            f"(../{move.chapter}.ipynb)<br>{move.does}"
            for move in moves
        ]
        lines.append(f"| **{whence}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def html_table() -> str:
    """The nine moves as an HTML table, for a page with `palette.page_style`; each links to its chapter's notebook."""
    head = "".join(f"<th scope=col>{escape(where)}</th>" for where in TO)
    rows = "".join(
        f"<tr><th scope=row>{escape(whence)}</th>{''.join(f'<td>{_cell(move)}</td>' for move in moves)}</tr>"
        for whence, moves in MOVES
    )
    return f"<thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody>"


def _cell(move: Move) -> str:
    picture = pictogram(move.name, 96, inline=True)
    return (
        f'<a href="../{move.chapter}.ipynb">{picture}<b>{escape(move.called)}</b></a> <span>{escape(move.does)}</span>'
    )
