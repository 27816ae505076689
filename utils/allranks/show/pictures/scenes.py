"""Pictures of chapters that are not about one collective, each computed from what the chapter counts with.

Each function returns the picture's elements, its height for a width of 800, and what it shows in words.
"""

from __future__ import annotations

import math
from dataclasses import replace

from allranks.show.pictures.flow import Flow, shifted
from allranks.show.pictures.pictogram import WIDE, frame_of, n
from allranks.theory import cost, schedules
from allranks.theory.cost import rooflines
from allranks.theory.schedules import Schedule
from allranks.theory.simulator.simulation import run_schedule
from allranks.theory.topology import DGX1_LANES, preset

Scene = tuple[str, float, str]
HATCH = (
    '<defs><pattern id="h" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path class="lostline" d="M1.5 0v7" stroke-width="3"/></pattern></defs>'
)

HATCHED = ' style="fill:url(#h)"'


def text(x: float, y: float, words: str, kind: str = "words", anchor: str = "middle") -> str:
    """Words whose middle (or start) is at x."""
    return f'<text class="{kind}" x="{n(x)}" y="{n(y)}" text-anchor="{anchor}">{words}</text>'


def box(kind: str, x: float, y: float, w: float, h: float, radius: float = 6, more: str = "") -> str:
    """A rectangle with round corners."""
    return f'<rect class="{kind}" x="{n(x)}" y="{n(y)}" width="{n(w)}" height="{n(h)}" rx="{n(radius)}"{more}/>'


def asked(above: tuple[str, ...], below: tuple[str, ...], alike: bool) -> Scene:
    """Each rank has something of its own; below what all should hold; the middle is the chapter's question."""
    frame = frame_of(4, WIDE, height=330)
    out = []
    for rank in range(4):
        x, w = frame.x(rank), frame.cell
        out.append(
            box(f"r{rank}", x, 0, w, frame.box, 15) + text(x + w / 2, frame.box / 2 + 7, above[rank], f"on{rank}")
        )
        kind = "paper inkline" if alike else "paper line"
        out.append(box(kind, x + 1, frame.lower, w - 2, frame.box - 2, 15, ' stroke-width="3" stroke-dasharray="9 7"'))
        out.append(text(x + w / 2, frame.lower + frame.box / 2 + 6, below[rank], "ink"))
    y = (frame.upper + frame.lower) / 2
    out.append(
        f'<circle class="ink" cx="400" cy="{n(y)}" r="34"/><text class="onink mark" x="400" y="{n(y + 14)}" '
        'text-anchor="middle">?</text>'
    )
    for rank in range(4):
        x = frame.x(rank) + frame.cell / 2
        end = 400 + (x - 400) * 0.22
        for far, near in ((frame.upper, y - 30), (frame.lower, y + 30)):
            path = f"M{n(x)} {n(far)}C{n(x)} {n((far + near) / 2)} {n(end)} {n((far + near) / 2)} {n(end)} {n(near)}"
            out.append(
                f'<path class="workline" d="{path}" fill="none" stroke-width="3" stroke-dasharray="2 8" '
                'stroke-linecap="round"/>'
            )
    return (
        "".join(out),
        330,
        f"Above, four ranks: {', '.join(above)}. Below, what each should hold: {below[0]}. The way is not drawn.",
    )


def start_here() -> Scene:
    """Chapter 00: one number each, and its sum everywhere."""
    numbers = [rank + 1 for rank in range(4)]
    return asked(tuple(map(str, numbers)), ("the sum",) * 4, False)


def data_parallel() -> Scene:
    """Chapter 20: a share of the batch each, and the same weights everywhere."""
    return asked(tuple(f"share {rank}" for rank in range(4)), ("weights",) * 4, True)


def ring_shift() -> Flow:
    """Chapter 03: each rank sends its number to its right-hand neighbour."""
    return shifted(4)


def one_step(ranks: int = 256) -> Scene:
    """Chapter 02: a step on many GPUs, to scale: first the work, then nothing but communication."""
    parameters, tokens, flops, alpha, beta = 7e9, 2**21, 400e12, 5e-6, 1 / 50e9
    work = 6 * parameters * tokens / flops / ranks
    sends = float(cost.price("all_reduce", "ring", ranks, round(2 * parameters), alpha, beta))
    left = 130
    scale = (WIDE - left) / (work + sends)
    out = []
    for rank in range(4):
        y = 40 + 58 * rank
        out.append(text(0, y + 31, f"rank {rank}", anchor="start"))
        out.append(box("work", left, y, work * scale - 4, 46) + box("wire", left + work * scale, y, sends * scale, 46))
    out.append(text(left, 24, f"compute, {work:.2f} s", anchor="start"))
    out.append(text(WIDE, 24, f"communicate, {sends:.2f} s", anchor="end"))
    words = (
        f"A step of 7 billion parameters on {ranks} GPUs, four of them drawn: {work:.2f} s of work, then "
        f"{sends:.2f} s in which bytes move and nobody computes."
    )
    return "".join(out), 270, words


