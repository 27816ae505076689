"""A widget for `allranks.cost.plan`: what a training step sends, by kind of parallelism, as its reader changes the fields.

The plan computes every figure; this file only reads fields and shows results.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets
import traitlets

from allranks.cost.plan import MODELS, Model, Plan, custom_model, plan
from allranks.cost.workload import ELEMENT_NBYTES, Traffic, WorkloadError
from allranks.topology import PRESETS, Topology, TopologyError, uniform
from allranks.widgets.fallback import with_fallback

OWN = "own figures"  # the choice of a model whose fields the reader has changed
EQUAL_LINKS = "equal links"  # a machine in which every pair of ranks has its own link, as the formulas assume
_COLOURS = {"data": "#0072b2", "tensor": "#d55e00", "pipeline": "#009e73", "expert": "#cc79a7"}
# field: (label, what it means)
_MODEL_FIELDS = {
    "billions": ("parameters, 10⁹", "All parameters of the model, in billions"),
    "layers": ("layers", "Transformer layers"),
    "hidden": ("hidden", "Elements of a token between layers"),
    "sequence": ("sequence", "Tokens of a sequence"),
    "experts": ("experts", "Experts of a layer; 0 for a dense model"),
    "top_k": ("top k", "Experts that a token goes to"),
    "expert_billions": ("in experts, 10⁹", "Those of all parameters that lie in experts, in billions"),
}
_LINK_FIELDS = {
    "gb_per_s": ("GB/s", "Of equal links: bandwidth of a link in one direction (10⁹ bytes/s)"),
    "alpha_us": ("alpha, µs", "Of equal links: microseconds a message"),
}
_SPLIT_FIELDS = {
    "dp": ("DP", "Data parallel: replicas of the model"),
    "tp": ("TP", "Tensor parallel: ranks that share each layer's matrices"),
    "pp": ("PP", "Pipeline parallel: stages"),
    "ep": ("EP", "Expert parallel: data parallel ranks that share the experts"),
    "bucket_mib": ("bucket, MiB", "Of DDP's buckets of gradients; 0 is one call for all"),
    "batch": ("batch", "Sequences of a step, over all replicas"),
    "microbatch": ("microbatch", "Sequences that a replica does at a time"),
}
_STAGES = {"plain DDP": 0, "ZeRO-1": 1, "ZeRO-2": 2, "ZeRO-3": 3}


class Calculator(ipywidgets.VBox):
    """A widget with a field for each figure of a `Plan`; below them the bytes, calls and seconds of a training step.

    `model` is "7B" or another preset of the field; `machine` a name of `topology.PRESETS`, or "equal links", for which the fields
    `gb_per_s` and `alpha_us` count. Other arguments set fields by name: dp, tp, pp, ep, zero_stage, bucket_mib, batch,
    microbatch, dtype, layers, ...; `set` does so later. For impossible figures the widget keeps the last price and shows one
    sentence. `plan` is the last plan that has a price, `problem` that sentence or None. Raises WorkloadError if the first plan
    is impossible.

    Example:
        >>> calculator = Calculator("7B", "dgx-h100", dp=8)
        >>> calculator.plan.ranks
        8
        >>> calculator.set(tp=3).problem is None
        False
    """

    problem = traitlets.Unicode(None, allow_none=True)

    def __init__(self, model: str = "7B", machine: str = "dgx-h100", **figures: Any) -> None:
        self.plan: Plan | None = None
        self._own: dict[str, float] | None = None
        self._quiet = False
        self.fields = _fields()
        self._result = ipywidgets.HTML()
        super().__init__([_row(self.fields, names) for names in _ROWS] + [self._result])
        self.add_class("ar-calculator")
        for name, field in self.fields.items():
            field.observe(lambda change, name=name: self._changed(name), names="value")
        self.set(model=model, machine=machine, **figures)
        if self.plan is None:
            raise WorkloadError(self.problem)

    def set(self, **figures: Any) -> Calculator:
        """Sets fields by name, computes the price once, and returns the calculator.

        Raises WorkloadError for an unknown field, an unknown choice and a value that is no number.
        """
        for name, value in figures.items():
            if name not in self.fields:
                raise WorkloadError(f"the calculator has no field {name!r}; it has {', '.join(self.fields)}")
            options = getattr(self.fields[name], "options", None)
            there = [o[1] if isinstance(o, tuple) else o for o in options or ()]
            if options and value not in there:
                raise WorkloadError(f"there is no {name} {value!r}; there are {', '.join(map(str, there))}")
        before = {name: field.value for name, field in self.fields.items()}
        with self._without_pricing():
            if "model" in figures:  # first, because it fills fields that other arguments may change
                self.fields["model"].value = figures["model"]
                self._fill_in(figures["model"])
            for name, value in figures.items():
                try:
                    self.fields[name].value = value
                except traitlets.TraitError:
                    for field, old in before.items():
                        self.fields[field].value = old
                    raise WorkloadError(f"{name} is {value!r}; it is a number") from None
            if any(name in _MODEL_FIELDS for name in figures):
                self._is_own()
        self._price()
        return self

    def text(self) -> str:
        """The table as plain text; first the problem, if the fields have no price."""
        lines = [self.problem, "The last price:"] if self.problem else []
        lines.append(_headline(self.plan))
        for kind, what, calls, sent, time_s, _ in _rows(self.plan):
            lines.append(f"{kind:<10}{what:<58}{calls:>10,} calls{_gb(sent):>12} GB{_ms(time_s):>12} ms".rstrip())
        return "\n".join([*lines, *_remarks(self.plan)])

    def __repr__(self) -> str:
        return f"<Calculator: {_headline(self.plan)}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        return with_fallback(super()._repr_mimebundle_(**kwargs), self.text(), self._result.value)

    @contextmanager
    def _without_pricing(self) -> Iterator[None]:
        """Changes of fields in this block compute no price."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _changed(self, name: str) -> None:
        if self._quiet:
            return
        with self._without_pricing():
            if name == "model":
                self._fill_in(self.fields["model"].value)
            elif name in _MODEL_FIELDS:
                self._is_own()
        self._price()

    def _fill_in(self, name: str) -> None:
        """Fills the model's fields: with a preset's figures, or with the reader's own if "own figures" is chosen."""
        figures = self._own if name == OWN else _figures(MODELS[name])
        for field, value in (figures or {}).items():
            self.fields[field].value = value

    def _is_own(self) -> None:
        """Chooses "own figures", and remembers what the reader typed."""
        self.fields["model"].value = OWN
        self._own = {name: self.fields[name].value for name in _MODEL_FIELDS}

    def _price(self) -> None:
        """Computes and shows the price, or says why the fields have none."""
        for name in _LINK_FIELDS:
            self.fields[name].disabled = self.fields["machine"].value != EQUAL_LINKS
        try:
            found = self._read()
            found.prices  # noqa: B018  computed here: raises if the plan is impossible
            self.plan, self.problem = found, None
        except (WorkloadError, TopologyError) as error:
            self.problem = self._sentence(str(error))
        if self.plan is not None:
            self._result.value = _html(self.plan, self.problem)

    def _sentence(self, text: str) -> str:
        """The error as a sentence; it names a field by its label on the page."""
        first, _, rest = text.partition(" ")
        name = self.fields[first].description if first in self.fields else first[:1].upper() + first[1:]
        return f"{name} {rest}."

    def _read(self) -> Plan:
        """The plan that the fields describe. Raises WorkloadError and TopologyError."""
        value = {name: field.value for name, field in self.fields.items()}
        mib = value["bucket_mib"]
        if not 0 <= mib < math.inf:
            raise WorkloadError(f"bucket_mib is {mib:g}; it is a number above 0, or 0 for one call")
        split = {name: value[name] for name in ("dp", "tp", "pp", "ep", "zero_stage", "batch", "microbatch", "dtype")}
        return plan(_model(value), _machine(value), bucket_nbytes=None if mib == 0 else mib * 2**20, **split)


