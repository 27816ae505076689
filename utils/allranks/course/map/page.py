"""The map as a page: the head with its button, what the signs mean, the drawing in the width that fits."""

from __future__ import annotations

import re
from html import escape

from allranks.base import theme
from allranks.base.chapters import Chapter
from allranks.course.map import words
from allranks.course.map.drawing import Manner, drawing
from allranks.course.map.shapes import circle, path, placed, rect
from allranks.course.map.tall import tall
from allranks.course.state import State
from allranks.show.pictures.palette import page_style, shared_style

WIDTHS = (1180, 1040)  # of the wide drawing; below the last one, the tall drawing stands in its place
_FILLS = {
    **{name: name for name in ("ink", "soft", "work", "wire", "lost", "you")},
    **{f"rank{rank}": f"rank-{rank}" for rank in range(4)},
    "onyou": "on-you",
    "field": "panel",
    "paper": "paper",
    "area": "",
}
STYLE = (
    ".ar-map{container-type:inline-size;padding:4px 0 20px;-webkit-text-size-adjust:100%}"
    ".ar-map svg{display:block;overflow:visible}.ar-map svg text{font-family:var(--ar-font);font-variant-numeric:tabular-nums}"
    + "".join(
        f".m-{name}{{fill:{f'var(--ar-{colour})' if colour else 'transparent'}}}" for name, colour in _FILLS.items()
    )
    + ".m-empty{fill:none;stroke:var(--ar-line);stroke-width:.8}.m-workline{fill:none;stroke:var(--ar-work);stroke-width:1.6}"
    ".m-track,.m-hollow,.m-walked{fill:none;stroke-linejoin:round;stroke-linecap:round}"
    ".m-track{stroke:var(--ar-line);stroke-width:9}.m-hollow{stroke:var(--ar-paper);stroke-width:4}"
    ".m-walked{stroke:var(--ar-ink);stroke-width:9;stroke-linecap:butt}.m-arrow{fill:none;stroke:var(--ar-soft);stroke-width:2;"
    "stroke-linecap:round;stroke-linejoin:round}.m-elbow{fill:none;stroke:var(--ar-soft);stroke-width:1.3;opacity:.7}"
    ".m-end,.m-chip{fill:var(--ar-paper);stroke:var(--ar-line);stroke-width:1.4}"
    ".m-proof{fill:var(--ar-paper);stroke:var(--ar-soft);stroke-width:1.2}.m-proof.proved{fill:var(--ar-ink);stroke:var(--ar-ink)}"
    ".m-dot{fill:var(--ar-paper);stroke:var(--ar-soft);stroke-width:1.7}.seen .m-dot{stroke:var(--ar-ink);stroke-width:2.4}"
    ".walked .m-dot{fill:var(--ar-ink);stroke:var(--ar-ink)}.here .m-dot{fill:var(--ar-you);stroke:var(--ar-on-you)}"
    ".m-stop{fill:var(--ar-paper);stroke:var(--ar-soft);stroke-width:2}.m-number{fill:var(--ar-soft)}"
    ".walked .m-stop{fill:var(--ar-ink);stroke:var(--ar-ink)}.walked .m-number{fill:var(--ar-paper)}"
    ".seen .m-stop{stroke:var(--ar-ink);stroke-dasharray:4 3}.seen .m-number{fill:var(--ar-ink)}"
    ".next .m-stop{stroke:var(--ar-ink);stroke-width:3}.next .m-number{fill:var(--ar-ink)}"
    ".here .m-stop{fill:var(--ar-you);stroke:var(--ar-ink);stroke-width:3}.here .m-number{fill:var(--ar-on-you)}"
    ".m-over{fill:none;stroke:var(--ar-lost);stroke-width:1}.m-stripes{fill:none;stroke:var(--ar-lost);stroke-width:1.6}"
    ".m-tag rect{stroke:var(--ar-on-you);stroke-width:1}"
    ".m-box{fill:var(--ar-paper);stroke:var(--ar-ink);stroke-width:1.5}"
    "a.m-chapter{cursor:pointer;text-decoration:none}a.m-chapter:hover text.m-ink{text-decoration:underline}"
    "a.m-chapter:focus-visible{outline:3px solid var(--ar-wire);outline-offset:2px;border-radius:6px}"
    ".m-top{display:flex;flex-wrap:wrap;gap:12px 24px;justify-content:space-between;align-items:center;margin:0 auto 10px;padding:0 20px}"
    ".m-top h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}.m-top p{margin:0;color:var(--ar-soft)}"
    ".m-top>div:first-child{flex:1 1 420px}.m-top p b{color:var(--ar-ink);font-weight:600}"
    ".m-button{display:inline-flex;align-items:center;justify-content:center;min-height:44px;padding:0 20px;border-radius:6px;"
    "border:1px solid var(--ar-line);color:var(--ar-ink);background:var(--ar-paper);text-decoration:none;font-size:15px}"
    ".m-button.main{background:var(--ar-ink);color:var(--ar-paper);border-color:var(--ar-ink);font-weight:600}"
    ".m-button:hover{text-decoration:underline}"
    ".m-key{display:flex;flex-wrap:wrap;gap:6px 16px;margin:0 auto 14px;padding:0 20px;color:var(--ar-soft);font-size:13px;list-style:none}"
    ".m-key li{display:flex;gap:7px;align-items:center;margin:0}.m-key li:last-child{margin-left:auto}"
    ".m-wide,.m-middle,.m-tall{margin:0 auto;width:max-content}.m-tall,.m-tall .m-map{max-width:100%;height:auto}.m-wide,.m-middle{display:none}"
    f"@container (min-width:{WIDTHS[1]}px){{.m-middle{{display:block}}.m-tall{{display:none}}.m-top,.m-key{{max-width:{WIDTHS[1]}px;box-sizing:border-box}}}}"
    f"@container (min-width:{WIDTHS[0]}px){{.m-wide{{display:block}}.m-middle{{display:none}}.m-top,.m-key{{max-width:{WIDTHS[0]}px}}}}"
    "@container (max-width:700px){.m-top h1{font-size:24px}.m-top .m-button{flex:1 1 100%}"
    ".m-key li:last-child{margin-left:0}}"
)


