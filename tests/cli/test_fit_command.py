"""`allranks fit` as an administrator types it, and the other commands with the file that it wrote."""

import json

import pytest
from allranks.cli import main
from allranks.theory.cost.normal import published
from click.testing import CliRunner

HEAD = """# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid 1 on a device 0 [0x07] NVIDIA H100
#  Rank  1 Group  0 Pid 2 on a device 1 [0x08] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
"""


def output(rows=range(10, 28)):
    return HEAD + "".join(
        f"  {2**k}  {2**k // 4}  float  sum  -1  {12 + 2**k / 100e3:.2f}  0  0  0  {12 + 2**k / 100e3:.2f}  0  0  0\n"
        for k in rows
    )


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def fitted(tmp_path):
    (tmp_path / "all_reduce.txt").write_text(output())
    ran = run("fit", tmp_path / "all_reduce.txt", "--out", tmp_path / "mine.json")
    assert ran.exit_code == 0, ran.output
    return tmp_path / "mine.json", ran


def test_the_report_names_what_was_fitted(fitted):
    file, ran = fitted
    assert "mine: nodes of 2 ranks" in ran.stdout and "held-out error" in ran.stdout
    assert json.loads(file.read_text())["measured"][0]["collective"] == "all_reduce"


def test_simulate_says_what_was_measured(fitted):
    file, _ = fitted
    found = json.loads(run("simulate", "--topology", file, "--bytes", 2**20, "--json").stdout)
    assert found["algorithm"] == "measured" and found["extrapolated"] == []
    assert found["seconds"] == pytest.approx(22.49e-6, rel=0.01)
    assert found["low_seconds"] < found["seconds"] < found["high_seconds"]
    beyond = run("simulate", "--topology", file, "--bytes", "1TB")
    assert "extrapolated: 1000000000000 bytes, where 1024 to 134217728 were measured" in beyond.stdout


def test_an_algorithm_by_name_is_simulated_on_the_fitted_links(fitted):
    file, _ = fitted
    found = json.loads(run("simulate", "--topology", file, "--algorithm", "ring", "--ranks", 2, "--json").stdout)
    assert found["algorithm"] == "ring" and found["topology"] == "mine"
    other = json.loads(run("simulate", "--topology", file, "--collective", "broadcast", "--ranks", 2, "--json").stdout)
    assert other["algorithm"] == "binomial"


def test_price_takes_the_file(fitted):
    file, _ = fitted
    found = json.loads(run("price", "ddp", "--topology", file, "--ranks", 2, "--json").stdout)
    assert found["bytes_per_s"] == pytest.approx(99e9, rel=0.02)
    assert run("price", "ddp", "--topology", file, "--bandwidth", 1e9).exit_code == 2


