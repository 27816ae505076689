"""nccl-tests' output of several versions, and the cluster fitted to it: right at measured sizes, near at the others."""

import csv
import itertools
import json
import math
from collections import defaultdict
from statistics import median

import pytest
from allranks import cost
from allranks.theory.cost.normal import PUBLISHED
from allranks.theory.cost.plan import plan
from allranks.theory.simulator.simulation import simulate
from allranks.theory.topology import TopologyError, preset

DEVICES = "".join(
    f"#  Rank {rank:2d} Group  0 Pid {900 + rank} on {host} device {rank % 2} [0x07] NVIDIA H100 80GB HBM3\n"
    for rank, host in enumerate(("a", "a", "b", "b"))
)
NEW = (
    "# nccl-tests version 2.17.4 nccl-headers=22706 nccl-library=22706\n"
    "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8G step: 2(factor)\n#\n# Using devices\n"
    + DEVICES
    + "#\n#                                                              out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)


def row(nbytes, us, wrong="0", wrong_in_place="0"):
    return f"  {nbytes}  {nbytes // 4}  float  sum  -1  {us}  0.1  0.1  {wrong}  {us}  0.1  0.1  {wrong_in_place}\n"


def sweep(latency_s=12e-6, bytes_per_s=100e9, sizes=range(10, 31)):
    return [(2**k, latency_s + 2**k / bytes_per_s) for k in sizes]


def test_the_newest_output_says_all_that_is_needed():
    (found,) = cost.read_measured(NEW + row(1024, 12.5) + row(2048, 13.0) + "# Out of bounds values : 0 OK\n")
    assert (found.collective, found.ranks, found.nodes) == ("all_reduce", 4, 2)
    assert found.points == [(1024, pytest.approx(12.5e-6)), (2048, pytest.approx(13e-6))] and not found.notes


def test_an_old_output_has_an_error_column_and_no_name():
    old = (
        "#                                             out-of-place                    in-place\n"
        "#       size         count    type   root     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "#        (B)    (elements)                    (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
        "     1048576        262144   float     -1    25.10   41.78   31.33  2e-07    25.00   41.94   31.46  1e-07\n"
    )
    (found,) = cost.read_measured(old, collective="all_gather_perf", ranks=4)
    assert (found.collective, found.ranks, found.nodes) == ("all_gather", 4, None)
    assert found.points == [(1048576, pytest.approx(25.1e-6))]
    with pytest.raises(cost.CostError, match="which collective ran"):
        cost.read_measured(old, ranks=4)
    assert cost.read_measured(old, collective="all_gather")[0].ranks == 4  # busbw / algbw is 3/4
    blurred = old.replace("31.33", "31").replace("41.78", "42").replace("25.10", "1")
    with pytest.raises(cost.CostError, match="how many"):
        cost.read_measured(blurred.replace("42   31", "0   0"), collective="all_gather")


@pytest.mark.parametrize("label", ["[1,0]<stdout>:", "[1,3]<stdout>: ", "0: "])
def test_launchers_labels_are_passed_over(label):
    text = "".join(f"{label}{line}\n" for line in (NEW + row(1024, 12.5)).splitlines())
    assert cost.read_measured(text)[0].points == [(1024, pytest.approx(12.5e-6))]


@pytest.mark.parametrize("columns", [("3", "0"), ("0", "3"), ("3", "N/A")])
def test_sizes_with_wrong_elements_are_left_out_and_named(columns):
    (found,) = cost.read_measured(NEW + row(1024, 12.5) + row(2048, 13.0, *columns))
    assert found.wrong == [2048] and [n for n, _ in found.points] == [1024]
    _, notes = cost.fit_measured(
        cost.read_measured(NEW + row(1024, 12.5) + row(512, 12) + row(256, 12) + row(2048, 13.0, *columns))
    )
    assert "wrong elements at 2048 bytes" in notes[0]


def test_a_line_that_is_cut_off_is_left_out_and_named():
    (found,) = cost.read_measured(NEW + row(1024, 12.5) + row(2048, 1300.0)[:30])
    assert [n for n, _ in found.points] == [1024] and "line" in found.notes[0] and "cut off" in found.notes[0]
    (whole_but_for_its_end,) = cost.read_measured(NEW + row(1024, 12.5) + row(2048, 13.0)[:-1])
    assert [n for n, _ in whole_but_for_its_end.points] == [1024]  # its last number may lack digits


def test_two_runs_in_one_file_are_told_apart_or_taken_together():
    other = NEW.replace("all_reduce_perf", "alltoall_perf")
    found = cost.read_measured(NEW + row(1024, 12.5) + other + row(1024, 20.0))
    assert [f.collective for f in found] == ["all_reduce", "all_to_all"]
    twice = (
        NEW
        + "".join(row(2**k, 10 + k) for k in range(10, 14))
        + NEW
        + "".join(row(2**k, 12 + k) for k in range(10, 14))
    )
    sweeps, notes = cost.fit_measured(cost.read_measured(twice))
    assert len(sweeps) == 1 and sweeps[0].seconds(1024) == pytest.approx(21e-6)
    assert any("run 2 times" in note for note in notes)


def test_a_sweep_that_still_gains_at_its_largest_size_says_so():
    for most, gains in ((21, True), (31, False)):  # half of the bandwidth is reached at 1 MB
        _, notes = cost.fit_measured(
            [cost.Measured("all_gather", 4, 2, [(2**k, 1e-3 + 2**k / 1e9) for k in range(18, most)])]
        )
        assert any("measure larger sizes" in note for note in notes) is gains


def test_a_run_without_its_devices_is_of_as_many_nodes_as_the_files_other_run(tmp_path):
    end = (
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.1\n#\n# Collective test concluded: all_reduce_perf\n"
    )
    shape = "  {}  {}  float  sum  -1  {:.1f}  {:.2f}  {:.2f}  0  {:.1f}  {:.2f}  {:.2f}  0\n"
    times = [(2**k, 2**k / speed) for speed in (40e3, 8e3) for k in range(24, 28)]  # microseconds
    rows = [shape.format(n, n // 4, *(us, n / us / 1e3, 1.5 * n / us / 1e3) * 2) for n, us in times]
    (tmp_path / "runs.txt").write_text("".join(rows[:4]) + end + NEW + "".join(rows[4:]) + end)
    first, second = cost.read_measured_file(tmp_path / "runs.txt")
    assert (first.nodes, second.nodes) == (2, 2) and "as the other runs of 4 ranks" in first.notes[-1]


def test_sendrecv_is_passed_over():
    text = NEW.replace("all_reduce_perf", "sendrecv_perf") + row(1024, 5.0) + NEW + row(1024, 12.5)
    assert [f.collective for f in cost.read_measured(text)] == ["all_reduce"]
    with pytest.raises(cost.CostError, match="only tests that are no collectives"):
        cost.read_measured(NEW.replace("all_reduce_perf", "sendrecv_perf") + row(1024, 5.0))


@pytest.mark.parametrize("text", ["", "hello\n", "{}", '{"rows": 3}', "size,count\n", "# nccl-tests\n", "\n" * 1000])
def test_what_is_no_output_is_refused(text):
    with pytest.raises(cost.CostError):
        cost.read_measured(text, collective="all_reduce", ranks=2)


def test_what_our_own_bench_prints_is_read():
    text = "# all_reduce (gloo's own), 4 ranks, gloo, x\n#       size       count     type redop root       time    algbw    busbw   #wrong\n"
    text += "           8           2  float32   sum   -1      90.00    0.000    0.000        0\n# wrong elements: 0\n"
    assert cost.read_measured(text)[0].points == [(8, pytest.approx(9e-5))]
    rows = [{"size": 8, "time_us": 90.0, "wrong": 0}, {"size": 16, "time_us": 91.0, "wrong": 2}]
    (found,) = cost.read_measured(json.dumps({"collective": "all_reduce", "ranks": 4, "rows": rows}))
    assert found.points == [(8, pytest.approx(9e-5))] and found.wrong == [16]


# ---------------------------------------------------------------------------------------------------------------- the fit


def published_sweeps():
    groups = defaultdict(dict)
    for r in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()):
        if r["collective"] == "sendrecv":
            continue
        nbytes, ranks = int(r["bytes"]), int(r["gpus"])
        busbw = float(r["busbw_GBps"] or 0)
        if r["time_us"]:
            seconds = 1e-6 * float(r["time_us"])
        elif busbw >= 1:  # a busbw of 0.04 has too few digits to be held against
            seconds = nbytes * float(cost.bus_factor(r["collective"], ranks)) / (1e9 * busbw)
        else:
            continue
        groups[r["source"], r["hardware"], int(r["nodes"]), ranks, r["collective"], r["note"]][nbytes] = seconds
    return {key: sorted(points.items()) for key, points in groups.items() if len(points) >= 8 and key[3] > 1}


def test_a_fit_of_half_of_a_published_sweep_foretells_the_other_half():
    sweeps = published_sweeps()
    assert len(sweeps) >= 10
    errors = []
    for (_, _, nodes, ranks, collective, _), points in sweeps.items():
        steps = [b[0] / a[0] for a, b in itertools.pairwise(points)]
        if max(steps) <= 4:  # sizes that a sweep left out for 64-fold and more are no "every other size"
            errors += cost.fit_sweep(collective, ranks, points, nodes).held_out
    assert len(errors) > 50
    assert median(errors) < 0.10


def test_at_measured_sizes_the_measurement_comes_back():
    points = [(nbytes, seconds * (1 + 0.2 * math.sin(nbytes))) for nbytes, seconds in sweep()]
    fitted = cost.fit_sweep("all_reduce", 8, points)
    for nbytes, seconds in points:
        assert fitted.seconds(nbytes) == pytest.approx(seconds)


def test_two_world_sizes_tell_overhead_from_alpha():
    def times(ranks):
        messages = 2 * (ranks - 1)
        return [(n, 10e-6 + messages * 2e-6 + (t - 12e-6)) for n, t in sweep()]

    fitted = [cost.fit_sweep("all_reduce", ranks, times(ranks)) for ranks in (2, 4, 8)]
    cluster = cost.OwnCluster.of("mine", fitted)
    for s in cluster.sweeps:
        assert s.alpha_s == pytest.approx(2e-6, rel=0.1) and s.overhead_s == pytest.approx(10e-6, rel=0.1)


def test_what_was_not_measured_is_said():
    cluster = cost.OwnCluster.of("mine", [cost.fit_sweep("all_reduce", 8, sweep())])
    assert cluster.price("all_reduce", 2**20).beyond == ()
    assert "were measured" in cluster.price("all_reduce", 2**40).beyond[0]
    assert cluster.price("all_reduce", 2**20, 4).beyond == ("4 ranks, where 8 were measured",)
    with pytest.raises(cost.CostError, match="one node only"):
        cluster.price("all_reduce", 2**20, 16)
    with pytest.raises(cost.CostError, match="broadcast was not measured on mine; measured: all_reduce"):
        cluster.price("broadcast", 8)


def test_the_file_comes_back_as_it_was_written(tmp_path):
    cluster = cost.OwnCluster.of(
        "mine",
        [cost.fit_sweep("all_reduce", 8, sweep()), cost.fit_sweep("all_reduce", 16, sweep(bytes_per_s=50e9), nodes=2)],
    )
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(cluster.to_dict()))
    again = cost.OwnCluster.load(file)
    assert again == cluster
    assert preset(str(file)) == cluster.topology


def test_plan_and_simulation_of_a_file_agree_where_they_say_the_same(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(cost.OwnCluster.of("mine", [cost.fit_sweep("all_reduce", 8, sweep())]).to_dict()))
    priced = plan("7B", str(file), dp=8, bucket_nbytes=None).prices["data"].seconds
    assert simulate("all_reduce", "ring", 8, 14_000_000_000, preset(str(file))).seconds == pytest.approx(
        priced, rel=0.01
    )


@pytest.mark.parametrize(
    ("sweeps", "words"),
    [
        ([("all_reduce", 8, 1), ("all_reduce", 8, 2)], "nodes with 4 and 8 ranks"),
        ([("all_reduce", 8, 3)], "do not fill 3 nodes"),
        ([("all_reduce", 1, 1)], "one rank sends nothing"),
        ([], "no sweep"),
    ],
)
def test_sweeps_that_do_not_fit_together_are_refused(sweeps, words):
    with pytest.raises(cost.CostError, match=words):
        cost.OwnCluster.of("mine", [cost.fit_sweep(c, ranks, sweep(), nodes) for c, ranks, nodes in sweeps])


# --------------------------------------------------------------------------------------------------------------- the file

GOOD = {"allranks_topology": 1, "name": "m", "ranks_per_node": 8, "inside": {"alpha_s": 1e-6, "bytes_per_s": 1e11}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inside": {"alpha_s": 1e-6, "bytes_per_s": -1}}, "must be above 0"),
        ({"inside": {"alpha_s": -1, "bytes_per_s": 1}}, "must be 0 or more"),
        ({"inside": {"alpha_s": 1e-6}}, "has no 'bytes_per_s'"),
        ({"inside": {"alpha_s": 1e-6, "bytes_per_s": "fast"}}, "must be a number"),
        ({"inside": 3}, "a link is"),
        ({"inside": {"alpha_s": 0, "bytes_per_s": 1, "speed": 3}}, "'speed' that no link has"),
        ({"ranks_per_node": 0}, "at least one rank"),
        ({"ranks_per_node": 2.5}, "must be a whole number"),
        ({"ranks_per_node": True}, "must be a whole number"),
        ({"rails": "yes"}, "true or false"),
        ({"colour": "red"}, "'colour' that no topology has"),
        ({"stragglers": [[0, 2]]}, "'stragglers' that no topology has"),
        ({"allranks_topology": 2}, "reads format 1"),
        ({"like": "dgx-z9"}, "no topology 'dgx-z9'"),
        ({"like": 7}, "must be a preset's name"),
        ({"like": "gone.json"}, "can't be read"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, change, words):
    file = tmp_path / "m.json"
    file.write_text(json.dumps(GOOD | change))
    with pytest.raises(TopologyError, match=words) as raised:
        preset(str(file))
    assert ".json" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("missing", ["name", "ranks_per_node", "inside", "allranks_topology"])
def test_a_missing_field_is_named(tmp_path, missing):
    file = tmp_path / "m.json"
    file.write_text(json.dumps({key: value for key, value in GOOD.items() if key != missing}))
    with pytest.raises(TopologyError, match=missing):
        preset(str(file))


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"allranks_topology": 1, "name": NaN}', "[" * 100_000, "\0"])
def test_what_is_no_json_object_is_refused(tmp_path, text):
    file = tmp_path / "m.json"
    file.write_text(text)
    with pytest.raises(TopologyError):
        preset(str(file))


def test_files_that_are_like_each_other_end(tmp_path):
    for name, other in (("a", "b"), ("b", "c"), ("c", "b")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"allranks_topology": 1, "like": f"{other}.json"}))
    with pytest.raises(TopologyError, match=r"never ends: b.json is like c.json is like b.json"):
        preset(str(tmp_path / "a.json"))