def routes() -> Scene:
    """Chapter 17: who sends to whom in three algorithms of the same all-reduce."""
    named = (("ring", "ring"), ("recursive doubling", "doubling"), ("double binary tree", "double tree"))
    drawn = [(schedules.find("all_reduce", algorithm)(8), name) for algorithm, name in named]
    out = [_graph(schedule, 130 + 270 * i, name) for i, (schedule, name) in enumerate(drawn)]
    told = ", ".join(f"{name} in {schedule.steps} steps" for schedule, name in drawn)
    return (
        "".join(out),
        300,
        f"Eight ranks on a circle, and a line for each pair that exchanges messages in an all-reduce: {told}.",
    )


def _graph(schedule: Schedule, x: float, name: str) -> str:
    def place(rank: int) -> tuple[float, float]:
        angle = 2 * math.pi * rank / schedule.ranks - math.pi / 2
        return x + 100 * math.cos(angle), 124 + 100 * math.sin(angle)

    pairs = sorted({(min(m.src, m.dst), max(m.src, m.dst)) for m in schedule.moves})
    out = []
    for a, b in pairs:
        (ax, ay), (bx, by) = place(a), place(b)
        path = f"M{n(ax)} {n(ay)}Q{n((ax + bx) / 4 + x / 2)} {n((ay + by) / 4 + 62)} {n(bx)} {n(by)}"
        out.append(f'<path class="wireline" d="{path}" fill="none" stroke-width="4"/>')
    for rank in range(schedule.ranks):
        ax, ay = place(rank)
        circle = f'<circle class="ink edge" cx="{n(ax)}" cy="{n(ay)}" r="19" stroke-width="3"/>'
        out.append(circle + text(ax, ay + 7, str(rank), "onink"))
    return "".join(out) + text(x, 284, name)


def groups(side: int = 8) -> Scene:
    """Chapter 16: 64 ranks in a grid; a row shares each layer, a column shares the data."""
    cell, step, left, row, column = 34.0, 40.0, 300.0, 2, 5
    out = []
    for rank in range(side * side):
        y, x = divmod(rank, side)
        kind = "ink" if y == row else "paper inkline" if x == column else "hair"
        more = ' stroke-width="2.5"' if x == column and y != row else ""
        out.append(box(kind, left + step * x, step * y + 2, cell, cell, 6, more))
        if kind != "hair":
            out.append(
                text(
                    left + step * x + cell / 2,
                    step * y + 25,
                    str(rank),
                    "onink small" if kind == "ink" else "ink small",
                )
            )
    out.append(text(left - 16, step * row + 24, "shares a layer", anchor="end"))
    out.append(text(left + step * column + cell / 2, step * side + 22, "shares the data"))
    members = [row * side + x for x in range(side)], [y * side + column for y in range(side)]
    words = (
        f"64 ranks in 8 rows of 8. One row shares each layer, ranks {members[0][0]} to {members[0][-1]}; one "
        f"column shares the data, ranks {', '.join(map(str, members[1]))}."
    )
    return "".join(out), step * side + 36, words


