"""The page that sets a run's busbw over what others published."""

import re
from xml.etree import ElementTree

import pytest
from allranks.cli import main
from allranks.show.pictures.busbw import busbw_page
from allranks.theory.cost import Measured
from allranks.theory.cost.normal import normal
from click.testing import CliRunner

H100 = "NVIDIA H100 80GB HBM3"


def run(gb_per_s=480.0, ranks=8, nodes=1, gpu=H100, start_us=25.0, sizes=range(15, 34)):
    factor = 2 * (ranks - 1) / ranks
    points = [(2**k, start_us * 1e-6 + 2**k * factor / (gb_per_s * 1e9)) for k in sizes]
    return Measured("all_reduce", ranks, nodes, points, gpu=gpu)


def svgs(page):
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg .*?</svg>", page)]


@pytest.mark.parametrize(
    ("sweep", "verdict"),
    [
        (run(), "Is my busbw normal? Yes<"),
        (run(365.0), "above it you get three quarters"),
        (run(120.0), "above it you get a quarter"),
        (run(gpu="NVIDIA A10G"), "Nobody's measurement or model"),
        (run(sizes=range(10, 20)), "too early to tell"),
    ],
)
def test_the_title_is_the_verdict(sweep, verdict):
    assert verdict in busbw_page([normal(sweep)], "mine.txt")


def test_the_drawing_has_the_curves_the_roofs_and_the_place_where_it_leaves_them():
    one = normal(run(365.0))
    page = busbw_page([one], "mine.txt")
    drawing = svgs(page)[0]
    texts = [text.text for text in drawing.iter("text")]
    assert "you" in texts and any("roof" in text and "NVLS" in text for text in texts)
    assert len(list(drawing.iter("circle"))) == 1 and len(list(drawing.iter("pattern"))) == 1
    assert sum(p.get("stroke") == "var(--soft)" for p in drawing.iter("path")) == len(one.sites) == 2
    own = next(p.get("d") for p in drawing.iter("path") if p.get("stroke") == "var(--you)")
    places = [tuple(map(float, place.split())) for place in own[1:].split(" L")]
    assert len(places) == len(one.rows)
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)  # more bandwidth is higher up


def test_a_normal_run_has_nothing_hatched():
    drawing = svgs(busbw_page([normal(run())], "mine.txt"))[0]
    assert not list(drawing.iter("circle")) and not list(drawing.iter("pattern"))


def test_the_page_asks_nobody_and_cannot_be_broken_by_a_name():
    page = busbw_page([normal(run(365.0)), normal(run(90.0, 16, 2))], '<script>alert("x")</script>')
    assert "<script" not in page and "default-src 'none'" in page and page.count("<section>") == 2
    assert not re.search(r"(?:href|src)=|url\(http", page)


def test_the_command_writes_the_page(tmp_path):
    head = (
        "# Collective test starting: all_reduce_perf\n#  Rank  0 Group  0 Pid 9 on secret-host device  0 [0x01] " + H100
    )
    rows = "\n".join(
        f"{n} {n // 4} float sum -1 {1e6 * t:.1f} {n / t / 1e9:.2f} {1.75 * n / t / 1e9:.2f} 0"
        for n, t in run(365.0).points
    )
    columns = "#  size count type redop root time algbw busbw #wrong"
    (tmp_path / "mine.txt").write_text(f"{head}\n{columns}\n{rows}\n")
    arguments = ["fit", str(tmp_path / "mine.txt"), "--html", str(tmp_path / "page.html")]
    ran = CliRunner().invoke(main, arguments)
    page = (tmp_path / "page.html").read_text()
    assert ran.exit_code == 0, ran.output
    assert "8 ranks" in page and "mine.txt" in page and "secret-host" not in page and str(tmp_path) not in page
    ran = CliRunner().invoke(main, [*arguments[:-1], str(tmp_path / "none" / "page.html")])
    assert ran.exit_code == 2 and "can't be written" in ran.output
