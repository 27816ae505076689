"""A schedule as an SVG that moves by itself, for a page that runs no script, as the README on GitHub.

It plays three times and then rests; where the reader's system asks for less motion, it shows the end at once. Not every browser
tells a picture about that wish, so a page can show the picture of the end, `still`, by a <picture> of its own.
"""

from __future__ import annotations

from itertools import pairwise

from allranks.show.pictures.flow import flow
from allranks.show.pictures.palette import HUES
from allranks.show.pictures.pictogram import document, n
from allranks.theory.schedules import Move, Schedule

WIDTH, HEIGHT = 880.0, 520.0
LEAD_S, STEP_S, REST_S = 1.2, 1.4, 3.4
# the left upper corner of each rank's panel, clockwise from the top; a panel's size, and where its cells begin
PLACES = ((196.0, 24.0), (396.0, 148.0), (196.0, 272.0), (14.0, 148.0))
PANEL = (180.0, 104.0)
CELL = (36.0, 60.0, 4.0)
TIMELINE = 396.0
RAIL = 620.0


def motion(schedule: Schedule, title: str, *, still: bool = False) -> str:
    """The SVG of a schedule of four ranks and four chunks, each step with its messages. The schedule must pass `verify`.

    >>> motion(schedules.ring_all_reduce(4), "Ring all-reduce").count('class="packet')
    24
    """
    schedule.verify()
    body = (
        f'<rect class="paper line" x=".5" y=".5" width="{n(WIDTH - 1)}" height="{n(HEIGHT - 1)}" rx="10"/>'
        + "".join(_panel(rank) for rank in range(schedule.ranks))
        + _held(schedule)
        + "".join(_packet(move, owners) for move, owners in _messages(schedule))
        + _middle(schedule)
        + _rail(schedule)
        + _timeline(schedule)
    )
    words = f"{title} on {schedule.ranks} ranks in {schedule.steps} steps. {flow(schedule.collective, schedule.ranks).words()}"
    return document(body, WIDTH, HEIGHT, WIDTH, title, words, more=_sheet(schedule, still))


def _messages(schedule: Schedule) -> list[tuple[Move, list[int]]]:
    """Each message with the contributions that it carries."""
    found = []
    for step, held in zip(schedule.by_step, states(schedule), strict=False):
        found += [(move, sorted(held[move.src, move.chunks[0]])) for move in step]
    return found


def states(schedule: Schedule) -> list[dict[tuple[int, int], set[int]]]:
    """What each (rank, chunk) holds before each step, and at the end."""
    now = {place: set(owners) for place, owners in schedule.initial().items()}
    found = [now]
    for step in schedule.by_step:
        now = dict(now)
        for move in step:
            for chunk in move.chunks:
                arriving = found[-1][move.src, chunk]
                now[move.dst, chunk] = now.get((move.dst, chunk), set()) | arriving if move.reduce else arriving
        found.append(now)
    return found


def _corner(rank: int, chunk: int) -> tuple[float, float]:
    x, y = PLACES[rank]
    return x + 12 + chunk * (CELL[0] + CELL[2]), y + 30


def _panel(rank: int) -> str:
    x, y = PLACES[rank]
    cells = "".join(
        f'<rect class="paper line" x="{n(a)}" y="{n(b)}" width="{n(CELL[0])}" height="{n(CELL[1])}" rx="4"/>'
        for a, b in (_corner(rank, chunk) for chunk in range(4))
    )
    return (
        f'<rect class="panel line" x="{n(x)}" y="{n(y)}" width="{n(PANEL[0])}" height="{n(PANEL[1])}" rx="8"/>'
        f'<rect class="r{rank % HUES}" x="{n(x + 12)}" y="{n(y + 11)}" width="11" height="11" rx="2"/>'
        f'<text class="ink name" x="{n(x + 30)}" y="{n(y + 22)}">rank {rank}</text>{cells}'
    )


def _stripe(x: float, y: float, owner: int, high: float = CELL[1], wide: float = CELL[0], kind: str = "") -> str:
    each = high / HUES
    name = f"r{owner % HUES} {kind}".strip()
    return f'<rect class="{name}" x="{n(x)}" y="{n(y + owner * each)}" width="{n(wide)}" height="{n(each)}"/>'