def _fields() -> dict[str, ipywidgets.DOMWidget]:
    """The fields by name, in their order on the page."""
    found: dict[str, ipywidgets.DOMWidget] = {
        "model": _field(ipywidgets.Dropdown, "model", "A preset, or your own figures", options=[*MODELS, OWN]),
        "machine": _field(
            ipywidgets.Dropdown, "machine", "A preset, or a link of its own for each pair", options=[*PRESETS, EQUAL_LINKS]
        ),
        "zero_stage": _field(
            ipywidgets.Dropdown, "sharding", "What data parallel ranks share out: ZeRO's stage", options=list(_STAGES.items())
        ),
        "dtype": _field(
            ipywidgets.Dropdown, "dtype", "Of weights, gradients and activations", options=list(ELEMENT_NBYTES), value="bfloat16"
        ),
    }  # fmt: skip
    first = {"dp": 8, "tp": 1, "pp": 1, "ep": 1, "batch": 256, "microbatch": 1}
    for name, (label, meaning) in (_MODEL_FIELDS | _LINK_FIELDS | _SPLIT_FIELDS).items():
        whole = name not in ("billions", "expert_billions", "gb_per_s", "alpha_us", "bucket_mib")
        kind = ipywidgets.IntText if whole else ipywidgets.FloatText
        value = first.get(name, {"gb_per_s": 200.0, "alpha_us": 0.0, "bucket_mib": 25.0}.get(name, 0))
        found[name] = _field(kind, label, meaning, value=value)
    return found


_ROWS = (
    ("model", *_MODEL_FIELDS),
    ("machine", *_LINK_FIELDS, "dtype"),
    ("zero_stage", *_SPLIT_FIELDS),
)


def _field(kind: type[ipywidgets.DOMWidget], label: str, meaning: str, **options: Any) -> ipywidgets.DOMWidget:
    """A field with its label; `meaning` is shown when the mouse is over it."""
    style = {"description_width": "100px"}
    return kind(description=label, tooltip=meaning, layout={"width": "200px"}, style=style, **options)


def _row(fields: dict[str, ipywidgets.DOMWidget], names: tuple[str, ...]) -> ipywidgets.Box:
    return ipywidgets.HBox([fields[name] for name in names], layout={"flex_flow": "row wrap"})


