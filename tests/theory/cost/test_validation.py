"""The prices of NCCL's collectives against published measurements: the page is what its command writes, and the aims hold."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import pytest
from allranks.theory.cost import calibrated
from allranks.theory.cost.step_bands import STEP_BAND
from loading import loaded

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def validation():
    sys.path.insert(0, str(ROOT / "tools"))
    yield loaded(ROOT / "tools" / "validation.py")
    sys.path.remove(str(ROOT / "tools"))
    for name in ("validation_steps", "validation_serving", "validation_figures"):
        del sys.modules[name]


@pytest.fixture(scope="module")
def learned(validation):
    return validation.Learned.of(validation.points()[0])


def test_page_figures_and_what_is_learned_are_what_the_command_writes(validation, learned):
    trained, served = validation.steps.rows(), validation.serving.rows()
    kept, left_out = validation.points(validation.KEPT)[0], validation.points()[1]
    written = {
        validation.PAGE: validation.page(
            learned, kept, left_out, [*validation.steps.section(*trained), *validation.serving.section(served)]
        ),
        validation.FIGURE: validation.figure(learned),
        validation.LEARNED: validation.learned_file(learned),
        validation.BANDS: validation.bands(validation.links_alone(learned.found)),
        validation.steps.FIGURE: validation.steps.figure(trained[0]),
        validation.steps.BAND: validation.steps.band(trained[0]),
    }
    assert [path.name for path, text in written.items() if text != path.read_text(encoding="utf-8")] == []


def test_intervals_hold_what_they_promise_with_each_site_left_out(validation, learned):
    for kind, mine in validation.by_kind(learned.held).items():
        assert 0.7 <= validation.share_inside(validation.covered(mine)) <= 0.9, kind
    for size, most in (("up to 64 KiB", 1.25), ("between", 1.3), ("from 256 MiB", 1.1)):
        assert validation.typical_factor(h.ratio for h in learned.held if h.point.kind.endswith(size)) <= most, size


def test_intervals_hold_at_sites_that_nothing_was_learned_from(validation, learned):
    kept = validation.points(validation.KEPT)[0]
    assert not {p.site for p in kept} & {p.site for p in learned.found}
    scaled = [(h, learned.scales[h.point.kind]) for h in learned.of_kept(kept)]
    assert validation.share_inside(scaled) >= 0.7
    assert validation.typical_factor(h.ratio for h, _ in scaled) <= 1.25


def test_a_left_out_site_has_no_say(validation, learned):
    """Leaving a site out gives what a process of the others alone gives: the short way through the inverse is right."""
    site = "sophia"
    alone = calibrated.Process([a for a in learned.asked if a.site != site])
    mine = [p.asked for p in learned.found if p.site == site][:5]
    for short, long in zip(learned.process.without(site).foretell(mine), alone.foretell(mine), strict=True):
        assert short.log_median == pytest.approx(long.log_median, abs=1e-6)
        assert short.deviation == pytest.approx(long.deviation, abs=1e-6)


def test_own_points_join_as_if_they_had_been_there(learned):
    more = [calibrated.Point("", "dgx-h100", "", 1, "all_reduce", "", 1024.0, "ring LL", 0, y=0.4)]
    question = [calibrated.Point("", "dgx-h100", "", 1, "all_reduce", "", 65536.0, "ring LL", 0)]
    grown, whole = (
        learned.process.also(more).foretell(question)[0],
        calibrated.Process([*learned.asked, *more]).foretell(question)[0],
    )
    assert grown.log_median == pytest.approx(whole.log_median, abs=1e-6)
    assert grown.deviation == pytest.approx(whole.deviation, abs=1e-6)
    assert grown.deviation < learned.process.foretell(question)[0].deviation


def test_two_measurements_of_a_site_narrow_the_intervals_of_that_collective_and_still_hold(validation, learned):
    after, narrower = validation.by_kind(learned.same), []
    for kind, mine in after.items():
        scaled = validation.covered(mine)
        assert 0.7 <= validation.share_inside(scaled) <= 0.95, kind
        points = {id(h.point) for h in mine}
        before = [
            pair for pair in validation.covered(validation.by_kind(learned.held)[kind]) if id(pair[0].point) in points
        ]
        widths = [median(h.width(scale) for h, scale in pairs) for pairs in (before, scaled)]
        assert widths[1] <= widths[0] * 1.02, kind
        narrower.append(widths[1] < 0.95 * widths[0])
    assert sum(narrower) >= 3


def test_bands_on_steps_hold_eight_of_ten_with_a_family_left_out(validation):
    found, left_out = validation.steps.rows()
    assert len(found) >= 20 and all(count > 0 for count in left_out.values())
    held = validation.steps.inside(found)
    assert sum(held) / len(held) >= 0.8
    median, low, high, points, families = STEP_BAND
    assert low < median < high and (points, families) == (len(found), len({row.family for row in found}))
    assert sum(low <= 1 / row.ratio <= high for row in found) / len(found) >= 0.8
    assert validation.typical_factor(row.ratio for row in found) <= 1.20
