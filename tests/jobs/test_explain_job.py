"""Jobs whose answer is known: matched calls, aligned clocks, causes and their words."""

import inspect
import json
import random
import re
from pathlib import Path

import pytest
from allranks import Trace
from allranks.jobs import ProfileError, explain, read, slowness, trace_of_files
from allranks.jobs.job import Call, Job, RankRecord
from allranks.jobs.matching import match
from kineto_files import Profile, job

MB = 1_000_000


def kinds(found):
    return [cause.kind for cause in found.causes]


def steps(profile, rank, late=0, clock=0.0, begin=0, count=12, elements=5 * MB, seed=3):
    """Steps of 10 ms of compute and an all_reduce of 2 ms; rank 1 comes `late` later, on a clock of its own."""
    chance = random.Random(seed)
    now = 1000.0
    for number in range(count):
        work, noise = 10_000 + chance.uniform(-300, 300), chance.uniform(0, 20)
        mine = work + (late if rank == 1 else 0)
        come = now + work + late
        if number >= begin:
            profile.compute(clock + now, clock + now + mine)
            profile.call("allreduce", clock + now + mine, clock + come + 2000 + noise * (rank == 1), elements)
        now = come + 2020


def test_the_rank_that_comes_last_is_the_straggler(tmp_path):
    found = explain(job(tmp_path, 3, lambda p, r: steps(p, r, late=5000)))
    first = found.causes[0]
    assert (first.kind, first.rank) == ("straggler", 1)
    assert first.saves_s == pytest.approx(12 * 5e-3, rel=0.05) and first.sure > 0.9
    assert "comes last in 12 of 12 collectives" in first.evidence and "computes for" in first.evidence
    (row,) = found.collectives
    assert row.last == {1: 12} and row.wait_us == pytest.approx(12 * 5000 * 2 / 3, rel=0.05)
    assert row.moving_us == pytest.approx(12 * 2000, rel=0.05)
    assert row.busbw_gb_per_s == pytest.approx(20e6 / 2000e-6 / 1e9 * 4 / 3, rel=0.05)
    assert row.price_us == pytest.approx(20e6 * 4 / 3 / 240e9 * 1e6)


