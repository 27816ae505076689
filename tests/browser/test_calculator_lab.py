"""The calculator in a real JupyterLab: a field is changed by keyboard, and the table has the figures of workload."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from allranks.cost import workload
from allranks.cost.workload import Cluster

pytestmark = pytest.mark.browser

CELL = """from allranks.widgets.calculator import Calculator

calculator = Calculator("7B", "equal links", dp=32, alpha_us=5)
calculator"""


def field(page, label: str):
    """The input whose label stands before it."""
    row = page.locator(".ar-calculator .jupyter-widgets", has=page.locator(f'label:text-is("{label}")')).last
    return row.locator("input, select")


def figure(page, kind: str, name: str) -> str:
    return page.locator(f'.ar-price tr[data-kind="{kind}"] [data-figure="{name}"]').inner_text()


def becomes(page, kind: str, name: str, wanted: str) -> None:
    page.wait_for_function(
        "([kind, name, wanted]) => document.querySelector("
        '`.ar-price tr[data-kind="${kind}"] [data-figure="${name}"]`)?.innerText === wanted',
        arg=[kind, name, wanted],
    )


def test_changing_a_field_changes_the_price_and_a_bad_one_costs_a_sentence(lab, new_page):
    page = new_page(viewport={"width": 1280, "height": 900})
    lab.open(page, lab.write(CELL))
    lab.run_all(page)
    page.wait_for_selector(".ar-price")
    price = workload.ddp(7e9, Cluster(32, 200e9, 5e-6))
    assert figure(page, "data", "calls") == str(price.calls) == "535"
    assert figure(page, "data", "ms") == f"{1e3 * price.seconds:.1f}" == "301.5"

    bucket = field(page, "bucket, MiB")
    bucket.fill("100")
    bucket.press("Enter")
    price = workload.ddp(7e9, Cluster(32, 200e9, 5e-6), bucket_nbytes=100 * 2**20)
    becomes(page, "data", "calls", str(price.calls))
    assert figure(page, "data", "ms") == f"{1e3 * price.seconds:.1f}"
    folder = os.environ.get("ALLRANKS_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / "calculator.png"))

    ways = field(page, "DP")
    ways.fill("0")
    ways.press("Enter")
    said = page.locator(".ar-calculator [role=alert]")
    said.wait_for()
    assert "DP is 0; it is a whole number above 0." in said.inner_text()
    assert figure(page, "data", "calls") == str(price.calls), "the last price is gone"
    assert bucket.input_value() == "100", "a field was lost"

    ways.fill("64")
    ways.press("Enter")
    said.wait_for(state="detached")
    price = workload.ddp(7e9, Cluster(64, 200e9, 5e-6), bucket_nbytes=100 * 2**20)
    becomes(page, "data", "ms", f"{1e3 * price.seconds:.1f}")

    field(page, "model").select_option("GPT-3 175B")
    price = workload.ddp(175e9, Cluster(64, 200e9, 5e-6), bucket_nbytes=100 * 2**20)
    becomes(page, "data", "calls", f"{price.calls:,}")
    assert field(page, "layers").input_value() == "96"
    lab.close_sessions()
