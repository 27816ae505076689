"""The calculator without a browser: what its fields price, and that a bad figure costs a sentence and nothing else."""

import re

import pytest
from allranks.cost import workload
from allranks.cost.plan import MODELS, plan
from allranks.cost.workload import Cluster, WorkloadError
from allranks.widgets.calculator import EQUAL_LINKS, OWN, Calculator


def figures(calculator: Calculator) -> dict[str, list[str]]:
    """kind: [calls, GB, ms], as the table on the page has them."""
    page = calculator._result.value
    return {
        kind: re.findall(r'data-figure="\w+">([^<]*)<', row)
        for kind, row in re.findall(r'<tr data-kind="([^"]+)">(.*?)</tr>', page, flags=re.S)
    }


def test_the_table_has_the_figures_of_workload():
    calculator = Calculator("7B", EQUAL_LINKS, dp=32, alpha_us=5)
    wanted = workload.ddp(7e9, Cluster(32, 200e9, 5e-6))
    assert calculator.plan.prices["data"].parts == wanted.parts
    assert figures(calculator)["data"] == ["535", f"{wanted.bytes_sent / 1e9:.2f}", f"{1e3 * wanted.seconds:.1f}"]
    assert figures(calculator)["data"] == ["535", "27.12", "301.5"]


def test_every_field_reaches_the_plan():
    calculator = Calculator()
    values = {
        "dp": 16, "tp": 2, "pp": 2, "ep": 4, "zero_stage": 2, "batch": 128, "microbatch": 4, "dtype": "float32",
        "bucket_mib": 50.0, "billions": 30.0, "layers": 48, "hidden": 6144, "sequence": 1024, "experts": 16, "top_k": 4,
        "expert_billions": 20.0, "machine": EQUAL_LINKS, "gb_per_s": 100.0, "alpha_us": 3.0,
    }  # fmt: skip
    for name, value in values.items():
        calculator.fields[name].value = value
    assert set(calculator.fields) == set(values) | {"model"}
    found = calculator.plan
    assert calculator.problem is None and calculator.fields["model"].value == OWN
    assert (found.dp, found.tp, found.pp, found.ep, found.zero_stage) == (16, 2, 2, 4, 2)
    assert (found.batch, found.microbatch, found.dtype, found.bucket_nbytes) == (128, 4, "float32", 50 * 2**20)
    model = found.model
    assert (model.parameters, model.expert_parameters) == (30e9, 20e9)
    assert (model.layers, model.hidden, model.sequence, model.experts, model.top_k) == (48, 6144, 1024, 16, 4)
    link = found.machine.inside
    assert link.bytes_per_s == 100e9 and link.alpha_s == pytest.approx(3e-6)
    assert set(figures(calculator)) == {"data", "tensor", "pipeline", "expert", "in all"}
    assert f"{found.calls:,}" == figures(calculator)["in all"][0]


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("dp", 0, "DP is 0; it is a whole number above 0."),
        ("tp", -2, "TP is -2"),
        ("tp", 3, "Hidden is 4096|hidden is 4096, which tp = 3"),
        ("bucket_mib", -1.0, "bucket, MiB is -1; it is a number above 0, or 0 for one call."),
        ("bucket_mib", float("nan"), "bucket, MiB is nan"),
        ("billions", float("inf"), "inf"),
        ("billions", 0.0, "The model has 0 parameters"),
        ("layers", 0, "layers is 0"),
        ("batch", 100, "batch is 100, which dp x microbatch = 8 does not divide"),
        ("ep", 2, "has no experts"),
    ],
)
def test_a_figure_that_can_not_be_costs_one_sentence_and_loses_nothing(name, value, words):
    calculator = Calculator(dp=8, hidden=4096)
    before = {field: widget.value for field, widget in calculator.fields.items()}
    good, table = calculator.plan, figures(calculator)
    calculator.fields[name].value = value
    assert re.search(words, calculator.problem, flags=re.I) and calculator.problem.count(". ") == 0
    assert calculator.plan is good and figures(calculator) == table
    assert 'role="alert"' in calculator._result.value and calculator.problem in calculator.text()
    after = {field: widget.value for field, widget in calculator.fields.items()}
    assert {field for field in after if str(after[field]) != str(before[field])} <= {name, "model"}
    calculator.fields[name].value = before[name]
    assert calculator.problem is None and "role" not in calculator._result.value
    assert figures(calculator) == table


def test_own_figures_come_back_after_a_look_at_a_preset():
    calculator = Calculator("7B", dp=4)
    calculator.fields["layers"].value = 40
    assert calculator.fields["model"].value == OWN and calculator.plan.model.layers == 40
    calculator.fields["model"].value = "GPT-3 175B"
    assert calculator.plan.model is MODELS["GPT-3 175B"] and calculator.fields["layers"].value == 96
    calculator.fields["model"].value = OWN
    assert calculator.plan.model.layers == 40 and calculator.plan.model.parameters == 7e9


def test_set_changes_all_before_it_prices():
    calculator = Calculator("7B", dp=8)
    assert calculator.set(model="Mixtral 8x7B", dp=16, ep=8, batch=32) is calculator
    assert calculator.plan == plan("Mixtral 8x7B", "dgx-h100", dp=16, ep=8, batch=32)
    assert calculator.set(model="7B", layers=30, ep=1).plan.model.layers == 30
    values = {name: field.value for name, field in calculator.fields.items()}
    for bad, words in (
        ({"nodes": 3}, "no field 'nodes'; it has model, machine"),
        ({"model": "GPT-9"}, "no model 'GPT-9'; there are 7B"),
        ({"zero_stage": 7}, "no zero_stage 7; there are 0, 1, 2, 3"),
        ({"tp": 2, "dp": "many"}, "dp is 'many'; it is a number"),
    ):
        with pytest.raises(WorkloadError, match=words):
            calculator.set(**bad)
        assert {name: field.value for name, field in calculator.fields.items()} == values
    with pytest.raises(WorkloadError, match="DP is 0"):
        Calculator(dp=0)


def test_a_page_without_a_kernel_shows_the_table():
    calculator = Calculator("LLaMA 65B", dp=4, tp=8, pp=2)
    bundle = calculator._repr_mimebundle_()
    assert "tensor" in bundle["text/plain"] and "pipeline stages wait" in bundle["text/plain"]
    assert "<table>" in bundle["text/html"] and "application/vnd.jupyter.widget-view+json" in bundle
    widths = [float(w) for w in re.findall(r";width:([\d.]+)%", calculator._result.value)]
    assert len(widths) == 3 and max(widths) == 100  # the slowest kind's bar is whole
    seconds = [price.seconds for price in calculator.plan.prices.values()]
    assert widths == pytest.approx([100 * s / max(seconds) for s in seconds], abs=0.06)
    assert repr(calculator).startswith("<Calculator: LLaMA 65B, 64 ranks on 8 nodes (dgx-h100)")
