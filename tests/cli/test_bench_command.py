"""`allranks bench` as a reader types it, on real ranks."""

import json

import pytest
from allranks import cost
from allranks.cli import main
from allranks.cli.bench import report
from allranks.machine.bench import Call, Row, Sweep
from allranks.machine.bench import sizes as sizes_from
from click.testing import CliRunner


def bench(*arguments):
    return CliRunner().invoke(main, ["bench", *arguments])


@pytest.mark.live
def test_a_sweep_on_two_world_sizes(tmp_path):
    ran = bench(
        "--ranks",
        "2",
        "--backend",
        "gloo",
        "-f",
        "4",
        "-e",
        "32KiB",
        "-n",
        "2",
        "-w",
        "1",
        "--also-ranks",
        "3",
        "--json",
        "--csv",
        str(tmp_path / "t.csv"),
    )
    assert ran.exit_code == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert ran.stdout.count("\n") == 1
    assert [row["size"] for row in found["rows"]] == [8 << k for k in range(0, 14, 2)]
    for row in found["rows"]:
        assert row["algbw_gb_per_s"] == pytest.approx(row["size"] / row["time_us"] / 1e3)
        assert row["busbw_gb_per_s"] == pytest.approx(row["algbw_gb_per_s"])  # 2(p-1)/p is 1 for two ranks
        assert row["wrong"] == 0 and row["iterations"] == 2
    fitted = found["fit"]
    assert fitted["alpha_s"]["low"] <= fitted["alpha_s"]["value"] <= fitted["alpha_s"]["high"]
    assert len(found["prediction"]["points"]) == 3 and found["prediction"]["median_error"] >= 0
    assert found["also"]["ranks"] == 3 and found["prediction_for_also"]["ranks"] == 3
    assert (tmp_path / "t.csv").read_text().splitlines()[0] == "size,count,type,redop,root,time,algbw,busbw,#wrong"


@pytest.mark.live
def test_too_few_sizes_for_a_fit_still_give_both_tables():
    ran = bench(
        "--ranks",
        "2",
        "--also-ranks",
        "1",
        "--backend",
        "gloo",
        "-b",
        "8",
        "-e",
        "16",
        "-n",
        "2",
        "-w",
        "1",
        "--passes",
        "1",
    )
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.count("# all_reduce (gloo's own)") == 2


def test_the_table_in_words():
    sizes = sizes_from(8, 1 << 20)
    rows = [
        Row(
            n,
            n // 4,
            "float32",
            "sum",
            -1,
            *((t := 6 * 5e-6 + 1.5e-9 * n) * 1e6, n / t / 1e9, 1.5 * n / t / 1e9),
            0,
            t * 1e6,
            t * 1e6,
            20,
        )
        for n in sizes
    ]
    lines = report(Sweep(Call(), 4, "gloo", tuple(rows), {"device": "cpu"})).splitlines()
    assert lines[0] == "# all_reduce (gloo's own), 4 ranks, gloo, device cpu"
    assert lines[1].split() == ["#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]
    assert lines[3].split() == ["8", "2", "float32", "sum", "-1", "30.01", "0.000", "0.000", "0"]
    text = "\n".join(lines)
    assert "as ring: alpha 5.00 us (5.00 to 5.00), beta 1.0000 ns" in text
    assert "latency turns into bandwidth at 19.5 KiB" in text
    assert "median error of 0.0%" in text


def test_what_was_measured_in_place_has_columns_of_its_own_and_fit_reads_the_table():
    rows = tuple(
        Row(8 << i, 1 << i, "float32", "none", -1, 10.0 + i, 1, 0.5, 0, 9, 9, 20, (8.0 + i, i)) for i in range(2)
    )
    found = Sweep(Call("all_gather"), 2, "gloo", rows)
    lines = report(found).splitlines()
    assert lines[1].split() == ["#", "out-of-place", "in-place"]
    assert lines[2].split()[-8:] == ["time", "algbw", "busbw", "#wrong"] * 2
    assert lines[5].split()[5:] == ["11.00", "1.000", "0.500", "0", "9.00", "0.002", "0.001", "1"]
    (read,) = cost.read_measured(report(found))
    assert (read.collective, read.ranks) == ("all_gather", 2)
    assert read.points == [(8, pytest.approx(10e-6))] and read.wrong == [16]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--collective", "sum"), "There is no collective 'sum' to measure;"),
        (("--max-bytes", "4"), "The sizes go from 8 to 4 bytes;"),
        (("--min-bytes", "-8"), "The bytes are -8; they can't be negative."),
        (("--dtype", "complex64"), "There is no dtype 'complex64' to measure;"),
        (("--ranks", "0"), "ranks=0: a world needs at least one rank;"),
        (("--also-ranks", "0"), "The other world would have 0 ranks;"),
        (("--algorithm", "nope"), "There is no algorithm 'nope' for all_reduce;"),
    ],
)
def test_a_mistake_gets_one_sentence_and_status_2(arguments, words):
    ran = bench(*arguments)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert words in ran.stderr and ran.stderr.count("\n") == 1, ran.stderr