def _figures(model: Model) -> dict[str, float]:
    """A model's figures, by field."""
    return {
        "billions": model.parameters / 1e9, "layers": model.layers, "hidden": model.hidden, "sequence": model.sequence,
        "experts": model.experts, "top_k": model.top_k, "expert_billions": model.expert_parameters / 1e9,
    }  # fmt: skip


def _model(value: dict[str, Any]) -> Model:
    if value["model"] != OWN:
        return MODELS[value["model"]]
    shape = {name: value[name] for name in ("layers", "hidden", "sequence", "experts", "top_k")}
    billions = {"parameters": value["billions"] * 1e9, "expert_parameters": value["expert_billions"] * 1e9}
    return custom_model(MODELS["7B"], **shape, **billions)


def _machine(value: dict[str, Any]) -> str | Topology:
    if value["machine"] != EQUAL_LINKS:
        return str(value["machine"])
    return uniform(value["alpha_us"] / 1e6, value["gb_per_s"] * 1e9)


def _rows(plan: Plan) -> list[tuple[str, str, int, float, float, float]]:
    """A row for each kind of parallelism: (kind, what it sends, calls, bytes, seconds, share of the slowest kind); then the sum."""
    slowest = max((price.seconds for price in plan.prices.values()), default=0.0)
    found = []
    for kind, price in plan.prices.items():
        collectives = dict.fromkeys(f"{part.what}: {part.collective}" for part in price.parts)
        what = next(iter(collectives)) if len(collectives) == 1 else _together(price.parts)
        share = price.seconds / slowest if slowest else 0.0
        found.append((kind, what, price.calls, price.bytes_sent, price.seconds, share))
    return [*found, ("in all", "", plan.calls, plan.bytes_sent, plan.seconds, 0.0)]


def _together(parts: tuple[Traffic, ...]) -> str:
    """The collectives of one kind of parallelism, each with its number of calls."""
    calls: dict[str, int] = {}
    for part in parts:
        calls[part.collective] = calls.get(part.collective, 0) + part.calls
    return ", ".join(f"{count:,} × {name}" for name, count in calls.items())


def _headline(plan: Plan) -> str:
    nodes = plan.machine.nodes(plan.ranks)
    machine = EQUAL_LINKS if plan.machine.name == "uniform" else plan.machine.name
    where = "" if machine == EQUAL_LINKS else f" on {nodes} node{'' if nodes == 1 else 's'}"
    return (
        f"{plan.model.name}, {plan.ranks} rank{'' if plan.ranks == 1 else 's'}{where} ({machine}): {_gb(plan.state_nbytes)} GB "
        "a rank for weights, gradients and Adam's state"
    )


def _remarks(plan: Plan) -> list[str]:
    found = []
    if "pipeline" in plan.prices:
        found.append(
            f"pipeline stages wait {plan.bubble:.1%} of the time ({plan.microbatches} microbatches, {plan.pp} stages)"
        )
    return found


_STYLE = """<style>
.ar-price th, .ar-price td { text-align: left; padding: 2px 10px; }
.ar-price [data-figure] { text-align: right; }
.ar-price .ar-bar { width: 200px; }
.ar-price .ar-bar div { height: 1em; min-width: 1px; }
</style>"""
_HEADS = '<th>parallel<th>a rank sends<th data-figure>calls<th data-figure>GB<th data-figure>ms<th aria-hidden="true">'


def _html(plan: Plan, problem: str | None) -> str:
    rows = []
    for kind, what, calls, sent, time_s, share in _rows(plan):
        colour = _COLOURS.get(kind)
        bar = f'<div style="background:{colour};width:{100 * share:.1f}%"></div>' if colour else ""
        figures = (("calls", f"{calls:,}"), ("gb", _gb(sent)), ("ms", _ms(time_s)))
        cells = "".join(f'<td data-figure="{name}">{text}</td>' for name, text in figures)
        rows.append(
            f'<tr data-kind="{kind}"><th scope="row">{kind}</th><td>{html.escape(what)}</td>{cells}'
            f'<td class="ar-bar" aria-hidden="true">{bar}</td></tr>'
        )
    said = dim = ""
    if problem:
        said = f'<p role="alert"><b>{html.escape(problem)}</b> Below: the last price.</p>'
        dim = ' style="opacity:0.5"'
    remarks = "".join(f"<p>{html.escape(text)}</p>" for text in _remarks(plan))
    return (
        f'{_STYLE}{said}<div class="ar-price"{dim}><p><b>{html.escape(_headline(plan))}</b></p><table><thead><tr>{_HEADS}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table>{remarks}</div>"
    )


def _gb(nbytes: float) -> str:
    return _figure(nbytes / 1e9)


def _ms(time_s: float) -> str:
    return _figure(1e3 * time_s)


def _figure(value: float) -> str:
    """The value with about four digits, never with an exponent."""
    if value == 0 or value >= 1000:
        return f"{value:,.0f}"
    digits = next((d for d, least in ((1, 100), (2, 10), (3, 1)) if value >= least), 4)
    return f"{value:.{digits}f}"