def test_a_file_may_change_one_figure_of_a_preset(tmp_path):
    file = tmp_path / "m.json"
    file.write_text(json.dumps({"allranks_topology": 1, "name": "half", "like": "dgx-h100", "nics_per_node": 4}))
    found = preset(str(file))
    assert found.nics_per_node == 4 and found.inside == preset("dgx-h100").inside


@pytest.mark.parametrize(
    "change",
    [{"bytes_per_s": -1}, {"ranks": 1}, {"efficiency": []}, {"efficiency": [[8, 1], [4, 1]]}, {"efficiency": 3},
     {"collective": "dance"}, {"overhead_s": -1}, {"alpha_s": "x"}, {"nodes": 0}],
)  # fmt: skip
def test_a_wrong_sweep_in_a_file_is_refused(tmp_path, change):
    data = cost.OwnCluster.of("mine", [cost.fit_sweep("all_reduce", 8, sweep())]).to_dict()
    data["measured"][0] |= change
    file = tmp_path / "m.json"
    file.write_text(json.dumps(data))
    with pytest.raises(cost.CostError):
        cost.OwnCluster.load(file)


def rows(collective, ranks, in_place="0", sizes=range(12, 30)):
    """What nccl-tests would print of these ranks, without the line that names the test."""
    factor = {"all_reduce": 2.0}.get(collective, 1.0) * (ranks - 1) / ranks
    redop, parts = ("sum", 1) if collective == "all_reduce" else ("none", ranks)
    text = "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    for nbytes in (2**k for k in sizes):
        time_us = 20 + nbytes / 2e5
        half = f"{time_us:.2f} {nbytes / time_us / 1e3:.2f} {factor * nbytes / time_us / 1e3:.2f}"
        text += f"{nbytes} {nbytes // 4 // parts} float {redop} -1 {half} 0 {half} {in_place}\n"
    return text