def logits(words_in_all: int = 64) -> Scene:
    """Chapter 18: one row of logits, of which each rank has a part."""
    values = [abs(math.sin(1.7 * i) + math.sin(0.61 * i + 1)) for i in range(words_in_all)]
    part, gap = words_in_all // 4, 14.0
    wide = (WIDE - 3 * gap) / words_in_all
    out = [
        box(f"r{i // part}", i * wide + i // part * gap + 1, 194 - 90 * v, wide - 2, 90 * v + 6, 2)
        for i, v in enumerate(values)
    ]
    out += [text(WIDE / 8 + WIDE / 4 * rank, 236, f"rank {rank}") for rank in range(4)]
    return (
        "".join(out),
        250,
        "One row of logits as bars, split over four ranks: each sees a quarter of the words, and nobody sees the row.",
    )


def one_after_the_other() -> Scene:
    """Chapter 21: the backward pass and then the all-reduce, to scale: what overlap could hide."""
    backward = 0.3
    sends = float(cost.price("all_reduce", "ring", 32, 14 * 10**9, 5e-6, 1 / 200e9))
    scale = WIDE / (backward + sends)
    middle = backward * scale
    out = [
        HATCH,
        box("work", 0, 36, middle - 3, 62),
        box("panel", 0, 112, WIDE, 62),
        box("wire", middle, 112, WIDE - middle, 62),
    ]
    out.append(box("lost", middle, 36, WIDE - middle, 62, 6, HATCHED))
    out.append(text(0, 22, f"compute: backward, {1e3 * backward:.0f} ms", anchor="start"))
    out.append(text(WIDE, 22, "waits", anchor="end"))
    out.append(
        text(0, 204, "network", anchor="start") + text(WIDE, 204, f"all-reduce, {1e3 * sends:.0f} ms", anchor="end")
    )
    words = (
        f"Two lanes, to scale: {1e3 * backward:.0f} ms of backward pass, then {1e3 * sends:.0f} ms of all-reduce "
        "while the GPU waits."
    )
    return "".join(out), 216, words


def eight_copies(ranks: int = 8, billions: float = 5.0) -> Scene:
    """Chapter 22: what each GPU holds in plain data parallelism, against its memory."""
    parts = (("weights", 2, "ink"), ("gradients", 2, "words"), ("Adam", 12, "work"))
    high, full, left = 240.0, 80.0, 164.0
    step = (WIDE - left + 14) / ranks
    out = []
    for rank in range(ranks):
        y = 30 + high
        for _, nbytes, kind in parts:
            tall = high * nbytes * billions / full
            y -= tall
            out.append(box(kind, left + step * rank, y + 1, step - 14, tall - 2, 3))
    out.append(
        f'<path class="lostline" d="M{n(left - 8)} 30H{WIDE}" stroke-width="4"/>' + text(0, 37, "80 GB", anchor="start")
    )
    y = 30 + high
    for name, nbytes, _ in parts:
        y -= high * nbytes * billions / full
        out.append(text(0, y + high * nbytes * billions / full / 2 + 7, name, anchor="start"))
    total = sum(nbytes for _, nbytes, _ in parts) * billions
    words = f"Eight GPUs, each with the same {total:.0f} GB: " + ", ".join(
        f"{nbytes * billions:.0f} GB of {name}" for name, nbytes, _ in parts
    )
    return "".join(out), 30 + high + 6, words + "."


def two_cuts(gpus: int = 8) -> Scene:
    """Chapter 24: 96 layers on eight GPUs, an eighth of each layer or twelve whole layers."""
    side, out = 288.0, []
    for left, name in ((60.0, "1/8 of each layer"), (452.0, "12 whole layers")):
        for gpu in range(gpus):
            more = f' fill-opacity="{0.16 + 0.1 * gpu:.2f}"'
            w = side / gpus
            out.append(
                box("words", left + gpu * w + 1, 0, w - 2, side, 3, more)
                if left < 100
                else box("words", left, gpu * w + 1, side, w - 2, 3, more)
            )
        lines = "".join(f"M{n(left)} {n(side * layer / 24)}h{n(side)}" for layer in range(1, 24))
        out.append(
            f'<path class="edge" d="{lines}" stroke-width="1.2" opacity=".55"/>'
            + text(left + side / 2, side + 30, name)
        )
    return (
        "".join(out),
        side + 42,
        "A model as a square, its layers from top to bottom, cut for eight GPUs in two ways: into columns, an "
        "eighth of each layer, or into rows, 12 whole layers.",
    )


def machine(nodes: int = 4) -> Scene:
    """Chapter 40: GPUs, what joins them in a node, and what joins the nodes; lines as wide as the links."""
    dgx = preset("dgx-h100")
    if dgx.nic is None:
        raise ValueError("dgx-h100 has no network card")
    wide = {link: 10 * link.bytes_per_s / dgx.fastest.bytes_per_s for link in (dgx.inside, dgx.nic)}
    step, out = WIDE / nodes, []
    for node in range(nodes):
        left = step * node + 6
        out.append(box("panel line", left, 96, step - 12, 170, 10))
        centre = left + (step - 12) / 2
        for gpu in range(dgx.ranks_per_node):
            x = left + 14 + gpu * (step - 40) / (dgx.ranks_per_node - 1)
            out.append(f'<path class="wireline" d="M{n(x)} 214V160" stroke-width="{n(wide[dgx.inside])}"/>')
            out.append(f'<path class="inkline" d="M{n(x)} 150V40" stroke-width="{n(wide[dgx.nic])}"/>')
            out.append(box("ink", x - 8, 214, 16, 28, 3))
        out.append(box("wire", left + 6, 148, step - 24, 18, 5) + text(centre, 296, f"node {node}"))
    out.append(box("ink", 6, 24, WIDE - 12, 18, 5))
    inside, outside = dgx.inside.bytes_per_s / 1e9, dgx.nic.bytes_per_s / 1e9
    words = (
        f"{nodes} nodes of {dgx.ranks_per_node} GPUs. Inside a node each GPU has {inside:.0f} GB/s, out of it "
        f"{outside:.0f} GB/s: the lines are as wide as the links."
    )
    return "".join(out), 306, words


def one_is_missing(ranks: int = 512, missing: int = 201) -> Scene:
    """Chapter 45: 512 processes, of which 511 wait."""
    columns, step = 32, 25.0
    (y, x), waiting = divmod(missing, columns), ""
    for rank in range(ranks):
        if rank != missing:
            row, column = divmod(rank, columns)
            waiting += f"M{n(column * step + 1)} {n(row * step + 1)}h21v21h-21z"
    more = ' fill="none" stroke-width="2" stroke-dasharray="3 3"'
    body = (
        HATCH
        + f'<path class="lost" d="{waiting}"{HATCHED}/>'
        + box("lostline", x * step + 2, y * step + 2, 19, 19, 3, more)
    )
    words = f"{ranks} ranks as squares. All but one are hatched: they wait. One is not, and it is hard to see."
    return body, step * ranks / columns, words


def three_ways() -> Scene:
    """Chapter 30: which parts of the weights and of the optimizer's state each of four ranks keeps."""
    ways = (("copied", 4, 4), ("sharded", 4, 1), ("split", 1, 1))
    out = []
    for i, (name, weights, state) in enumerate(ways):
        left = 270.0 * i
        for rank in range(4):
            x = left + 64 * rank
            for part in range(4):
                for top, parts in ((0, weights), (76, state)):
                    mine = parts == 4 or part == rank
                    out.append(box(f"r{part}" if mine else "panel", x + 14 * part, top, 12, 64, 2))
        out.append(text(left + 124, 172, name))
    words = "Four ranks in three ways: above the weights in four parts, below the optimizer's state. " + "; ".join(
        f"{name}: {weights} of 4 parts of the weights, {state} of 4 of the state on each rank"
        for name, weights, state in ways
    )
    return "".join(out), 184, words + "."


def one_file(steps: int = 3) -> Scene:
    """Chapter 48: rank 0's profile, drawn in time, and three ranks whose files are still closed."""
    left, high, gap, compute, call = 120.0, 64.0, 22.0, 46.0, 172.0
    out = []
    for rank in range(4):
        y = rank * (high + gap)
        out.append(box(f"r{rank}", 0, y, 104, high, 8) + text(52, y + high / 2 + 7, f"rank {rank}", f"on{rank}"))
        if rank:
            out.append(box("paper line", left + 1, y + 1, 678, high - 2, 4, ' stroke-width="3" stroke-dasharray="9 7"'))
            out.append(text(left + 340, y + high / 2 + 7, "?", "ink"))
    for step in range(steps):
        x = left + step * (compute + call + 13)
        out.append(box("work", x, 0, compute, high, 4))
        out.append(box("paper inkline", x + compute + 2, 1, call - 4, high - 2, 4, ' stroke-width="2"'))
        out.append(text(x + compute + call / 2, high / 2 + 7, "all_reduce", "ink"))
    words = (
        "Four ranks as lanes in time. Rank 0 computes for a short time and is in all_reduce for a long time, "
        "three times. The other ranks' lanes are empty, with a question mark."
    )
    return "".join(out), 4 * high + 3 * gap, words


def triangle(ranks: int = 4, tokens: int = 4) -> Scene:
    """The chapter on context parallelism: each token's row of scores with those before it, a quarter a rank."""
    count, side = ranks * tokens, 18.0
    left, out = 300.0, []
    for row in range(count):
        for column in range(row + 1):
            kind = f"r{row // tokens}"
            out.append(box(kind, left + side * column, side * row, side - 2, side - 2, 2))
    for rank in range(ranks):
        out.append(text(left - 20, side * tokens * (rank + 0.5) + 7, f"rank {rank}", anchor="end"))
    out.append(text(left + side * count / 2, side * count + 30, "keys"))
    words = (
        f"A triangle of {count} rows: token i attends to the tokens 0 to i. Each of {ranks} ranks has {tokens} "
        "rows, rank 0 the shortest ones and the last rank the longest."
    )
    return "".join(out), side * count + 42, words


def pipeline(ranks: int = 4, micro_batches: int = 4) -> Scene:
    """The chapter on pipelines: all micro-batches forward, then all backward, twice as long; the rest is idle."""
    unit, high, left, out = 30.0, 44.0, 124.0, []
    turn = micro_batches + ranks - 1
    for rank in range(ranks):
        y = rank * (high + 8)
        out.append(text(left - 16, y + high / 2 + 7, f"GPU {rank}", anchor="end"))
        out.append(box("panel", left, y, 3 * turn * unit, high, 3))
        for i in range(micro_batches):
            back = turn + 2 * (ranks - 1 - rank + i)
            for look, start, end in (("forward", rank + i, rank + i + 1), ("work", back, back + 2)):
                out.append(box(look, left + start * unit + 1, y, (end - start) * unit - 2, high, 3))
                out.append(text(left + (start + end) / 2 * unit, y + high / 2 + 7, str(i), "ink"))
    words = (
        f"{ranks} GPUs, a row each, time to the right: {micro_batches} micro-batches pass forward from the "
        "first GPU to the last, then backward from the last to the first. A GPU is idle before its first, "
        "between the two, and after its last."
    )
    return "".join(out), ranks * (high + 8) + 4, words


def comes_and_goes(blocks: int = 4) -> Scene:
    """The chapter on FSDP by hand: a block's shard is always there, the whole only while it computes and before."""
    unit, high, left, out = 66.0, 44.0, 140.0, []
    turns = [*range(blocks), *reversed(range(blocks))]
    for block in range(blocks):
        y = block * (high + 10)
        out.append(text(left - 16, y + high / 2 + 7, f"block {block}", anchor="end"))
        out.append(box(f"a{block}", left, y + high * 0.7, len(turns) * unit, high * 0.3, 3))
    for turn, block in enumerate(turns):
        y, x = block * (high + 10), left + turn * unit
        arrives = 0.45 * unit if turn and turns[turn - 1] != block else 0.0
        out.append(box(f"r{block}", x - arrives, y, unit - 3 + arrives, high, 4))
        out.append(text(x + unit / 2, y + high / 2 + 7, "F" if turn < blocks else "B", f"on{block}"))
    words = (
        f"{blocks} blocks, a row each, time to the right. Each block's shard is there all the time; the whole "
        "block is there only for its forward pass (F) and its backward pass (B), and a little before."
    )
    return "".join(out), blocks * (high + 10) + 4, words


def largest_few(ranks: int = 4, numbers: int = 16, chosen: int = 4) -> Scene:
    """The chapter on sending less: each rank's numbers as bars; the largest are sent, the others stay."""
    left, gap, high = 110.0, 26.0, 74.0
    step = (WIDE - left) / numbers
    out = []
    for rank in range(ranks):
        base = high + rank * (high + gap)
        sizes = [1 + (7 * rank + 11 * i * i + 5 * i) % 17 for i in range(numbers)]
        largest = sorted(range(numbers), key=lambda i: (-sizes[i], i))[:chosen]
        out.append(text(0, base - high / 2 + 7, f"rank {rank}", anchor="start"))
        for i, size in enumerate(sizes):
            x, tall = left + step * i, high * size / 17
            sent = i in largest
            kind, more = (f"r{rank}", "") if sent else ("paper line", ' stroke-width="2"')
            out.append(box(kind, x + 1, base - tall, step - 6, tall, 3, more))
    words = (
        f"{ranks} ranks, each with {numbers} numbers as bars. The {chosen} largest of each rank are filled, "
        "they are sent; the others are outlined, they are kept. The ranks choose different places."
    )
    return "".join(out), ranks * high + (ranks - 1) * gap + 6, words


def no_room(room: int = 4) -> Scene:
    """The chapter on mixtures of experts: twelve tokens want an expert each, and one expert has too little room."""
    chosen = (1, 0, 1, 3, 1, 2, 1, 1, 0, 2, 1, 3)  # three tokens a rank
    ranks, side, high = 4, 40.0, 370.0
    column, out, boxes = WIDE / ranks, [], []
    seen = [0] * ranks
    for place, expert in enumerate(chosen):
        rank, index = divmod(place, len(chosen) // ranks)
        x = column * (rank + 0.5) + (index - 1) * 54
        slot, fits = seen[expert], seen[expert] < room
        seen[expert] += 1
        end = column * (expert + 0.5) + (slot - (room - 1) / 2) * (side + 4)
        if fits:
            path = f"M{n(x)} {n(side)}C{n(x)} 150 {n(end)} 110 {n(end)} 226"
            out.append(f'<path class="workline" d="{path}" fill="none" stroke-width="2.5"/>')
            boxes.append(box(f"r{rank}", end - side / 2, 230, side, side, 6))
        else:
            beside = column * (expert + 0.5) + (slot - room - 0.5) * (side + 30)
            full = column * (expert + 0.5) + 73 + 12 * (slot - room)  # above the right end of the room
            path = f"M{n(x)} {n(side)}C{n(x)} 150 {n(full)} 110 {n(full)} 218"
            out.append(
                f'<path class="workline" d="{path}" fill="none" stroke-width="2.5" stroke-dasharray="2 8" '
                'stroke-linecap="round"/>'
            )
            boxes.append(box(f"r{rank}", beside - side / 2, 322, side, side, 6))
            boxes.append(text(beside, 350, "?", f"on{rank}"))
        boxes.append(box(f"r{rank}", x - side / 2, 0, side, side, 6))
    for expert in range(ranks):
        x = column * (expert + 0.5)
        wide = room * (side + 4) + 4
        boxes.append(box("paper inkline", x - wide / 2, 224, wide, side + 12, 8, ' stroke-width="2" style="fill:none"'))
        boxes.append(text(x, 304, f"expert {expert}"))
    words = (
        f"{len(chosen)} tokens on {ranks} ranks, each with a line to its expert. Each expert has room for "
        f"{room} tokens. {seen[1]} tokens want expert 1, so {seen[1] - room} of them lie below it, with a "
        "question mark."
    )
    return "".join([*out, *boxes]), high, words


def one_dies(ranks: int = 4, steps: int = 8, last: int = 3) -> Scene:
    """The chapter on survival: lanes in time, one of which ends in a step; the others agree and repeat that step."""
    left, wide, high, gap, pause = 120.0, 64.0, 46.0, 16.0, 150.0
    out, below = [], ranks * (high + gap)
    for rank in range(ranks):
        y = rank * (high + gap)
        out.append(box(f"r{rank}", 0, y, 104, high, 8) + text(52, y + high / 2 + 7, f"rank {rank}", f"on{rank}"))
        for step in range(steps):
            x = left + step * wide + (pause if step >= last else 0)
            if step < last or rank != 1:
                out.append(box(f"r{rank}", x, y, wide - 6, high, 4))
        x = left + last * wide
        if rank == 1:
            out.append(
                box("paper line", x + 1, y + 1, wide - 8, high - 2, 4, ' stroke-width="3" stroke-dasharray="9 7"')
            )
            out.append(text(x + wide / 2 - 3, y + high / 2 + 8, "\u2715", "ink"))
        else:
            out.append(box("paper lostline", x + 1, y + 1, pause - 8, high - 2, 4, ' stroke-width="3"'))
    out.append(text(left + last * wide + pause / 2, below + 18, "agree", "ink"))
    out.append(text(left + (last + 0.5) * wide + pause, below + 18, f"step {last}", "ink"))
    words = (
        f"{ranks} ranks as lanes in time. Rank 1 ends in step {last}, marked with a cross. The others have an "
        f"empty box for a moment, while they agree who is left, and then repeat step {last} and go on to step "
        f"{steps - 1} without rank 1."
    )
    return "".join(out), below + 26, words


def five_parts(widths: tuple[int, ...] = (125, 110, 115, 110, 135)) -> Scene:
    """The chapter on recovery: one interruption in time, between two stretches of training; not to scale."""
    parts = ("notice", "find", "start", "load", "repeat")
    high, x, out = 70.0, 100.0, [box("r0", 0, 0, 94, 70, 6) + text(47, 42, "train", "on0")]
    for part, wide in zip(parts, widths, strict=True):
        out.append(box("paper line", x + 1, 1, wide - 8, high - 2, 6, ' stroke-width="3"'))
        out.append(text(x + wide / 2 - 3, high / 2 + 7, part, "ink"))
        x += wide
    out.append(box("r0", x, 0, 800 - x, high, 6) + text((800 + x) / 2, 42, "train", "on0"))
    out.append(text(100, high + 42, "\u2715 a rank hangs", "ink", "start"))
    words = f"A row of boxes in time. The first and the last are training. Between them: {', '.join(parts)}."
    return "".join(out), high + 56, words


def one_switch(gpus: int = 8) -> Scene:
    """The chapter on a node of GPUs: a box for each, all joined to one switch by arrows in both directions."""
    wide, high, low, out = 100.0, 64.0, 190.0, []
    for gpu in range(gpus):
        x = gpu * wide + 8
        out.append(box(f"r{gpu % 4}", x, 0, wide - 16, high, 8))
        out.append(text(x + wide / 2 - 8, high / 2 + 7, str(gpu), f"on{gpu % 4}"))
        for side, turned in ((-14, False), (14, True)):
            middle, top, end = x + wide / 2 - 8 + side, high + 10, low - 10
            tip, back = (top, 10) if turned else (end, -10)
            head = f"M{middle - 7} {tip + back}L{middle} {tip}L{middle + 7} {tip + back}"
            out.append(f'<path class="line" fill="none" d="M{middle} {top}V{end}" stroke-width="3"/>')
            out.append(f'<path class="line" fill="none" d="{head}" stroke-width="3"/>')
    out.append(box("paper line", 9, low, gpus * wide - 18, 50, 8, ' stroke-width="3"'))
    out.append(text(gpus * wide / 2, low + 32, "switch", "ink"))
    words = f"{gpus} GPUs in a row, each joined to one switch below by an arrow down and an arrow up."
    return "".join(out), low + 54, words


def waits_for_one_card(nodes: int = 2, gpus: int = 2) -> Scene:
    """The chapter on speed: a ring's messages in time, by receiver; its critical path, all between nodes, in dark."""
    machine = replace(preset("dgx-h100"), name="small nodes", ranks_per_node=gpus, nics_per_node=gpus)
    found = run_schedule(schedules.find("all_reduce", "ring")(nodes * gpus), 1 << 30, machine)
    path = {(leg.peer, leg.rank, leg.start) for leg in found.critical_path.legs}
    high, left, wide, out = 44.0, 124.0, WIDE - 124.0, []
    for rank in range(nodes * gpus):
        y = rank * (high + 8)
        out.append(text(left - 16, y + high / 2 + 7, f"GPU {rank}", anchor="end"))
        out.append(box("panel", left, y, wide, high, 3))
    between = 0
    for message in found.trace.messages():
        start, end = message.start or 0.0, message.end or 0.0
        x, w = left + start / found.seconds * wide, (end - start) / found.seconds * wide
        on_path = (message.src, message.dst, message.start) in path
        between += on_path
        out.append(box("words" if on_path else "work", x + 1, message.dst * (high + 8), w - 2, high, 3))
    words = (
        f"A row for each of {nodes * gpus} GPUs in {nodes} nodes, time to the right. The messages inside a "
        f"node are short and followed by long gaps; the {between} messages of the critical path, each between "
        "two nodes, follow one another without a gap."
    )
    return "".join(out), nodes * gpus * (high + 8) + 4, words


def kept_by_a_layer(ranks: int = 8) -> Scene:
    """The chapter on memory and rooflines: what a layer of GPT-3 keeps on one GPU; on eight?"""
    names = (
        "one GPU",
        f"tensor parallel, {ranks} GPUs",
        "and sequence parallel",
        "attention computed again",
        "all computed again",
    )
    left, wide, high, out = 456.0, 170.0, 44.0, []
    size = f"{rooflines.layer_activation_nbytes(2048, 12288, 96, 2048) / 1e6:,.0f} MB"
    for row, name in enumerate(names):
        y = row * high
        out.append(text(left - 16, y + 22, name, anchor="end"))
        more = ' stroke-width="2" stroke-dasharray="6 6"' if row else ""
        out.append(box("paper line" if row else "r0", left, y, wide, high - 12, 6, more))
        out.append(text(left + wide + 12, y + 22, "?" if row else size, "ink", "start"))
    words = f"Bars: one GPU {size}; with a question mark each: {', '.join(names[1:])}."
    return "".join(out), len(names) * high, words


def reach(ranks: int = 4, cells: int = 6, writer: int = 1, target: int = 2) -> Scene:
    """Each rank's memory as a row of cells; one rank writes into another's, and nobody has told that one."""
    wide, high, gap = 150.0, 46.0, 66.0
    out, left = [], (WIDE - ranks * wide - (ranks - 1) * gap) / 2
    for rank in range(ranks):
        x = left + rank * (wide + gap)
        out.append(box(f"r{rank}", x, 0, wide, 70, 15) + text(x + wide / 2, 42, f"rank {rank}", f"on{rank}"))
        for cell in range(cells):
            written = rank == target and cell < 2
            kind = f"r{writer}" if written else "paper line"
            out.append(box(kind, x + cell * wide / cells + 1.5, 240, wide / cells - 3, high, 4, ' stroke-width="2"'))
    start, end = left + writer * (wide + gap) + wide / 2, left + target * (wide + gap) + wide / cells
    out.append(
        f'<path class="workline" d="M{n(start)} 76C{n(start)} 170 {n(end)} 130 {n(end)} 226" fill="none" '
        f'stroke-width="5"/><path class="work" d="M{n(end - 9)} 222h18l-9 14z"/>'
    )
    x = left + target * (wide + gap) + wide / 2
    out.append(text(x + 34, 176, "?", "ink mark"))
    said = (
        "Four ranks, each with a row of memory below it. An arrow goes from rank 1 into the memory of rank 2, "
        "with a question mark."
    )
    return "".join(out), 300.0, said


def two_lines(words: int = 16) -> Scene:
    """A line of 128 bytes as 16 words: in one protocol every second half word is a flag, in the other the last."""
    out, wide, high = [], 46.0, 74.0
    left = (WIDE - words * wide) / 2
    for row, (name, flags) in enumerate((("LL", None), ("LL128", {words - 1}))):
        y = row * 150.0 + 40
        out.append(text(left, y - 14, name, "words", "start"))
        for word in range(words):
            x = left + word * wide
            if flags is None:
                out.append(box("r0", x + 1, y, wide / 2 - 2, high, 4))
                out.append(box("hair", x + wide / 2 + 1, y, wide / 2 - 2, high, 4))
            else:
                out.append(box("hair" if word in flags else "r0", x + 1, y, wide - 2, high, 4))
    said = (
        "Two lines of 16 words. In the line named LL half of every word is a flag; in the line named LL128 only "
        "the last word is one."
    )
    return "".join(out), 270.0, said


def two_of_four() -> Scene:
    """The chapter on the network: four flows leave a leaf switch, and a hash has sent two of them to one spine."""
    out, spines = [], (1, 3, 3, 0)
    for spine in range(4):
        kind = "paper inkline" if spine in spines else "paper line"
        out.append(box(kind, 130.0 + 160 * spine, 10, 60, 46, 8, ' stroke-width="3"'))
    for rank, spine in enumerate(spines):
        x, top = 160.0 + 160 * rank, 160.0 + 160 * spine + (-8 if rank == 1 else 8 if rank == 2 else 0)
        out.append(f'<path class="inkline" d="M{n(x)} 250V190L{n(top)} 56" fill="none" stroke-width="7"/>')
        out.append(box(f"r{rank}", x - 36, 250, 72, 46, 10) + text(x, 280, str(rank), f"on{rank}"))
    out.append(box("paper inkline", 90, 172, 620, 40, 10, ' stroke-width="3"') + text(400, 199, "leaf switch", "ink"))
    said = (
        "Ranks 0 to 3 below a leaf switch send to four spine switches above it: two of the lines end at the same spine."
    )
    return "".join(out), 310.0, said


def not_all_neighbours() -> Scene:
    """The chapter on search: the NVLinks of a DGX-1, single and double."""
    # two squares, so that few links cross: GPUs 0 to 3 on the left, 4 to 7 on the right
    left, right = ((90, 60), (290, 60), (90, 260), (290, 260)), ((710, 60), (510, 60), (710, 260), (510, 260))
    places = dict(zip((0, 1, 2, 3, 4, 5, 6, 7), (*left, *right), strict=True))
    out, double, single = [], 0, 0
    for a in range(8):
        for b in range(a + 1, 8):
            count = DGX1_LANES[a][b]
            if not count:
                continue
            double, single = double + (count == 2), single + (count == 1)
            (x1, y1), (x2, y2) = places[a], places[b]
            bend = {0: -60, 2: 60}.get(a, 0) if b == a + 4 else 0  # the outer two go round the inner GPUs
            path = f"M{n(x1)} {n(y1)}Q{n((x1 + x2) / 2)} {n((y1 + y2) / 2 + bend)} {n(x2)} {n(y2)}"
            out.append(f'<path class="inkline" d="{path}" fill="none" stroke-width="{9 if count == 2 else 3}"/>')
            if count == 2:
                out.append(f'<path class="edge" d="{path}" fill="none" stroke-width="3"/>')
    for gpu, (x, y) in places.items():
        out.append(f'<circle class="r{gpu % 4}" cx="{n(x)}" cy="{n(y)}" r="36"/>')
        out.append(text(x, y + 7, str(gpu), f"on{gpu % 4}"))
    words = f"Eight GPUs, each with links to four others: {double} double links and {single} single ones."
    return "".join(out), 330.0, words
