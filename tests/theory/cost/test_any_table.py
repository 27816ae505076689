"""Tables of tools that nobody named here: what their columns, units and figures say, and what is refused."""

import json
import random
import time

import pytest
from allranks.cli import main
from allranks.theory.cost import CostError, bus_factor, read_measured
from allranks.theory.cost.any_table import column_of, tables, unit_of
from click.testing import CliRunner

SIZES = (1 << 20, 1 << 24, 1 << 28)
SECONDS = (41e-6, 152e-6, 1.31e-3)
ALGBW = [n / s / 1e9 for n, s in zip(SIZES, SECONDS, strict=True)]
ROWS = list(zip(SIZES, SECONDS, ALGBW, strict=True))


def lines(head: str, row, above: str = "") -> str:
    return "\n".join([above, head, *(row(*one) for one in ROWS), ""])


FORMS = {
    "Markdown, units in cells": lines(
        "| payload | busbw | algbw |\n| --: | --: | --: |",
        lambda n, s, a: f"| {n >> 20}MiB | {1.5 * a:.2f}GBps | **{a:.2f}GBps** |", "all_reduce over 4 ranks"),
    "bits, thousands, MB that are MiB": lines(
        "Size (Bytes)  Description  Duration  Throughput (Gbps)  BusBW (Gbps)",
        lambda n, s, a: f"{n >> 20}.0 MB  {n}x1  {1e6 * s:,.2f} us  {8 * a:.3f}  {12 * a:.3f}",
        "---- Performance of all_reduce on 4 devices ----"),
    "units below, a host's label": lines(
        "h1: # size  time  algbw  busbw  #wrong\nh1: # (B)  (us)  (GB/s)  (GB/s)",
        lambda n, s, a: f"h1: {n} {1e6 * s:.1f} {a:.2f} {1.5 * a:.2f} 0", "$ ./all_reduce_perf -b 1M"),
    "CSV": lines("op,nranks,size_bytes,time_ms", lambda n, s, a: f"all_reduce,4,{n},{1e3 * s:.4f}"),
    "a box": lines(
        "+----+----+\n| Message (MiB) | Avg latency [us] | Min latency [us] |\n+----+----+",
        lambda n, s, a: f"| {n >> 20} | {1e6 * s:.2f} | 1.00 |", "AllReduce, world_size=4"),
    "elements and percentiles": lines(
        "   elements   min (us)   p50 (us)   p99 (us)   samples",
        lambda n, s, a: f"   {n // 4}   {9e5 * s:.2f}   {1e6 * s:.2f}   {2e6 * s:.2f}   77",
        "Algorithm: allreduce_ring\nOptions: processes=4"),
    "records": json.dumps(
        {"op": "all_reduce", "ranks": 4, "runs": [{"bytes": n, "latency_us": 1e6 * s, "in_place": {"latency_us": 1.0}}
                                                  for n, s, _ in ROWS]}),
    "rows of Python's own print": "AllReduce on 4x MI300X\n" + repr(
        [{"N": n // 2, "ours_time": 1e3 * s, "ours_bwidth": a} for n, s, a in ROWS]),
    "a result with its statistics": json.dumps(
        {"config": {"operation": "allreduce", "numGpus": 4}, "results": [
            {"bytes": n, "timeUs": {"avg": 1e6 * s, "max": 9e6 * s}, "busBandwidth": 1.5 * a} for n, s, a in ROWS]}, indent=1),
    "decimal commas": lines(
        "Operation;Ranks;Size [Bytes];Time [us];Bus BW [GB/s]",
        lambda n, s, a: f"AllReduce;4;{n};{1e6 * s:.2f};{1.5 * a:.3f}".replace(".", ",")),
    "thousands apart, ranks below": lines(
        "| Message Size (MB) | Tuned (µs) |\n|--:|--:|", lambda n, s, a: f"| {n >> 20} | {1e6 * s:,.2f} |".replace(",", " "),
        "all-reduce") + "Scale: 4 ranks / 1 node\n",
    "a program's name over times with units": lines("size\tNCCL", lambda n, s, a: f"{n >> 10}KB\t{1e3 * s:.4f}ms", "allreduce -np 4"),
    "a unit in a sentence": lines(
        "| Tensor Size | pynccl | Result |\n|---|---|---|", lambda n, s, a: f"| {n >> 20} MiB | {1e3 * s:.4f} | best |",
        "All times are in milliseconds (ms) per allreduce operation. World Size = 4"),
    "elements, their width, and statistics behind the unit": lines(
        "op_type | input_num_elements | dtype_bytes | out_shape | step_time_ms_p50 | step_time_ms_num_runs | achieved_bw (GB/s)_p50\n-- | --",
        lambda n, s, a: f"psum | {n // 4} | 4 | f32[8] | {1e3 * s:.4f} | 5 | {1.5 * a:.3f}", "4 devices"),
    "a head that lacks a column": lines(
        "numCycle,collective,ranks,gpusperrank,size,type,redop,inplace,time,algbw,busbw,#wrong",
        lambda n, s, a: f'0,"AllReduce",1,4,1,{n},"float","sum",0,{1e6 * s:.2f},{a:.2f},{1.5 * a:.2f},"0"'),
    "records that lack a name here and there": "\n".join(
        json.dumps({"op": "allreduce", "n_gpus": 4, "nbytes": n, "duration_s": s} | ({"iterations": 20} if k else {}))
        for k, (n, s, _) in enumerate(ROWS)),
    "named figures": lines(
        "", lambda n, s, a: f"[rank0] all_reduce size={n >> 20}MB time={1e3 * s:.4f}ms algbw={a:.3f}GB/s busbw={1.5 * a:.3f}GB/s"),
    "headings in Chinese": lines(
        "| 消息大小 | 耗时(ms) | 带宽(GB/s) |\n|---|---|---|", lambda n, s, a: f"| {n >> 20}MiB | {1e3 * s:.4f} | {a:.2f} |",
        "AllReduce 4 GPUs"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_one_sweep_is_read_alike_in_every_form(form):
    (sweep,) = read_measured(FORMS[form])
    assert (sweep.collective, sweep.ranks) == ("all_reduce", 4)
    assert [n for n, _ in sweep.points] == list(SIZES)
    assert [s for _, s in sweep.points] == pytest.approx(SECONDS, rel=0.01)


SIZE_UNITS = {"": 1, "KB": 1 << 10, "KiB": 1 << 10, "MB": 1 << 20, "MiB": 1 << 20, "MB ": 10**6}
TIME_UNITS = {"us": 1e6, "ms": 1e3, "s": 1.0}
RATE_UNITS = {"GB/s": 1e9, "Gb/s": 1.25e8, "Gbps": 1.25e8, "MB/s": 1e6, "GiB/s": 2**30}


def drawn(seed):
    """A sweep, and a table of it in a form that is drawn: names, units, where they stand, what separates cells, what else is there."""
    draw = random.Random(seed)
    ranks, op = draw.choice([2, 4, 8, 16]), draw.choice(["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
    unit, of_time, of_rate = (draw.choice(list(units)) for units in (SIZE_UNITS, TIME_UNITS, RATE_UNITS))
    factor, bandwidth = float(bus_factor(op, ranks)), draw.uniform(1e9, 3e11)
    exponents = sorted(draw.sample(range(10, 30) if not unit else range(12), 5))
    points = [(n, 3e-5 + n * factor / bandwidth) for n in (SIZE_UNITS[unit] << e for e in exponents)]
    in_cells, behind = draw.random() < 0.5, draw.choice([" ({})", "[{}]", ", {}"] if draw.random() < 0.3 else [" ({})"])

    def column(name, word, figures):
        return ([name if in_cells else name + behind.format(word), *(f"{x} {word}" if in_cells else x for x in figures)]
                if word else [name, *figures])  # fmt: skip

    rates = [("AlgBW", 1.0), (draw.choice(["busbw", "Bus BW", "Bus Bandwidth"]), factor)][draw.randint(0, 1) :]
    table = [column("Size", unit.strip(), [str(n // SIZE_UNITS[unit]) for n, _ in points]),
             column(draw.choice(["Time", "Avg Latency", "Duration"]), of_time, [f"{s * TIME_UNITS[of_time]:.8g}" for _, s in points]),
             *(column(name, of_rate, [f"{n / s * times / RATE_UNITS[of_rate]:.6g}" for n, s in points]) for name, times in rates)]  # fmt: skip
    extra = [["Batch", *"12345"], ["dtype", *["bf16"] * 5], ["Max Time (us)", *(f"{3e6 * s:.3f}" for _, s in points)]]
    table += draw.sample(extra, draw.randint(0, 2))
    draw.shuffle(table)
    separator, comma = draw.choice([(" | ", ""), ("\t", ""), (";", ""), (";", ","), ("  ", "")])
    rows = [separator.join(row) for row in zip(*table, strict=True)]
    rows = [rows[0], *(row.replace(".", comma) if comma else row for row in rows[1:])]
    return f"{op} on {ranks} GPUs\n\n" + "\n".join(rows) + "\n", op, ranks, points


@pytest.mark.parametrize("seed", range(0, 240, 40))
def test_a_table_of_any_make_is_read_right(seed):
    for one in range(seed, seed + 40):
        text, op, ranks, points = drawn(one)
        (sweep,) = read_measured(text)
        assert (sweep.collective, sweep.ranks) == (op, ranks), text
        assert sorted(sweep.points) == [(n, pytest.approx(s, rel=0.01)) for n, s in points], text


def test_what_a_throughput_counts_is_told_by_size_and_time():
    text = lines("Size  Duration  Throughput (GB/s)  BusBW (GB/s)", lambda n, s, a: f"{n} B  {1e6 * s:.3f} us  {2 * a:.4f}  {1.75 * a:.4f}",
                 "all_reduce")  # fmt: skip
    (sweep,) = read_measured(text)
    assert sweep.ranks == 8 and "2 times size / time" in " ".join(sweep.notes)
    parts = lines("Count   Size   Time, us   Bandwidth, GB/s\n  avg min max avg min max",
                  lambda n, s, a: f"{n // 4} {n} {1e6 * s:.2f} 1.0 99.0 {5 * a:.2f} 1.0 99.0", "Collective: Alltoall")  # fmt: skip
    (sweep,) = read_measured(parts)
    assert sweep.ranks == 6 and sweep.points[0][0] == 6 * SIZES[0]


def test_a_bandwidth_that_counts_each_peer_tells_the_ranks_and_which_megabytes():
    text = "all-to-all\n" + "".join(
        f"Size (MB): {n}, Elapsed time (s): {s:.6g}, Bandwidth per GPU (GB/s): {3 * n / s / 1e3:.4f}\n"
        for n, s in ((1, 1.765e-4), (64, 2.7744e-3), (1024, 4.23483e-2)))  # fmt: skip
    (sweep,) = read_measured(text)
    assert sweep.ranks == 4 and [n for n, _ in sweep.points] == [4_000_000, 256_000_000, 4_096_000_000]


def test_records_of_two_shapes_are_two_sweeps_and_none_is_lost():
    rows = [{"size": n, "time_us": 1e6 * s, "busbw_gb_per_s": a, "wrong": 0} for n, s, a in ROWS]
    also = [{"size": n, "time_us": 1e6 * s, "busbw_gb_per_s": 4 / 3 * a, "wrong": 0, "n": 1} for n, s, a in ROWS]
    text = {
        "collective": "all_reduce",
        "ranks": 2,
        "rows": rows,
        "also": {"collective": "all_reduce", "ranks": 3, "rows": also},
    }
    assert [(s.ranks, len(s.points)) for s in read_measured(json.dumps(text))] == [(2, 3), (3, 3)]
    for row in also:
        row["wrong"] = 7  # a run with wrong elements everywhere is named beside one that is right
    (sweep,) = read_measured(json.dumps(text))
    assert sweep.ranks == 2 and "all_reduce on 3 ranks has wrong elements at every size" in " ".join(sweep.notes)


def test_programs_beside_each_other_and_tables_below_each_other_are_not_mixed():
    text = "allreduce, world_size=2\n" + "".join(
        f"size\tNCCL\tgloo\n1KB\t{k}.1ms\t{k}.2ms\n2KB\t{k}.3ms\t{k}.4ms\n\n" for k in (0, 5)
    )
    found = read_measured(text)
    assert [(s.setting, [round(1e3 * t, 3) for _, t in s.points]) for s in found] == [
        ("nccl", [0.1, 0.3]), ("gloo", [0.2, 0.4]), ("nccl", [5.1, 5.3]), ("gloo", [5.2, 5.4])]  # fmt: skip


def test_figures_without_a_unit_anywhere_are_refused_with_the_reason():
    text = "2 nodes, 8 gpus each, allreduce\nelements | nccl2 | ring\n-- | -- | --\n100 | 0.001 | 0.001\n1000 | 0.011 | 0.013\n"
    with pytest.raises(CostError, match="no unit stands in the cells or in the text"):
        read_measured(text)


def test_ranks_in_the_text_that_the_figures_contradict_are_told():
    text = "#### 2-Node all_reduce (16 GPUs)\nSize (B)   Count   Time (us)   AlgBW (GB/s)   BusBW (GB/s)\n" + (
        "4294967296   1073741824   15762.4   272.48   476.84\n"
    )
    (sweep,) = read_measured(text)
    assert (sweep.ranks, sweep.nodes) == (8, None) and "the text says 16 ranks" in " ".join(sweep.notes)


def test_types_and_scopes_of_one_table_are_settings_of_their_own():
    head = "#device_reduction\nsize(B)  count  type  redop  scope  latency(us)  min_lat(us)  max_lat(us)  algbw(GB/s)  busbw(GB/s)"
    text = lines(head, lambda n, s, a: "\n".join(
        f"{n} {n // w} {kind} sum {scope} {1e6 * s:.4f} 1.0 9999.0 {a:.3f} {1.75 * a:.3f}"
        for w, kind in ((4, "int"), (2, "half")) for scope in ("warp", "block")))  # fmt: skip
    found = read_measured(text)
    assert {sweep.setting for sweep in found} == {
        f"type={t} redop=sum {s}" for t in ("int", "half") for s in ("warp", "block")
    }
    assert all([n for n, _ in sweep.points] == list(SIZES) for sweep in found)


def test_a_wrong_result_in_place_counts():
    text = lines("# size  time(us)  algbw  busbw  #wrong  time(us)  algbw  busbw  #wrong",
                 lambda n, s, a: f"{n} " + f"{1e6 * s:.1f} {a:.2f} {1.5 * a:.2f} 0 " * 2, "all_reduce")  # fmt: skip
    bad = text.replace(f"{1.5 * ALGBW[1]:.2f} 0 \n", f"{1.5 * ALGBW[1]:.2f} 7\n")
    (sweep,) = read_measured(bad)
    assert bad != text and sweep.wrong == [SIZES[1]] and [n for n, _ in sweep.points] == [SIZES[0], SIZES[2]]


def test_figures_that_contradict_each_other_are_refused_and_shown():
    text = lines("Size  Time(us)  AlgBW(GB/s)  BusBW(GB/s)", lambda n, s, a: f"{n}  {1e6 * s:.1f}  {a * (n / 1e6):.2f}  {a * (n / 1e6):.2f}",
                 "all_reduce, 2 ranks")  # fmt: skip
    with pytest.raises(CostError, match=r"GB/s of busbw at 256 MiB.*contradict each other: .* bytes in"):
        read_measured(text)


def test_columns_of_several_programs_are_told_apart():
    text = lines(
        "Size  Mine(ms)  Theirs(ms)",
        lambda n, s, a: f"{n >> 20}M  {1e3 * s:.3f}  {2e3 * s:.3f}",
        "all_gather on 8 GPUs",
    )
    mine, theirs = read_measured(text)
    assert (mine.setting, theirs.setting) == ("mine", "theirs")
    assert theirs.points[2][1] == pytest.approx(2 * mine.points[2][1], rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "| Run | busbw (GB/s) |\n|---|---|\n| 1 | 565.3 |\n| 2 | 565.0 |\n",
        " elapsed time per iteration (ms): 1234.5 | learning rate: 1.0E-04 | global batch size:     8 |\n",
        "# size  count  time\n# (B)  (elements)  (us)\n",
    ],
)
def test_what_has_no_sizes_of_messages_is_no_table(text):
    assert tables(text) == []


def test_a_figure_whose_collective_nothing_names_is_shown_and_refused():
    with pytest.raises(CostError, match=r"12.5 GB/s of busbw at 4 MiB.* which collective ran"):
        read_measured("| size | busbw (Gbps) |\n|---|---|\n| 1 MiB | 40 |\n| 4 MiB | 100 |\n")


def test_units_and_columns_by_their_names():
    assert unit_of("Gbps")[1] == 1.25e8 and unit_of("GBps")[1] == 1e9 and unit_of("gbps")[1] == 0
    assert column_of("BW average[Gb/sec]").kind == "bw" and column_of("stddev (us)").kind == ""
    assert column_of("p99 (us)").rank > column_of("avg (us)").rank or column_of("p99 (us)").kind == ""


@pytest.mark.parametrize(
    "line", ["size time " + "9 " * 900, "| size | time |" * 140, "a: " * 600, "size=" * 390 + "1", "(" * 1900]
)
def test_hostile_lines_take_no_time(line):
    began = time.process_time()
    tables("\n".join([line] * 40))
    assert time.process_time() - began < 10


def said(tmp_path, text, name="out.txt"):
    (tmp_path / name).write_text(text)
    return CliRunner().invoke(main, ["fit", str(tmp_path / name)])


HEAD = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"


def test_wrong_results_come_before_all_figures(tmp_path):
    rows = "".join(
        f"{n} {n // 4} float sum -1 {1e6 * s:.1f} {a:.2f} {1.75 * a:.2f} {7 * (n > 1 << 24)}\n" for n, s, a in ROWS
    )
    ran = said(tmp_path, HEAD + rows)
    assert ran.stdout.startswith(
        "WRONG RESULTS: all_reduce on 8 ranks has wrong elements at 268435456 bytes (1 of 3 sizes)"
    )
    ran = said(tmp_path, HEAD + rows.replace(" 7\n", " 0\n") + "# Out of bounds values : 3 FAILED\n")
    assert ran.stdout.startswith("WRONG RESULTS") and "Out of bounds values : 3 FAILED" in ran.stdout
    old = HEAD.replace("#wrong", "error") + rows.replace(" 7\n", " 5e-07\n").replace(" 0\n", " 2e-07\n")
    assert "WRONG" not in said(tmp_path, old).stdout


def test_a_curve_that_does_not_stay_at_its_best_says_what_it_ends_with(tmp_path):
    times = (41.0, 152.0, 41000.0)
    rows = "".join(
        f"{n} {n // 4} float sum -1 {t} {n / t / 1e3:.2f} {n / t / 572:.2f} 0\n"
        for n, t in zip(SIZES, times, strict=True)
    )
    out = said(tmp_path, HEAD + rows).stdout
    assert "at 16 MiB, is its best, and does not last: 11.46 GB/s at 256 MiB, its largest size (6%)" in out


def test_a_collective_below_a_table_of_pairs_is_not_taken_for_its_rows(tmp_path):
    text = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]
 65536      5000         93.10             93.00
 1048576    5000         97.10             97.00
# all_reduce_perf:
#       size      time   algbw   busbw #wrong
     1048576     41.0   25.58   44.76      0
   268435456   1310.0  204.91  358.60      0
"""
    ran = said(tmp_path, text)
    assert (
        "all_reduce           8" in ran.stdout
        and "12.12 GB/s (97 Gb/s) at 1 MiB" in ran.stdout
        and "falls" not in ran.stdout
    )
