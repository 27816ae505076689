"""Pictures of chapters on a program and its machines; as in `scenes`, none answers its chapter's question."""

from __future__ import annotations

from allranks.show.pictures.pictogram import WIDE, n
from allranks.show.pictures.scenes import Scene, box, text
from allranks.theory.cost.plan import MODELS

DASHED = ' stroke-width="3" stroke-dasharray="9 7"'


def _way(x: float, top: float, bottom: float, from_x: float | None = None) -> str:
    """A dotted line down to x, as far as nobody has said what goes there."""
    start, middle = x if from_x is None else from_x, (top + bottom) / 2
    path = f"M{n(start)} {n(top)}C{n(start)} {n(middle)} {n(x)} {n(middle)} {n(x)} {n(bottom)}"
    return (
        f'<path class="workline" d="{path}" fill="none" stroke-width="3" stroke-dasharray="2 8" '
        'stroke-linecap="round"/>'
    )


def libraries() -> Scene:
    """Chapter 41: one program, four machines, and between them the libraries that nobody named."""
    machines = ("8 H100s", "your laptop", "AMD GPUs", "MPI cluster")
    step = WIDE / len(machines)
    out = [box("ink", 0, 0, WIDE, 62, 12), text(WIDE / 2, 39, "torch.distributed: five calls", "onink")]
    for i, machine in enumerate(machines):
        x = step * (i + 0.5)
        out.append(_way(x, 66, 118) + box("paper line", x - 84, 120, 168, 72, 12, DASHED))
        out.append(text(x, 170, "?", "ink mark") + _way(x, 196, 248))
        out.append(box("panel line", x - 92, 250, 184, 66, 12) + text(x, 290, machine, "ink small"))
    words = (
        f"One program calls torch.distributed. Below it four machines: {', '.join(machines)}. Between them the "
        "library is a question mark."
    )
    return "".join(out), 320, words


def training_run(gpus: int = 64, gigabytes: int = 80) -> Scene:
    """Chapter 29: what training keeps in memory, and the memories that it must be shared out to, to scale."""
    kept = MODELS["LLaMA 65B"].parameters * 16 / 1e9
    columns, side, step = 16, 40.0, WIDE / 16
    out = [text(0, 20, f"weights, gradients, Adam: {kept:,.0f} GB", anchor="start")]
    whole = kept / gigabytes
    for i in range(round(whole)):
        out.append(box("words", step * i, 34, side, side, 5))
    out.append(text(0, 136, f"{gpus} GPUs of {gigabytes} GB", anchor="start"))
    for gpu in range(gpus):
        row, column = divmod(gpu, columns)
        more = ' stroke-width="2.5"'
        out.append(box("paper inkline", step * column + 1, 150 + step * row, side, side, 5, more))
    high = 150 + step * (gpus // columns)
    words = (
        f"To scale: {kept:,.0f} GB of weights, gradients and Adam's state above, the memories of {gpus} GPUs with "
        f"{gigabytes} GB each below, all still empty."
    )
    return "".join(out), high, words


def laptop_and_cluster() -> Scene:
    """Chapter 42: the same program on gloo, where it is right, and on NCCL, where nobody knows yet."""
    out = [box("ink", 250, 0, 300, 62, 12), text(400, 39, "your program", "onink")]
    for left, name, mark in ((30.0, "laptop: gloo", "right"), (450.0, "cluster: NCCL", "?")):
        x = left + 160
        known = mark != "?"
        out.append(_way(x, 66, 128, 400))
        out.append(box("panel line" if known else "paper line", left, 132, 320, 178, 12, "" if known else DASHED))
        for rank in range(4):
            out.append(box(f"r{rank}", left + 26 + 70 * rank, 158, 58, 44, 8))
        out.append(text(x, 268, mark, "ink" if known else "ink mark") + text(x, 342, name))
    words = (
        "The same program on two machines of four ranks: on a laptop with gloo it is right, on a cluster with "
        "NCCL a question mark."
    )
    return "".join(out), 354, words
