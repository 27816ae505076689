"""The prices of NCCL's collectives against published measurements: the page is what its command writes, and the aims hold."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from statistics import median

import pytest
from allranks.theory.cost.nccl_bands import BANDS
from allranks.theory.cost.step_bands import STEP_BAND

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def validation():
    spec = importlib.util.spec_from_file_location("validation", ROOT / "tools" / "validation.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["validation"] = module  # dataclasses look there
    sys.path.insert(0, str(ROOT / "tools"))
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "tools"))
    for name in ("validation", "validation_steps"):
        del sys.modules[name]


def test_page_figure_and_bands_are_what_the_command_writes(validation):
    found, left_out = validation.points()
    trained = validation.steps.rows()
    assert validation.page(found, left_out, validation.steps.section(*trained)) == validation.PAGE.read_text(
        encoding="utf-8"
    )
    assert validation.figure(found) == validation.FIGURE.read_text(encoding="utf-8")
    assert validation.bands(found) == validation.BANDS.read_text(encoding="utf-8")
    assert validation.steps.figure(trained[0]) == validation.steps.FIGURE.read_text(encoding="utf-8")
    assert validation.steps.band(trained[0]) == validation.steps.BAND.read_text(encoding="utf-8")


def test_most_points_lie_near_in_each_kind(validation):
    found, _ = validation.points()
    overhead = validation.fitted(found)
    none = validation.ratios(found, lambda p: p.price.seconds)
    one = validation.ratios(found, lambda p: max(p.price.seconds + overhead.get(p.site, 0.0), 1e-9))
    assert set(none) == set(one) == set(BANDS)
    for kind in none:
        assert validation.near(none[kind]) >= 0.5, kind
        assert validation.near(one[kind]) >= 0.6, kind
    for ratios in (none, one):
        assert validation.typical_factor(v for values in ratios.values() for v in values) <= 1.20


@pytest.mark.parametrize("kind", BANDS)
def test_half_of_the_measurements_lie_in_the_band(validation, kind):
    found = [p for p in validation.points()[0] if p.kind == kind]
    inside = sum(p.price.low_s <= p.measured_s <= p.price.high_s for p in found) / len(found)
    assert inside == pytest.approx(0.5, abs=0.03) and BANDS[kind][2] == len(found)


def test_the_numbers_of_one_site_are_not_what_makes_the_others_right(validation):
    """The tuner alone is right where bytes dominate, on sites that no number was fitted to."""
    found = [p for p in validation.points()[0] if p.price.option and p.nbytes >= 2**28 and p.nodes == 1]
    assert median(1e-6 * p.price.option.us / p.measured_s for p in found) == pytest.approx(0.98, abs=0.02)


def test_published_steps_of_training_lie_near_with_nothing_fitted(validation):
    found, left_out = validation.steps.rows()
    assert len(found) >= 20 and all(count > 0 for count in left_out.values())
    known = [row for row in found if "500 W" not in row.family.name]
    assert sum(0.8 <= row.ratio <= 1.25 for row in known) / len(known) >= 0.9
    assert sum(0.8 <= row.ratio <= 1.25 for row in found) / len(found) >= 0.7
    assert validation.typical_factor(row.ratio for row in found) <= 1.20
    low, high, points = STEP_BAND
    assert points == len(found)
    assert sum(low <= 1 / row.ratio <= high for row in found) / len(found) == pytest.approx(0.5, abs=0.08)