def _held(schedule: Schedule) -> str:
    """Stripes and the frames of what is complete, each with the step after which it is there."""
    everyone, out = set(range(schedule.ranks)), []
    there = states(schedule)
    out += [_stripe(*_corner(*place), owner) for place, owners in there[0].items() for owner in sorted(owners)]
    for step, (before, after) in enumerate(pairwise(there)):
        for place, owners in after.items():
            new = owners - before.get(place, set())
            out += [_stripe(*_corner(*place), owner, kind=f"s{step}") for owner in sorted(new)]
            if owners == everyone != before.get(place):
                x, y = _corner(*place)
                out.append(
                    f'<rect class="inkline s{step}" x="{n(x)}" y="{n(y)}" width="{n(CELL[0])}" height="{n(CELL[1])}" rx="4" '
                    'fill="none" stroke-width="2.5"/>'
                )
    return "".join(out)


def _packet(move: Move, owners: list[int]) -> str:
    """A message on its way from the middle of one panel to the middle of the other."""
    (a, b), (c, d) = PLACES[move.src], PLACES[move.dst]
    x, y = a + PANEL[0] / 2 - 33, b + PANEL[1] / 2 - 24
    stripes = "".join(_stripe(x + 8, y + 7, owner, 34, 20) for owner in owners)
    sign = "+" if move.reduce else "="
    return (
        f'<g class="packet p{move.step}" style="--x:{n(c - a)}px;--y:{n(d - b)}px">'
        f'<rect class="paper wireline" x="{n(x)}" y="{n(y)}" width="66" height="48" rx="6" stroke-width="3"/>{stripes}'
        f'<text class="ink name" x="{n(x + 46)}" y="{n(y + 21)}" text-anchor="middle">c{move.chunks[0]}</text>'
        f'<text class="ink sign" x="{n(x + 46)}" y="{n(y + 40)}" text-anchor="middle">{sign}</text></g>'
    )


def _middle(schedule: Schedule) -> str:
    """In the middle of the ring is nobody, so there is room for the words."""
    x, y = PLACES[0][0] + PANEL[0] / 2, (PLACES[0][1] + PLACES[2][1] + PANEL[1]) / 2
    out = []
    for step, moves in enumerate(schedule.by_step):
        does = "adds" if moves[0].reduce else "stores"
        out.append(f'<g class="during w{step}">{_centred(x, y, f"step {step + 1}", f"the receiver {does}")}</g>')
    return "".join(out) + f'<g class="end">{_centred(x, y, "done", "all hold the sum")}</g>'


def _centred(x: float, y: float, big: str, small: str) -> str:
    return (
        f'<text class="ink big" x="{n(x)}" y="{n(y)}" text-anchor="middle">{big}</text>'
        f'<text class="words" x="{n(x)}" y="{n(y + 24)}" text-anchor="middle">{small}</text>'
    )


def _rail(schedule: Schedule) -> str:
    """What each rank has sent, against the least that any algorithm can send; and what the signs mean."""
    sent = schedule.bytes_sent(schedule.ranks)
    out = [f'<text class="ink name" x="{n(RAIL)}" y="44">Sent so far, by each rank</text>']
    for rank, amount in enumerate(sent):
        y, wide = 58 + 22 * rank, 224 * amount / max(sent)
        out.append(
            f'<rect class="r{rank}" x="{n(RAIL)}" y="{y}" width="11" height="11" rx="2"/>'
            f'<rect class="hair" x="{n(RAIL + 18)}" y="{y}" width="224" height="11"/>'
            f'<rect class="words sent" x="{n(RAIL + 18)}" y="{y}" width="{n(wide)}" height="11"/>'
        )
    out.append(f'<path class="inkline" d="M{n(RAIL + 242)} 52v90" stroke-width="2"/>')
    out.append(f'<text class="words" x="{n(RAIL + 242)}" y="160" text-anchor="end">nobody can send less</text>')
    y = 226
    out += [
        f'<rect class="r{rank}" x="{n(RAIL + 26 * rank)}" y="{y}" width="22" height="18" rx="3"/>'
        f'<text class="on{rank}" x="{n(RAIL + 26 * rank + 11)}" y="{y + 14}" text-anchor="middle">{rank}</text>'
        for rank in range(schedule.ranks)
    ]
    out.append(f'<text class="words" x="{n(RAIL + 112)}" y="{y + 14}">whose numbers</text>')
    out.append(
        f'<rect class="paper inkline" x="{n(RAIL + 1)}" y="{y + 34}" width="20" height="18" rx="3" stroke-width="2.5"/>'
    )
    out.append(f'<text class="words" x="{n(RAIL + 32)}" y="{y + 48}">complete</text>')
    out.append(
        f'<rect class="paper wireline" x="{n(RAIL + 113)}" y="{y + 34}" width="20" height="18" rx="3" stroke-width="2.5"/>'
    )
    out.append(f'<text class="words" x="{n(RAIL + 144)}" y="{y + 48}">on the wire</text>')
    out.append(f'<text class="words" x="{n(RAIL)}" y="{y + 84}">+ adds, = stores</text>')
    return "".join(out)


