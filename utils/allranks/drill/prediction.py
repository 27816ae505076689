"""What a reader predicts before a cell runs: buttons that judge nothing; the cell after them reads what was chosen."""

from __future__ import annotations

import ipywidgets

from allranks.drill.widget import DrillError

# ipywidgets gives a label the height of one line, so that a long option runs over the next, and puts its button after the text
_STYLE = """<style>
.ar-ask,.ar-ask .widget-radio-box,.ar-ask>.widget-label{height:auto;max-width:100%}
.ar-ask>.widget-label{width:auto;white-space:normal}
.ar-ask .widget-radio-box label{display:flex;flex-direction:row-reverse;justify-content:flex-end;align-items:flex-start;width:auto;height:auto;overflow-wrap:anywhere}
.ar-ask .widget-radio-box input{flex:none}
</style>"""


def ask(*options: str, description: str = "") -> ipywidgets.RadioButtons:
    """Radio buttons for a prediction, none of them chosen: `value` is None until one is, then that option's text.

        guess = ask("the sum", "the mean", "an error")

    Options too long for the page wrap. `description` stands above the buttons, where one cell asks twice. Nothing is
    judged or graded: for a reason to each answer there is `Quiz`. Raises DrillError for fewer than two options, for one
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
    return _Prediction(
        options=options, value=None, description=description, layout=ipywidgets.Layout(width="auto", max_width="100%")
    )


class _Prediction(ipywidgets.RadioButtons):
    """RadioButtons that bring their style along when they are shown."""

    def __init__(self, **traits) -> None:
        super().__init__(**traits)
        self.add_class("ar-ask")

    def _repr_mimebundle_(self, **kwargs) -> dict:
        style = ipywidgets.HTML(_STYLE, layout=ipywidgets.Layout(display="none"))
        shown = ipywidgets.VBox([style, self])._repr_mimebundle_(**kwargs)
        return {
            **shown,
            "text/plain": "\n".join([*filter(None, [self.description]), *map("( ) {}".format, self.options)]),
        }
