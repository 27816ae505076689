"""A picture that answers at once: what the browser draws, what the reader chose, and the sentence that says it."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from allranks.show.player.offline import LOADER, live_page, packed

# what can't be changed, what was chosen -> what the picture says
Sentence = Callable[[dict[str, Any], dict[str, Any]], str]


class Explorable(anywidget.AnyWidget):
    """A widget that shows one picture and computes it in the browser. The functions of `explore` make them.

    `kind` is the function's name, `data` what the reader can't change, `values` what the reader can; setting `values`
    to a dict with the same keys moves the sliders.

    Example:
        >>> explore.crossover(ranks=24).values["p"]
        24
    """

    _esm = LOADER
    code = traitlets.Bytes(packed("allranks.show.widgets", "explore")).tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)

    def __init__(self, kind: str, data: dict[str, Any], values: dict[str, Any], sentence: Sentence) -> None:
        super().__init__(kind=kind, data=data, values=values)
        self._sentence = sentence

    def text(self) -> str:
        """What the picture says, as a sentence."""
        return self._sentence(self.data, self.values)

    def _page_state(self) -> dict[str, Any]:
        """The traits with which a page without a kernel begins."""
        return {"kind": self.kind, "data": self.data, "values": self.values}

    def __repr__(self) -> str:
        return f"<Explorable {self.kind}: {self.text()}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        found = super()._repr_mimebundle_(**kwargs)
        data, metadata = found if isinstance(found, tuple) else (found, {})
        words = html.escape(self.text()).replace("\n", "<br>")
        shown = live_page(self._page_state(), {"code": self.code}, f"<p>{words}</p>")
        return {**(data or {}), "text/plain": self.text(), "text/html": shown}, metadata