def style() -> str:
    """The style sheets that the map needs: the theme's, the pictograms', its own."""
    return f"{theme.style()}<style>{page_style('.ar-map')}{STYLE}</style>"


def picture(state: State, colours: dict[str, str], said: str) -> str:
    """The wide drawing as a file of its own, on paper of the theme: for a README. `colours` are those of a theme, `said` what its tag says."""
    svg = drawing(state, WIDTHS[0], Manner(tag=said))
    width, high = (int(float(found)) for found in re.findall(r'(?:width|height)="([\d.]+)"', svg)[:2])
    root = "".join(f"--ar-{name}:{colour};" for name, colour in colours.items())
    sheet = f"svg{{{root}--ar-font:system-ui,sans-serif}}{shared_style('.ar-pic ')}{STYLE}text{{font-family:system-ui,sans-serif}}"
    paper = rect(-16, -16, width + 32, high + 32, "m-paper")
    opening, _, rest = svg.partition(">")
    opening = re.sub(
        r'width="[^"]*" height="[^"]*" viewBox="[^"]*"', f'viewBox="-16 -16 {width + 32} {high + 32}"', opening
    )
    return f"{opening}><style>{sheet}</style>{paper}{rest}"


def pictures(state: State, manner: Manner) -> str:
    """The drawing in three widths, of which a style sheet shows the one that fits; readers of the page meet only that one."""
    wide, middle = (drawing(state, width, manner) for width in WIDTHS)
    return f'<div class="m-wide">{wide}</div><div class="m-middle">{middle}</div><div class="m-tall">{tall(state, manner=manner)}</div>'


def head(state: State, manner: Manner) -> str:
    """Where the reader is, what is proved, what is left; and the one button: go on."""
    at = state.go_on
    button = "" if at is None else _button(manner, at, words.go_on(state))
    return (
        f'<div class="m-top"><div><h1>{escape(words.heading(state))}</h1>'
        f"<p>{escape(words.proved(state))} <b>{escape(words.left(state))}</b></p></div>"
        f"{button}</div>"
    )


def _button(manner: Manner, chapter: Chapter, said: str) -> str:
    if not manner.href(chapter):
        return ""
    return f'<a class="m-button main" href="{escape(manner.href(chapter))}" data-path="{chapter.path.as_posix()}">{escape(said)}</a>'


def key(kept: str) -> str:
    """What the signs of the map mean."""
    signs = (
        (rect(1, 1, 9, 9, "m-proof proved", 1.2), "check passed"),
        (circle(5.5, 5.5, 4.4, "m-proof proved"), "prediction made"),
        (rect(1, 1.5, 7.8, 7.8, "m-proof", 1.2) + circle(16, 5.5, 3.9, "m-proof"), "not yet"),
        (path("M2,5.5h24", "m-walked"), "some proved"),
        (f'<g class="seen">{circle(6.5, 5.5, 4.6, "m-stop")}</g>', "none proved"),
        (path("M4,5.5h20", "m-track") + path("M4,5.5h20", "m-hollow"), "ahead"),
        (circle(6, 5.5, 5, "m-dot") + placed("broadcast", 17, -1, 14), "side trip"),
    )
    wide = (11, 11, 21, 28, 13, 28, 32)
    items = "".join(
        f'<li><svg width="{w}" height="11" aria-hidden="true">{sign}</svg>{said}</li>'
        for (sign, said), w in zip(signs, wide, strict=True)
    )
    return f'<ul class="m-key">{items}<li>{kept}</li></ul>'


def page(state: State, manner: Manner) -> str:
    """The map with head and key, as the inside of a page: give the page `style` too."""
    kept = f"{escape(words.KEPT)} · <code>allranks map --clear</code>"
    return f'<main class="ar-map ar-theme">{head(state, manner)}{key(kept)}<nav aria-label="The map">{pictures(state, manner)}</nav></main>'
