"""A reader's prediction before a cell runs: buttons without a right answer. The cell after them reads what was chosen."""

from __future__ import annotations

from typing import Any

import ipywidgets

from allranks.widgets.buttons import Keys, Options
from allranks.widgets.drill import DrillError
from allranks.widgets.fallback import with_fallback


def ask(*options: str, description: str = "") -> ipywidgets.RadioButtons:
    """Radio buttons for a prediction. `value` is None until the reader chooses; then it is the text of the option.

    `description` is shown above the buttons, for a cell that asks twice. Nothing is judged or graded: `Quiz` gives a reason for
    each answer. Tab enters the buttons; arrow keys move between them and choose. End a cell with them to show them: inside another
    widget's box they lose their style. Raises DrillError for fewer than two options, for an option that is empty or no text,
    and for an option given twice.

    Example:
        >>> guess = ask("the sum", "the mean", "an error")
        >>> guess.value is None
        True
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
    """Options that are shown in a box with the `Keys` that they need."""

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        shown = ipywidgets.VBox([self, Keys()])._repr_mimebundle_(**kwargs)
        return with_fallback(shown, "\n".join([*filter(None, [self.description]), *map("( ) {}".format, self.options)]))