@pytest.mark.parametrize("ranks", [3, 4, 8, 16, 72])
def test_the_figures_alone_prove_an_all_reduce(ranks):
    [found] = cost.read_measured(rows("all_reduce", ranks).split("\n", 1)[1])
    assert (found.collective, found.ranks) == ("all_reduce", ranks)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_alltoall_alone_checks_nothing_in_place(ranks):
    [found] = cost.read_measured(rows("all_to_all", ranks, "N/A"))
    assert (found.collective, found.ranks) == ("all_to_all", ranks)
    with pytest.raises(cost.CostError, match="which collective ran"):
        cost.read_measured(rows("all_gather", ranks))


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("alltoall_perf-8.txt", "all_to_all"), ("nccl-AllGather.log", "all_gather"), ("all-reduce.out", "all_reduce"),
        ("reduce_scatter.txt", "reduce_scatter"), ("reducescatter16", "reduce_scatter"),
    ],
)  # fmt: skip
def test_the_files_name_may_spell_the_collective_in_any_way(tmp_path, name, collective):
    (tmp_path / name).write_text("#  size count type time\n  8 2 float 10.0\n")
    assert cost.read_measured_file(tmp_path / name, ranks=4)[0].collective == collective


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_what_powershell_wrote_is_read(tmp_path, encoding):
    text = "\x1b[32m" + rows("all_reduce", 8).replace("\n", "\r\n")
    (tmp_path / "out.txt").write_bytes(text.encode(encoding))
    assert cost.read_measured_file(tmp_path / "out.txt")[0].ranks == 8