def test_the_file_is_written_whole_or_not_at_all(fitted, tmp_path):
    file, _ = fitted
    before = file.read_text()
    assert run("fit", tmp_path / "nothing.txt", "-o", file).exit_code == 2
    (tmp_path / "bad.txt").write_text("hello\n")
    assert run("fit", tmp_path / "bad.txt", "-o", file).exit_code == 2
    assert file.read_text() == before and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.txt",), "can't be read"),
        (("all_reduce.txt", "-o", "mine.yaml"), "must end with .json"),
        (("all_reduce.txt", "-o", "no/such/mine.json"), "can't be written"),
        (("binary.txt",), "no text"),
        ((".",), "can't be read"),
    ],
)
def test_one_sentence_for_a_mistake(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all_reduce.txt").write_text(output())
    (tmp_path / "binary.txt").write_bytes(b"\0\1")
    ran = run("fit", *arguments)
    assert ran.exit_code == 2 and words in ran.stderr and len(ran.stderr.strip().splitlines()) == 1


def test_measured_needs_a_file():
    assert "needs --topology FILE" in run("simulate", "--algorithm", "measured").stderr


def test_a_run_that_died_is_noted_and_its_small_sizes_are_no_verdict(tmp_path):
    file = tmp_path / "all_reduce.txt"
    file.write_text(
        output(range(10, 21))
        + "n2: Test NCCL failure common.cu:401 'remote process exited / '\n .. n2 pid 9: Test failure\n"
    )
    ran = run("fit", file)
    assert ran.exit_code == 0 and "no verdict, as the sizes end below 64 MiB" in ran.stdout
    assert ran.stderr.count("the run failed (Test NCCL failure common.cu:401") == 1
    file.write_text(output())
    ran = run("fit", file)
    assert "the run failed" not in ran.stderr and "no verdict" not in ran.stdout


def test_both_parts_of_the_report_have_the_same_nodes(tmp_path):
    file = tmp_path / "mine.txt"
    rows = "".join(f"  {2**k} {2**k // 4} float sum -1 {20 + 2**k / 200e3:.2f} 0 0 0\n" for k in range(10, 30))
    file.write_text("#       size         count      type   redop    root     time   algbw   busbw #wrong\n" + rows)
    ran = run("fit", file, "--collective", "all_reduce", "--ranks", 16, "--nodes", 2, "--json")
    found = json.loads(ran.stdout)
    assert (
        [sweep["nodes"] for sweep in found["topology"]["measured"]] == [one["nodes"] for one in found["normal"]] == [2]
    )


def test_of_two_sites_one_that_is_faster_is_one(tmp_path):
    first, second = (dict(curve) for curve in published("all_reduce", 8, 1, "H100").values())
    sizes = sorted(first.keys() & second.keys())[-3:]
    between = {n: (first[n] + second[n]) / 2 for n in sizes}
    devices = "".join(f"#  Rank  {i} Group  0 Pid {i} on a device {i} [0x07] NVIDIA H100\n" for i in range(8))
    rows = "".join(f"  {n} {n // 4} float sum -1 {1.75 * n / between[n] / 1e3:.2f} 0 0 0 0 0 0 0\n" for n in sizes)
    start, *_, head = HEAD.splitlines(keepends=True)
    (tmp_path / "all_reduce.txt").write_text(start + devices + head + rows)
    ran = run("fit", tmp_path / "all_reduce.txt")
    assert "; 1 of them is faster at the largest size" in ran.stdout, ran.output


COLUMNS = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"


def rows(*sizes, busbw=50.0, ranks=8):
    """Rows of an all_reduce with this busbw, or one for each size."""
    each = busbw if isinstance(busbw, tuple) else (busbw,) * len(sizes)
    text = ""
    for nbytes, high in zip(sizes, each, strict=True):
        low = high * ranks / (2 * (ranks - 1))
        half = f"{nbytes / low / 1e3:.2f} {low:.2f} {high:.2f} 0 "
        text += f"  {nbytes} {nbytes // 4} float sum -1 {half} {half}\n"
    return text


def test_a_table_put_together_of_several_runs_is_several_runs(tmp_path):
    text = COLUMNS + "".join(
        f"  {n} " + rows(1 << 30, busbw=busbw, ranks=8 * n) for n, busbw in ((1, 230.77), (2, 57.17), (4, 29.61))
    )
    (tmp_path / "all_reduce.txt").write_text(text)
    said = run("fit", tmp_path / "all_reduce.txt").stdout
    for ranks, busbw in ((8, "230.8"), (16, "57.17"), (32, "29.61")):
        assert f"all_reduce, {ranks} ranks, taken as on 1 node" in said and busbw in said
    (tmp_path / "all_reduce.txt").write_text(COLUMNS + 2 * rows(1 << 20, 1 << 30))  # a run and its repetition
    assert run("fit", tmp_path / "all_reduce.txt").stdout.count("Is it normal?") == 1


@pytest.mark.parametrize("table", ["", COLUMNS])
def test_ranks_that_are_listed_on_two_hosts_ran_alone(tmp_path, table):
    line = "#  Rank  {} Group  0 Pid   325{} on   {} device  {} [0x03] NVIDIA A100-PCIE-40GB\n"
    text = "# nThread 1 nGpus 2 minBytes 8 maxBytes 268435456\n#\n# Using devices\n"
    text += "".join(line.format(rank, rank, host, rank) for host in "ab" for rank in (0, 1)) + table
    (tmp_path / "all_reduce.txt").write_text(text)
    ran = run("fit", tmp_path / "all_reduce.txt")
    assert ran.exit_code == 2 and "no size was measured, and rank 0 is listed 2 times" in ran.stderr
    assert "MPI=1" in ran.stderr
    (tmp_path / "all_reduce.txt").write_text(
        text.replace(" on   b ", " on   a ") + COLUMNS + rows(1 << 20, 1 << 30, ranks=2)
    )
    assert run("fit", tmp_path / "all_reduce.txt").exit_code == 0  # one that was begun anew


@pytest.mark.parametrize(
    "launcher",
    [
        "mpirun -n 32 -npernode 8",
        "mpirun -np 32 -N 8",
        "srun -N 4 --ntasks-per-node=8 --ntasks 32",
        "mpirun -np 32 -H a:8,b:8,c:8,d:8",
    ],
)
def test_the_launchers_line_says_on_how_many_nodes(tmp_path, launcher):
    text = (
        f"{launcher} ./build/all_reduce_perf -b 1M -e 1G -g 1\n" + COLUMNS + rows(1 << 20, 1 << 28, 1 << 30, ranks=32)
    )
    (tmp_path / "mine.txt").write_text(text)
    ran = run("fit", tmp_path / "mine.txt")
    assert "all_reduce, 32 ranks on 4 nodes" in ran.stdout and "4 nodes by the command line" in ran.stderr


@pytest.mark.parametrize(
    ("sizes", "busbw", "half"),
    [
        ((1 << 10, 1 << 33), (0.1, 300.0), "1 KiB..8 GiB"),
        ((1 << 28, 1 << 30), (290.0, 300.0), "<= 256 MiB"),
        ((1 << 28, 1 << 29, 1 << 30), (100.0, 290.0, 300.0), "512 MiB"),
        ((1 << 20, 1 << 23, 1 << 24, 1 << 25, 1 << 26), (1.0, 16.0, 24.0, 29.5, 5.3), "no size"),
    ],
)
def test_the_half_is_not_said_to_be_where_nothing_was_measured(tmp_path, sizes, busbw, half):
    (tmp_path / "mine.txt").write_text(COLUMNS + rows(*sizes, busbw=busbw))
    line = next(
        line for line in run("fit", tmp_path / "mine.txt").stdout.splitlines() if line.startswith("all_reduce ")
    )
    assert f" {half} " in line


def test_a_text_of_sendrecv_is_parsed_once(tmp_path, monkeypatch):
    from allranks.theory.cost import nccl_tests

    parsed = []
    once = nccl_tests._Reader.read
    monkeypatch.setattr(nccl_tests._Reader, "read", lambda self, text: (parsed.append(text), once(self, text))[1])
    (tmp_path / "mine.txt").write_text("mpirun -np 8 ./sendrecv_perf -b 1M -e 1G\n" + COLUMNS + rows(1 << 20, 1 << 30))
    ran = run("fit", tmp_path / "mine.txt")
    assert ran.exit_code == 0 and "sendrecv, each of 8 ranks to the next one" in ran.stdout and len(parsed) == 1
