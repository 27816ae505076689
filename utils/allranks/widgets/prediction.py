"""What a reader predicts before a cell runs: buttons that judge nothing; the cell after them reads what was chosen."""

from __future__ import annotations

import ipywidgets

from allranks.widgets.buttons import Keys, Options
from allranks.widgets.drill import DrillError


def ask(*options: str, description: str = "") -> ipywidgets.RadioButtons:
    """Radio buttons for a prediction, none of them chosen: `value` is None until one is, then that option's text.

        guess = ask("the sum", "the mean", "an error")

    Options too long for the page wrap. Tab enters the buttons, arrow keys move among them and choose. `description` stands
    above the buttons, where one cell asks twice. Nothing is judged or graded: for a reason to each answer there is `Quiz`.
    They look so where they are shown, not within another widget's box. Raises DrillError for fewer than two options, for one
    that is not text or is empty, and for one that is there twice.
    """
    for option in options:
        if not isinstance(option, str) or not option.strip():
            star = ": ask(*options)" if isinstance(option, (list, tuple)) else ""
            raise DrillError(f"{option!r} can't be offered as an answer; give each option as a text of its own{star}")
    if len(options) < 2:
        raise DrillError(f"a prediction needs at least two options to choose from; there are {len(options)}")
    if twice := [option for number, option in enumerate(options) if option in options[:number]]:
        raise DrillError(f"the option {twice[0]!r} is there twice; nobody could tell which was meant")
    return _Prediction(options, description=description)


class _Prediction(Options):
    """Options that bring their keys and style along when they are shown."""

    def _repr_mimebundle_(self, **kwargs) -> dict:
        shown = ipywidgets.VBox([self, Keys()])._repr_mimebundle_(**kwargs)
        return {
            **shown,
            "text/plain": "\n".join([*filter(None, [self.description]), *map("( ) {}".format, self.options)]),
        }
