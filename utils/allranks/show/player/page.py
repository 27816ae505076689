"""A player as HTML, without widget and kernel: for pages, verdicts, and Python in the browser. No anywidget."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from typing import Any

from allranks.base.errors import CourseError
from allranks.show.player.animation import Animation, animate
from allranks.show.player.offline import live_page, packed
from allranks.show.player.pace import on_one_clock
from allranks.show.player.still import still
from allranks.theory.schedules import Schedule
from allranks.theory.trace import Trace

# larger animations (in bytes) are not stored a second time in the notebook, for pages without a kernel
_LARGE = 400_000


class PlayerError(CourseError, ValueError):
    """The player can't play its input, or does not know a setting."""


def prepared(
    sources: Sequence[Schedule | Trace], nbytes: int | None = None, axis: str | None = None
) -> tuple[list[Animation], str]:
    """The animations of what is played side by side, and the axis on which; those of `Player`, without a widget."""
    run = next((given for given in sources if isinstance(given, Trace) and given.nbytes), None)
    animations = [animate(given, _as_much_as(run, given) if nbytes is None else nbytes) for given in sources]
    if len(animations) > 1 and any(isinstance(given, Schedule) for given in sources):
        animations = on_one_clock(animations)
    if axis is None:
        own_clock = all(f.timed and f.kind in ("live", "simulated") for f in animations)
        axis = "time" if own_clock or all(f.pace for f in animations) else "step"
    if axis == "time" and not all(f.timed for f in animations):
        raise PlayerError("axis is 'time', but a schedule has no times; simulate it, or leave axis out")
    return animations, axis


def _as_much_as(run: Trace | None, given: Schedule | Trace) -> int | None:
    """The bytes of the vector with which a schedule moves as many bytes as the run beside it."""
    if run is None or not isinstance(given, Schedule):
        return None
    # a trace counts all ranks' vectors together, a schedule one
    return run.nbytes // given.ranks if given.collective == "all_to_all" else run.nbytes


def page_without_kernel(
    *sources: Schedule | Trace, titles: Sequence[str] = (), nbytes: int | None = None, **traits: Any
) -> str:
    """The HTML of `Player.page`, of one or two sources, without a widget that a kernel would keep.

    `traits`: the widget's that are not as usual.

    >>> "Ring" in page_without_kernel(schedules.ring_all_reduce(3), titles=["Ring"], playing=True)
    True
    """
    animations, axis = prepared(sources, nbytes)
    state = {"speed": 1.0, "arrangement": "auto", "axis": axis, "quiz": False, "titles": list(titles)}
    return page(animations, [f.payload() for f in animations], state | traits, in_words(animations))


def in_words(animations: Sequence[Animation]) -> str:
    """What happens, in words, with one line for each step."""
    parts = []
    for f in animations:
        lines = f.captions()
        if len(lines) > 24:
            lines = [*lines[:12], f"... {len(lines) - 18} more steps ...", *lines[-6:]]
        says = f.path.says if f.path is not None else ()
        parts.append("\n".join([f"{f.title}, {f.ranks} ranks", *says, *lines]))
    return "\n\n".join(parts)


def page(animations: Sequence[Animation], payloads: Sequence[bytes], state: dict[str, Any], words: str) -> str:
    """The HTML of `Player.page`: `state` and `payloads` are the widget's traits."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(still(animations).encode()).decode()}"
    picture = f'<img alt="{html.escape(words, quote=True)}" style="max-width:100%;background:#fff" src="{source}">'
    if sum(map(len, payloads)) > _LARGE:
        return picture
    state = {"step": 0, "playing": False, "answers": [], **state}
    first, second = (*payloads, b"")[:2]
    code = packed("allranks.show.player", "player")
    return live_page(state, {"code": code, "animation": first, "compared": second}, picture)
