"""My model: what one training run needs and costs, with as many axes to split it as the reader has opened.

The browser computes what the reader chooses, by the formulas of `allranks.cost` (a test holds the two equal). What is opened and
chosen is kept in a file beside the chapters once a reader looks at the widget; on a page without a kernel the browser keeps it.
"""

from __future__ import annotations

from typing import Any

import traitlets

from allranks.base import kept as kept_file
from allranks.show.widgets import my_model_story as story
from allranks.show.widgets import step_figures
from allranks.show.widgets.explorable import Explorable
from allranks.theory.cost.plan import MODELS, Plan
from allranks.theory.cost.step import TrainingStep
from allranks.theory.cost.workload import WorkloadError

_KEPT = kept_file.MY_MODEL


class MyModel(Explorable):
    """What `my_model` returns: a training run whose `values` the reader changes; `plan` and `step` are what they mean.

    `kept` has "opened", the number of axes that this reader has opened so far, and "chosen", the values by the widget's `id`.

    Example:
        >>> my_model("sharded_training").step.fits
        True
    """

    kept = traitlets.Dict().tag(sync=True)
    # the browser says so; a notebook that a program runs has no reader, and keeps nothing
    has_reader = traitlets.Bool(False).tag(sync=True)

    def __init__(self, data: dict[str, Any], values: dict[str, Any]) -> None:
        super().__init__("my_model", data, values, _text)
        self.kept = {"opened": data["opened"], "chosen": {}}

    @property
    def plan(self) -> Plan:
        """The plan that the reader chose. Raises WorkloadError if it is impossible."""
        return story.plan_of(self.values)

    @property
    def step(self) -> TrainingStep:
        """The memory and the seconds of a step of that plan. Raises WorkloadError if it is impossible."""
        return story.step_of(self.values)

    def set(self, **values: Any) -> MyModel:
        """Changes values by name, moves the buttons, and returns the widget. Raises WorkloadError for an unknown name."""
        _check_names(values)
        self.values = {**self.values, **values}
        return self

    def _page_state(self) -> dict[str, Any]:
        return super()._page_state() | {"kept": self.kept}

    @traitlets.observe("has_reader")
    def _remember(self, change: Any) -> None:
        """Adds what this reader opened and chose before, and keeps what is opened now."""
        before = kept_file.read(_KEPT)
        chosen = {name: values for name, values in before.get("chosen", {}).items() if set(values) == set(story.START)}
        self.kept = {"opened": max(before.get("opened", 0), self.data["opened"]), "chosen": chosen}
        if self.data["id"] in chosen:
            self.values = chosen[self.data["id"]]
        kept_file.write(_KEPT, self.kept)

    @traitlets.observe("values")
    def _keep(self, change: Any) -> None:
        if self.has_reader:
            self.kept = self.kept | {"chosen": {**self.kept["chosen"], self.data["id"]: self.values}}
            # another notebook may have opened or chosen more since
            now = kept_file.read(_KEPT)
            chosen = {**now.get("chosen", {}), self.data["id"]: self.values}
            kept_file.write(_KEPT, {"opened": max(now.get("opened", 0), self.kept["opened"]), "chosen": chosen})


def _text(data: dict[str, Any], values: dict[str, Any]) -> str:
    try:
        return story.sentence(story.step_of(values))
    except WorkloadError as error:
        return f"This split is impossible: {error}."


def my_model(after: str = "", **values: Any) -> MyModel:
    """My model as it stands after a chapter of the core: its memory, one step, and an axis more to split it by each chapter.

    `after` is the name of a chapter, as in its file's name without the number; it opens that chapter's axis and all before it.
    Without it all axes are open. `values` are model and machine (names as in `plan`), sequence and tokens (of a step), microbatch,
    ranks, bucket (bytes; 0 is one call for all gradients), zero_stage, tp, pp, cp, and ep (0: a model without experts). What is left
    of `ranks` is data parallel. The figures are those of `plan` and `training_step`. Raises WorkloadError for an unknown name, or
    if the first split is impossible.

    Example:
        >>> my_model("sharded_training").text()
        'A GPU needs 52 GB, and H100 has 80 GB: 28 GB to spare. A step takes 1.13 s, 3.4 ms of it exposed: 71 % MFU.'
        >>> my_model(model="LLaMA 65B", ranks=64, tokens=2**22, bucket=25 << 20, zero_stage=1, tp=4, pp=2).text()
        'A GPU needs 60 GB, and H100 has 80 GB: 20 GB to spare. A step takes 43 s, 6.74 s of it exposed: 63 % MFU.'
    """
    if after and after not in story.OPENED_BY:
        raise WorkloadError(f"no chapter {after!r} opens an axis; there are {', '.join(story.OPENED_BY)}")
    _check_names(values)
    start = story.values_at(after) if after else dict(story.START)
    if values.get("model") in MODELS:
        start["sequence"] = MODELS[values["model"]].sequence
    chosen = start | values
    story.plan_of(chosen)
    data = {
        "models": step_figures.models(),
        "machines": step_figures.machines(chosen["machine"]),
        "assumed": step_figures.assumptions(),
        "axes": _axes(),
        "start": story.START,
        "opened": story.OPENED_BY[after] if after else len(story.AXES),
        # the widget's own name among those that keep what was chosen
        "id": " ".join([after, *(f"{name}={value}" for name, value in sorted(values.items()))]).strip(),
        "after": after,
    }
    return MyModel(data, chosen)


def _axes() -> list[dict[str, Any]]:
    """The axes with the chapters that open them, what my model needs there, and what the course chooses."""
    return [
        {
            "key": axis.key,
            "name": axis.name,
            "chapter": axis.chapter,
            "title": axis.opened_by.title,
            "path": axis.opened_by.path.as_posix(),
            "needs": story.needs(axis.chapter),
            "values": story.values_after(opened),
        }
        for opened, axis in enumerate(story.AXES, 1)
    ]


def _check_names(values: dict[str, Any]) -> None:
    if unknown := sorted(set(values) - set(story.START)):
        raise WorkloadError(f"there is no value {unknown[0]!r}; there are {', '.join(story.START)}")
