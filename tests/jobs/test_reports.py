"""The inputs of public reports: `fit` and `explain` say what is right of each, and nothing that is false."""

import json
from pathlib import Path

import pytest
from allranks.cli import main
from click.testing import CliRunner

REPORTS = Path(__file__).with_name("reports")


def said(command: str, *arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(main, [command, *arguments])
    return ran.exit_code, " ".join((ran.stdout + ran.stderr).split())


def path(name: str) -> str:
    (found,) = REPORTS.glob(name)
    return str(found)


FITS = [
    ("01_*/*.txt", [], 2, ["2 processes ran alone", "MPI=1"], []),
    ("03_*/*.txt", [], 0, ["72 ranks by busbw / algbw", "839.2"], ["sends nothing"]),
    ("03_*/*.txt", ["--nodes", "9"], 0, ["all_reduce 72 9"], []),
    ("05_*/*.txt", [], 0, ["line 14", "left out", "all_reduce 4 2"], []),
    ("06_*/*.txt", [], 0, ["2 settings, which are fitted apart", "NCCL_ALGO=Ring: 145.3", "NCCL_ALGO=Tree: 41.31"], ["median"]),
    ("07_*/*.txt", [], 2, ["say it with --collective"], []),
    ("07_*/*.txt", ["--collective", "broadcast"], 0, ["broadcast 2 2"], []),
    ("08_*/*.json", [], 0, ["all_reduce 2 1", "345.4"], []),
    ("10_*/*.txt", [], 0, ["reduce_scatter 8 2"], []),
    ("11_*/*.txt", [], 0, ["all_reduce 2 1", "alltoallv was left out"], []),
    ("13_*/*.txt", [], 0, ["all_reduce 2 1"], []),
    ("14_*/*.txt", [], 0, ["all_gather 16 2", "325.7"], []),
    ("70_*/comm_bench.txt", ["--collective", "all_reduce"], 0, ["all_reduce 8", "8 ranks by busbw / algbw"], []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "code", "right", "false"), FITS)
def test_fit_says_what_is_right(name, more, code, right, false):
    got, text = said("fit", path(name), *more)
    assert got == code, text
    assert [words for words in right if words not in text] == [], text
    assert [words for words in false if words in text] == [], text


EXPLAINED = [
    ("40_*", 0, "desync", ["Rank 3 made another call", "NCCL 2.26.2"], ["NCCL None"]),
    ("42_*", 0, "desync", ["Rank 0 made the call with another size", "12 float32", "1 float32"], []),
    ("43_*", 0, "missing_message", ["from rank 1", "in its batch 2", "has no send"], []),
    ("44_*", 2, None, ["no list of entries"], []),
    ("47_*/with_c10d", 0, "no_times", ["how long the calls take"], ["Nothing stands out", "No operator of torch"]),
    ("48_*", 0, None, ["iteration_20"], []),
    ("50_*", 0, "no_hang", ["Every recorded call ended"], ["waits", "did not finish", "never made"]),
    ("51_*", 0, "desync", ["Rank 1 made another call", "barrier"], []),
    ("52_*", 0, "missing_rank", ["Rank 0 never made call 2", "85 % sure"], ["itself waits"]),
    ("54_*", 0, "unread_device", ["mtia_ccp_events"], ["neither compute nor communicate most"]),
    ("70_*/watchdog.log", 0, "desync", ["Rank 2 made another call than ranks 0 and 1", "1042"], []),
    ("70_*/nccl_info.log", 0, "wrong_interface", ["Socket over eth0", "no InfiniBand device was found"], []),
    ("70_*/report1.sqlite", 2, None, ["SQLite"], ["its format is not known"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code", "kind", "right", "false"), EXPLAINED)
def test_explain_says_what_is_right(name, code, kind, right, false):
    got, text = said("explain", path(name))
    assert got == code, text
    assert [words for words in right if words not in text] == [], text
    assert [words for words in false if words in text] == [], text
    if kind is not None:
        assert (
            json.loads(CliRunner().invoke(main, ["explain", path(name), "--json"]).stdout)["causes"][0]["kind"] == kind
        )


def test_operators_of_a_file_without_kernels_are_those_of_the_main_thread():
    _, text = said("explain", path("47_*"), "--json")
    found = json.loads(text)
    assert [round(r["compute_us"] / r["span_us"], 2) for r in found["ranks"]] == [0.59, 0.59]
    assert {c["op"] for c in found["collectives"]} == {"all_reduce"}


@pytest.mark.parametrize(
    "label",
    ["{i}: ", " {i}: ", "   ", "(head, rank={i}, pid=38) ", "[1,{i}]<stdout>:", "2026-01-02T03:04:05Z pod-{i} ", "> "],
)
@pytest.mark.parametrize("lost", [False, True])
def test_labels_indents_and_a_lost_sign_do_no_harm(tmp_path, label, lost):
    text = Path(path("14_*/*.txt")).read_text().replace("(head, rank=0, pid=3808) ", "").replace("[1,0]<stdout>:", "")
    text = text.replace("#", "") if lost else text
    file = tmp_path / "all_gather.txt"
    file.write_text("".join(f"{label.format(i=0)}{line}\n" for line in text.splitlines()))
    code, words = said("fit", str(file))
    assert code == 0 and "all_gather 16 2" in words and "325.7" in words, words


def test_rows_without_a_head_are_read_by_size_over_time(tmp_path):
    rows = [line for line in Path(path("03_*/*.txt")).read_text().splitlines() if line.lstrip()[:1].isdigit()]
    (tmp_path / "all_reduce.txt").write_text("\n".join(rows) + "\n")
    code, words = said("fit", str(tmp_path / "all_reduce.txt"))
    assert code == 0 and "all_reduce 72" in words and "839.2" in words, words


def test_two_of_sixteen_device_lines_are_sixteen_ranks(tmp_path):
    lines = Path(path("14_*/*.txt")).read_text().splitlines()
    kept = [line for line in lines if "Rank " not in line or "Rank  0 " in line or "Rank  1 " in line]
    (tmp_path / "all_gather.txt").write_text("\n".join(kept) + "\n")
    code, words = said("fit", str(tmp_path / "all_gather.txt"))
    assert code == 0 and "16 ranks by busbw / algbw; 2 of their device lines are in the file" in words, words


def test_times_of_the_cpu_are_refused(tmp_path):
    text = Path(path("03_*/*.txt")).read_text().replace("  time ", "cputime ")
    (tmp_path / "all_reduce.txt").write_text(text)
    code, words = said("fit", str(tmp_path / "all_reduce.txt"))
    assert code == 2 and "-C 1" in words and "how long the host took" in words


def test_json_that_is_torn_gives_its_whole_results(tmp_path):
    text = Path(path("08_*/*.json")).read_text()
    whole = json.loads(text)
    whole["results"] += [
        dict(
            whole["results"][1],
            size=2 * whole["results"][1]["size"],
            out_of_place=dict(whole["results"][1]["out_of_place"], time=6217.6),
        )
    ]
    (tmp_path / "a.json").write_text(json.dumps(whole)[:-200])
    code, words = said("fit", str(tmp_path / "a.json"))
    assert code == 0 and "ends in the middle; 2 results are whole" in words, words


def test_the_runs_of_one_setting_count_with_their_median_and_others_do_not(tmp_path):
    text = Path(path("06_*/*.txt")).read_text()
    (tmp_path / "all_reduce.txt").write_text(text.replace("NCCL_ALGO=Tree", "A=1").replace("NCCL_ALGO=Ring", "A=2"))
    _, words = said("fit", str(tmp_path / "all_reduce.txt"))
    assert "2 settings" in words and "run 1: " in words and "145.3" in words, words