def test_the_report_that_the_page_shows(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs/explain.md").read_text(encoding="utf-8")
    shown = page.split("```text\n")[1].split("```")[0].rstrip("\n").split("\n\n")
    found = explain(job(tmp_path, 3, lambda p, r: steps(p, r, late=5000))).text()
    assert len(shown) == 2 and all(part in found for part in shown)
    assert "of which rank 1 computes 5 ms longer in each of 12 steps" in page


def test_the_page_names_the_limits_of_the_causes():
    page = " ".join((Path(__file__).resolve().parents[2] / "docs/explain.md").read_text(encoding="utf-8").split())
    assert f"less than {100 * slowness.WORTH:.0f} % of the span is not told" in page
    assert f"at least {slowness.MANY} calls a rank of {slowness.SMALL >> 10} KiB or less" in page
    assert f"buckets of {slowness.BUCKET / 1e6:.0f} MB" in page
    assert slowness.MUCH_EXPOSED == 1 / 5 and "a fifth of the time or more is communication that nothing hides" in page
    on_gpu, without = re.findall(r"least < \(([\d.]+) if on_gpu else ([\d.]+)\)", inspect.getsource(slowness._idle))[0]
    assert (float(on_gpu), float(without)) == (1 / 4, 1 / 2)
    assert "for a quarter of the span or more on every rank; without a GPU no operator for half of it" in page


def test_a_job_without_a_fault_is_healthy(tmp_path):
    found = explain(job(tmp_path, 3, lambda p, r: steps(p, r, elements=100 * MB, count=6)))
    assert not {"straggler", "imbalance", "tiny_calls", "wrong_interface"} & set(kinds(found))


def test_clocks_of_hosts_are_aligned_by_ends_and_the_rest_is_said(tmp_path):
    """Rank 1's clock is 40 ms ahead, so that by its own times it would always come last; rank 0 does."""

    def build(profile, rank):
        steps(profile, 1 - rank, late=5000, clock=40_000.0 if rank == 1 else 0.0)

    found = explain(job(tmp_path, 2, build))
    assert (found.causes[0].kind, found.causes[0].rank) == ("straggler", 0)
    clock = found.matching.clocks[1]
    assert clock.at(40_000.0) == pytest.approx(0, abs=30) and 0 < clock.uncertain_us < 30
    assert any("aligned by the ends of 12 matched collectives" in note for note in found.notes)


def test_one_host_has_one_clock(tmp_path):
    found = explain(job(tmp_path, 2, lambda p, r: steps(p, r), host_name="node0"))
    assert found.matching.clocks[1].calls == 0 and not any("aligned" in note for note in found.notes)


def test_a_clock_that_steps_is_noticed(tmp_path):
    def build(profile, rank):
        steps(profile, rank)
        for event in profile.events:
            if rank == 1 and event["ts"] > 80_000:
                event["ts"] += 30_000

    found = explain(job(tmp_path, 2, build))
    assert any("the clock of rank 1 steps by 30.0 ms" in note for note in found.notes)
    assert "straggler" not in kinds(found)


def test_a_profile_that_begins_later_is_matched_by_ends(tmp_path):
    """Rank 1's file lacks the first two steps, and all calls are alike: order alone would pair the wrong ones."""
    found = match(read(job(tmp_path, 2, lambda p, r: steps(p, r, begin=2 * r))))
    assert len(found.matches) == 10
    assert all(abs(m.start_us[0] - m.start_us[1]) < 30 for m in found.matches)


def test_groups_pair_by_themselves(tmp_path):
    """On each rank the calls of two groups alternate in another order."""
    groups = {"row": [0, 1], "world": [0, 1]}

    def build(profile, rank):
        for n in range(6):
            first, second = ("row", "world") if (n + rank) % 2 else ("world", "row")
            profile.call("allreduce", 100 * n, 100 * n + 10, 100, group=first)
            profile.call("allreduce", 100 * n + 50, 100 * n + 60, 100, group=second)

    found = match(read(job(tmp_path, 2, build, groups=groups, host_name="a")))
    assert len(found.matches) == 12
    for one in found.matches:
        assert len({c.group for c in one.calls.values()}) == 1 and len({c.seq for c in one.calls.values()}) == 1
    assert sorted(m.seq for m in found.matches if m.group.startswith("row")) == list(range(6))


def test_a_rank_held_up_by_another_group_is_not_the_straggler(tmp_path):
    """Rank 0 is late in its row; rank 1, its neighbour there, is late in its column only because of that."""
    groups = {"row0": [0, 1], "row1": [2, 3], "col0": [0, 2], "col1": [1, 3]}

    def build(profile, rank):
        now = 0.0
        for _ in range(8):
            mine = 10_000 + (4000 if rank == 0 else 0)
            row_come = now + (14_000 if rank < 2 else 10_000)
            profile.compute(now, now + mine)
            profile.call("all_gather", now + mine, row_come + 1000, 1000, 2000, group=f"row{rank // 2}")
            profile.compute(row_come + 1000, row_come + 3000)
            profile.call("allreduce", row_come + 3000, now + 18_000, 1000, group=f"col{rank % 2}")
            now += 18_000

    found = explain(job(tmp_path, 4, build, groups=groups, host_name="a"))
    assert (found.causes[0].kind, found.causes[0].rank) == ("straggler", 0)


def test_small_calls_cost_their_latency(tmp_path):
    def build(profile, rank):
        for n in range(200):
            profile.compute(100 * n, 100 * n + 60).call("allreduce", 100 * n + 60, 100 * n + 100, 2000)
        profile.call("allreduce", 20_000, 21_040, 250_000)

    found = explain(job(tmp_path, 2, build, host_name="a"))
    first = next(c for c in found.causes if c.kind == "tiny_calls")
    # 40 µs for 8 KB and 1040 µs for 1 MB: alpha is 31.9 µs, and a byte takes 1.008 ns
    assert "The 200 all_reduces of 8 KB in the mean cost 8 ms of 21 ms" in first.evidence
    assert "in buckets of 25 MB about 1.64 ms by this job's own alpha (32 µs a call" in first.evidence
    assert first.saves_s == pytest.approx(8e-3 - 1.64e-3, rel=0.01)


def test_communication_beside_idle_compute_could_be_hidden(tmp_path):
    def build(profile, rank):
        for n in range(10):
            profile.compute(10_000 * n, 10_000 * n + 6000).call(
                "allreduce", 10_000 * n + 6000, 10_000 * (n + 1), 100 * MB
            )

    found = explain(job(tmp_path, 2, build, host_name="a"))
    assert kinds(found)[0] == "no_overlap" and found.causes[0].saves_s == pytest.approx(0.04)
    assert "Nothing of the 40 ms of communication runs while the rank computes" in found.causes[0].evidence


def test_a_group_on_a_slower_link_than_its_like(tmp_path):
    groups = {"a": [0, 1], "b": [2, 3], "c": [4, 5]}

    def build(profile, rank):
        slow = 8000 if rank // 2 == 1 else 1000
        for n in range(8):
            at = 20_000 * n
            profile.compute(at, at + 10_000).call(
                "allreduce", at + 10_000, at + 10_000 + slow, 25 * MB, group="abc"[rank // 2]
            )

    found = explain(job(tmp_path, 6, build, groups=groups, host_name="a"))
    cause = next(c for c in found.causes if c.kind == "wrong_interface")
    assert cause.cause.startswith("Group b (ranks 2-3)") and cause.sure == 0.8
    assert "12.5 GB/s, those of 2 other groups of 2 ranks 100 GB/s" in cause.evidence
    assert cause.saves_s == pytest.approx(8 * 7e-3)


def test_an_uneven_all_to_all_names_the_rank_with_the_most(tmp_path):
    def build(profile, rank):
        for n in range(6):
            at = 10_000 * n
            profile.compute(at, at + 6000).call("all_to_allv", at + 6000, at + 9000, (5 if rank == 2 else 1) * MB, MB)

    found = explain(job(tmp_path, 4, build, host_name="a"))
    cause = next(c for c in found.causes if c.kind == "skewed_all_to_all")
    assert cause.rank == 2 and "2.50 times the mean" in cause.evidence
    assert cause.saves_s == pytest.approx(6 * 3e-3 * (1 - 1 / 2.5))


def test_one_file_of_eight_blames_nobody(tmp_path):
    path = tmp_path / "one.json"
    profile = Profile(0, 8)
    for n in range(6):
        profile.compute(20_000 * n, 20_000 * n + 4000).call(
            "allreduce", 20_000 * n + 4000, 20_000 * (n + 1) - 100 * n, 5 * MB
        )
    profile.save(path)
    found = explain([path])
    assert kinds(found)[0] == "waiting" and not {"straggler", "imbalance", "wrong_interface", "missing_rank"} & set(
        kinds(found)
    )
    assert "the files of the other 7 ranks would" in found.causes[0].evidence
    assert found.job.missing == (1, 2, 3, 4, 5, 6, 7)
    assert found.collectives[0].wait_us is None and "?" in found.text()


def test_a_job_without_communication(tmp_path):
    path = Profile(0, 1).compute(0, 100).save(tmp_path / "one.json")
    assert kinds(explain([path])) == ["no_communication"]


def test_ranks_of_another_job_and_two_files_of_a_rank_are_skipped(tmp_path):
    job(tmp_path, 3, steps)
    steps(other := Profile(3, 8), 3)
    other.save(tmp_path / "other.json")
    steps(double := Profile(1, 3), 1)
    double.save(tmp_path / "z.json")
    steps(old := Profile(2, 3), 2, clock=3e10)
    old.save(tmp_path / "yesterday.json")
    (tmp_path / "notes.txt").write_text("hello")
    found = explain(tmp_path)
    why = {s["file"].rpartition("/")[2]: s["why"] for s in found.skipped}
    assert [t.rank for t in found.ranks] == [0, 1, 2]
    assert "a world of 8 ranks, not a world of 3 ranks" in why["other.json"]
    assert "it is of rank 1 too" in why["z.json"]
    assert "8 hours earlier or later" in why["yesterday.json"]
    assert "its format is not known" in why["notes.txt"]
    assert len(why) == 4 and all(line in found.text() for line in why)


def test_the_rank_without_a_file_is_a_clue(tmp_path):
    job(tmp_path, 4, steps)
    (tmp_path / "2.json.gz").unlink()
    found = explain(tmp_path)
    (cause,) = [c for c in found.causes if c.kind == "missing_rank"]
    assert (cause.rank, cause.sure, cause.saves_s) == (2, 0.3, None)


def test_the_plain_data_has_the_promised_names(tmp_path):
    found = json.loads(json.dumps(explain(job(tmp_path, 2, steps)).to_dict()))
    promised = {"rank", "span_us", "compute_us", "communication_us", "exposed_us", "idle_us", "overlap"}
    assert promised <= set(found["ranks"][0]) and 0 <= found["ranks"][0]["overlap"] <= 1
    assert {"cause", "evidence", "saves_s", "sure"} <= set(found["causes"][0])
    assert {"op", "group", "calls", "nbytes", "busbw_gb_per_s"} <= set(found["collectives"][0])
    assert found["skipped"] == []


def test_a_profile_becomes_a_trace_and_goes_back_out(tmp_path):
    trace = trace_of_files(job(tmp_path, 2, lambda p, r: steps(p, r, late=5000)))
    calls = [e for e in trace if e.op == "all_reduce"]
    assert (trace.ranks, trace.clock, len(calls)) == (2, "wall", 24)
    assert {(e.rank, e.seq) for e in calls} == {(r, n) for r in (0, 1) for n in range(12)}
    assert {e.group for e in calls} == {"0 (ranks 0-1)"} and min(e.start for e in trace) == 0
    rows = [row for row in trace.to_chrome()["traceEvents"] if row["name"].startswith("ncclDev")]
    assert rows[0]["args"]["group"] == "0 (ranks 0-1)" and rows[0]["args"]["seq"] == 0
    assert Trace.from_dict(json.loads(json.dumps(trace.to_dict()))) == trace


def test_our_own_trace_is_explained_too(tmp_path):
    trace = trace_of_files(job(tmp_path, 2, lambda p, r: steps(p, r, late=5000)))
    trace.save(tmp_path / "ours.json")
    found = explain(tmp_path / "ours.json")
    assert (found.causes[0].kind, found.causes[0].rank) == ("straggler", 1)
    assert [r.source for r in found.job.records] == ["trace", "trace"]


def test_a_broken_trace_of_ours_is_skipped(tmp_path):
    path = tmp_path / "ours.json"
    Trace("live", ranks=1, clock="wall").save(path)
    path.write_text(path.read_text()[:-3])
    with pytest.raises(ProfileError, match="the JSON ends in the middle"):
        explain(path)


def test_a_notebook_shows_the_lanes_and_the_words(tmp_path):
    found = explain(job(tmp_path, 2, lambda p, r: steps(p, r, late=5000)))
    shown = found._repr_html_()
    assert "<svg" in shown and "is the straggler" in shown and "rank 1" in shown
    chart = found.picture()
    assert [t.get_text() for t in chart.axes[0].get_yticklabels()] == ["rank 0", "rank 1"]


def test_the_links_column_is_left_out_where_no_link_is_known():
    from allranks.jobs.explaining import _CALLS, _table

    rows = [("all_reduce", "0", "6", "1 KB", "1 ms", "?", "2 ms", "3 ms", "0.1", "0.2", "?")]
    assert "waiting" in _table(_CALLS, rows)[0] and "link" not in _table(_CALLS, rows)[0]
    known = [(*rows[0][:10], "25"), rows[0]]
    assert "link GB/s" in _table(_CALLS, known)[0] and _table(_CALLS, known)[2].endswith("?")


def test_ranks_without_a_number_are_called_by_their_files(tmp_path):
    for rank, name in enumerate(("alpha", "beta", "gamma")):
        profile = Profile(rank, 3)
        del profile.header["distributedInfo"]["rank"]
        steps(profile, rank, late=5000)
        profile.save(tmp_path / f"{name}.json")
    first = explain(tmp_path).causes[0]
    assert (first.kind, first.rank) == ("straggler", None)
    assert "The rank of beta.json is the straggler" in first.cause and "Rank 1" not in first.cause + first.evidence


def test_a_name_with_tp_says_the_rank(tmp_path):
    for place, rank in enumerate((0, 2, 1)):
        profile = Profile(rank, 3)
        del profile.header["distributedInfo"]["rank"]
        steps(profile, rank, late=5000)
        profile.save(tmp_path / f"{17270 + place}-TP-{rank}.trace.json")
    found = explain(tmp_path)
    assert (found.causes[0].kind, found.causes[0].rank) == ("straggler", 1)
    assert [r.rank_from for r in found.job.records] == ["the file's name"] * 3


def test_much_exposed_communication_is_not_called_healthy(tmp_path):
    profile = Profile(0, 2, device="Unknown").compute(0, 100)
    for i in range(9):
        profile.call("allreduce", 100 + 1000 * i, 1095 + 1000 * i, elements=1000 + i)
    profile.save(tmp_path / "rank0.json")
    found = explain(tmp_path / "rank0.json")
    assert found.causes[0].kind == "exposed" and "98 % of the time" in found.causes[0].cause
    assert "costs little" not in found.text()


def test_the_page_to_send_names_no_folder_host_or_address(tmp_path):
    profile = Profile(0, 2, host_name="secret-node-7").compute(0, 50).call("allreduce", 50, 90)
    (tmp_path / "private").mkdir()
    profile.save(tmp_path / "private" / "rank0.json")
    (tmp_path / "private" / "notes.log").write_text(
        "a:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.2.3<0>\na:1:1 [0] NCCL INFO Using network Socket\n"
    )
    found = explain(tmp_path / "private")
    page = found.html()
    assert (
        page.startswith("<!doctype html>")
        and "<script" not in page
        and "http://" not in page
        and "https://" not in page
    )
    for word in (str(tmp_path), "private", "secret-node-7", "10.1.2.3"):
        assert word not in page
    (tmp_path / "private" / "x.bin").write_bytes(b"nothing")
    assert str(tmp_path) in explain(tmp_path / "private").html(paths=True)


def test_two_gpus_of_a_mesh_have_one_link():
    """Each pair of MI300X has one link, 48 of its 64 GB/s usable: a busbw of 42 GB/s of two is no wrong interface."""

    def rank(number):
        calls = tuple(
            Call(number, "all_reduce", "0", (0, 1), 2, k, 1000.0 * k, 1000.0 * k + 200, nbytes=8 << 20)
            for k in range(10)
        )
        busy = tuple((c.start_us, c.end_us) for c in calls)
        facts = {"device": "AMD Instinct MI300X", "on_gpu": True}
        return RankRecord(number, f"r{number}", "kineto", 2, calls, communication=busy, span=(0.0, 9200.0), facts=facts)

    found = explain(Job((rank(0), rank(1))))
    assert [row.link_gb_per_s for row in found.collectives] == [48.0]
    assert "wrong_interface" not in [cause.kind for cause in found.causes]