def _timeline(schedule: Schedule) -> str:
    """A bar for each step and rank says what arrives; the ink line says where the picture is."""
    left, wide = 92.0, (WIDTH - 92 - 26) / schedule.steps
    out = []
    for rank in range(schedule.ranks):
        y = TIMELINE + 27 * rank
        out.append(f'<rect class="r{rank}" x="26" y="{n(y + 4)}" width="11" height="11" rx="2"/>')
        out.append(f'<text class="words" x="44" y="{n(y + 15)}">rank {rank}</text>')
    for move in schedule.moves:
        x, y = left + move.step * wide, TIMELINE + 27 * move.dst
        kind, sign, words = ("work", "+", "ink") if move.reduce else ("paper", "=", "ink")
        out.append(f'<rect class="{kind} line" x="{n(x + 1)}" y="{n(y)}" width="{n(wide - 3)}" height="21" rx="4"/>')
        out.append(f'<text class="{words}" x="{n(x + 10)}" y="{n(y + 15.5)}">{sign} c{move.chunks[0]}</text>')
    high = 27 * schedule.ranks
    out.append(f'<path class="inkline head" d="M{n(left)} {n(TIMELINE - 6)}v{n(high + 4)}" stroke-width="3"/>')
    return "".join(out)


def _sheet(schedule: Schedule, still: bool) -> str:
    """Without motion it shows the end; with motion each part has its time in one round of all."""
    total = LEAD_S + STEP_S * schedule.steps + REST_S
    left, right = 92.0, WIDTH - 26

    def at(seconds: float) -> str:
        return f"{100 * seconds / total:.2f}%"

    sent, head, frames = [], [], []
    for step in range(schedule.steps):
        begin = LEAD_S + STEP_S * step
        go, come, over = begin + 0.3, begin + 1.1, begin + STEP_S
        frames += [
            f"@keyframes s{step}{{0%,{at(come)}{{opacity:0}}{at(come + 0.1)},to{{opacity:1}}}}",
            f"@keyframes w{step}{{0%,{at(begin - 0.01)}{{opacity:0}}{at(begin)},{at(over - 0.02)}{{opacity:1}}{at(over - 0.01)},to{{opacity:0}}}}",
            f"@keyframes p{step}{{0%,{at(begin)}{{opacity:0;transform:none}}{at(begin + 0.1)},{at(go)}{{opacity:1;transform:none}}"
            f"{at(come)}{{opacity:1;transform:translate(var(--x),var(--y))}}{at(come + 0.1)},to{{opacity:0;transform:translate(var(--x),var(--y))}}}}",
        ]
        done = (step + 1) / schedule.steps
        sent += [
            f"{at(begin)}{{transform:scaleX({step / schedule.steps:.4f})}}{at(come)}{{transform:scaleX({done:.4f})}}"
        ]
        head += [f"{at(begin)}{{transform:translateX({(step / schedule.steps) * (right - left):.1f}px)}}"]
    end = at(LEAD_S + STEP_S * schedule.steps)
    frames.append(f"@keyframes sent{{0%{{transform:scaleX(0)}}{''.join(sent)}to{{transform:none}}}}")
    frames.append(
        f"@keyframes head{{0%{{transform:none}}{''.join(head)}{end},to{{transform:translateX({right - left:.1f}px)}}}}"
    )
    frames.append(
        f"@keyframes end{{0%,{at(LEAD_S + STEP_S * schedule.steps - 0.01)}{{opacity:0}}{end},to{{opacity:1}}}}"
    )
    names = [f"{kind}{step}" for kind in "swp" for step in range(schedule.steps)] + ["sent", "head", "end"]
    moving = "".join(f".{name}{{animation:{name} {total:g}s ease-in-out 3 both}}" for name in names)
    rest = (
        ".packet,.during{opacity:0}.sent{transform-box:fill-box}"
        + f".head{{transform:translateX({right - left:.1f}px)}}"
    )
    letters = "text{font:14px system-ui,sans-serif}.name{font-weight:600;font-size:15px}.sign{font-weight:700;font-size:17px}.big{font-weight:700;font-size:26px}"
    if still:
        return letters + rest
    return letters + rest + "@media (prefers-reduced-motion:no-preference){" + "".join(frames) + moving + "}"
