"""The player as an ipywidget: one animation, or two side by side, with the controls of a video player."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import anywidget
import traitlets

from allranks.show.player.animation import LAYOUTS, Animation
from allranks.show.player.offline import LOADER, packed
from allranks.show.player.page import PlayerError, in_words, page, prepared
from allranks.show.player.still import still
from allranks.theory.schedules import Schedule
from allranks.theory.trace import Trace

SPEEDS = (0.25, 0.5, 1, 2, 4)


@cache
def script() -> str:
    """The widget's ES module with its style sheet, as `make js` bundles it from js/src/."""
    return (resources.files(__package__) / "static" / "player.js").read_text(encoding="utf-8")


class Player(anywidget.AnyWidget):
    """A widget that plays a schedule or a trace; with two of them it plays both side by side, on one clock.

    `compare` (or a second positional argument) is the other one. `nbytes` is the size of the full vector if a
    schedule is given; a trace has its own. `layout` is "auto", "ring", "line", "tree", "grid" or "all-to-all". `axis`
    is "step" or "time"; left out, live and simulated runs are shown in time, and so are two of which one is a schedule:
    there a step lasts 5 µs and its bytes at 50 GB/s. With `quiz=True` the player stops before each step and asks what
    happens next. With `bound=False` it does not say the least that a rank must send, so that a reader
    can find it. `titles` has a title for each. The traits `step`, `playing`, `speed`, `arrangement` (the layout),
    `axis` and `quiz` can be set and linked; `answers` holds what was answered. js/src/player/data.js lists the traits
    with their types.

    Raises PlayerError for an input that is neither a Schedule nor a Trace, and for unknown settings.

    Example:
        >>> player = Player(schedules.ring_all_reduce(4), compare=schedules.tree_all_reduce(4), nbytes=1 << 20)
        >>> player.axis
        'time'
    """

    _esm = LOADER
    code = traitlets.Bytes(packed("allranks.show.player", "player")).tag(sync=True)
    animation = traitlets.Bytes(b"").tag(sync=True)
    compared = traitlets.Bytes(b"").tag(sync=True)
    step = traitlets.Int(0, min=0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    speed = traitlets.Float(1.0).tag(sync=True)
    arrangement = traitlets.Enum(("auto", *LAYOUTS), "auto").tag(sync=True)
    axis = traitlets.Enum(("step", "time"), "step").tag(sync=True)
    quiz = traitlets.Bool(False).tag(sync=True)
    answers = traitlets.List(traitlets.Dict()).tag(sync=True)
    titles = traitlets.List(traitlets.Unicode()).tag(sync=True)
    pressed = traitlets.Bool(False).tag(sync=True)  # a button opened it, so it is to be scrolled to

    def __init__(
        self,
        source: Schedule | Trace,
        compare: Schedule | Trace | None = None,
        *,
        nbytes: int | None = None,
        layout: str = "auto",
        axis: str | None = None,
        speed: float = 1.0,
        quiz: bool = False,
        bound: bool = True,
        titles: Sequence[str] = (),
        **widget_options: Any,
    ) -> None:
        sources = [source] if compare is None else [source, compare]
        for given in sources:
            if not isinstance(given, (Schedule, Trace)):
                raise PlayerError(f"the player plays a Schedule or a Trace; it was given a {type(given).__name__}")
        if layout not in ("auto", *LAYOUTS):
            raise PlayerError(f"layout is {layout!r}; it must be auto, {', '.join(LAYOUTS)}")
        if axis not in (None, "step", "time"):
            raise PlayerError(f"axis is {axis!r}; it must be step or time")
        if speed not in SPEEDS:
            raise PlayerError(f"speed is {speed!r}; it must be one of {', '.join(map(str, SPEEDS))}")
        if nbytes is not None and nbytes < 0:
            raise PlayerError(f"nbytes is {nbytes}; it can't be negative")
        if isinstance(titles, str) or len(titles) not in (0, len(sources)):
            raise PlayerError(f"titles are {titles!r}; give one for each of the {len(sources)} that are played")
        animations, axis = prepared(sources, nbytes, axis)
        if not bound:
            animations = [replace(one, bound=None) for one in animations]
        self.animations: tuple[Animation, ...] = tuple(animations)
        super().__init__(
            animation=animations[0].payload(),
            compared=animations[1].payload() if compare is not None else b"",
            arrangement=layout,
            axis=axis,
            speed=float(speed),
            quiz=quiz,
            titles=list(titles),
            **widget_options,
        )

    def __repr__(self) -> str:
        return f"<Player {' beside '.join(f.title for f in self.animations)}>"

    def text(self) -> str:
        """What happens, in words, with one line for each step."""
        return in_words(self.animations)

    def svg(self) -> str:
        """A still picture, an SVG document: what every cell holds after each step, and the messages in between."""
        return still(self.animations)

    def page(self) -> str:
        """HTML for pages without a kernel: the still picture, and a script that replaces it by the player.

        Needs no network. The picture stays where scripts are removed (GitHub), and for the largest animations.
        """
        state = {"speed": self.speed, "arrangement": self.arrangement, "axis": self.axis, "quiz": self.quiz}
        return page(self.animations, [self.animation, self.compared], state | {"titles": self.titles}, self.text())

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        found = super()._repr_mimebundle_(**kwargs)
        data, metadata = found if isinstance(found, tuple) else (found, {})
        return {**(data or {}), "text/plain": self.text(), "text/html": self.page()}, metadata
