"""Profiles of several devices: Nsight Systems' exports, XLA's traces, NCCL's example profiler; figures by hand."""

import gzip
import json
import sqlite3

import pytest
from allranks.jobs import ProfileError, explain, read
from allranks.jobs.analysis import rank_times

GEMM, RING = "void gemm<float>(float*)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def nsight(path, devices=2):
    base = sqlite3.connect(path)
    base.executescript(
        "create table StringIds(id integer, value text);"
        "create table CUPTI_ACTIVITY_KIND_KERNEL(start integer, end integer, deviceId integer, streamId integer, demangledName integer, shortName integer);"
        "create table CUPTI_ACTIVITY_KIND_MEMCPY(start integer, end integer, deviceId integer, copyKind integer);"
        "create table TARGET_INFO_GPU(id integer, name text);"
    )
    base.executemany("insert into StringIds values (?, ?)", [(1, GEMM), (2, RING)])
    for device in range(devices):
        base.execute("insert into TARGET_INFO_GPU values (?, 'NVIDIA H100')", (device,))
        rows = [(0, 400_500, device, 7, 1, 1), (300_000, 700_000, device, 8, 2, 2)]
        base.executemany("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, ?, ?, ?, ?)", rows)
        base.executemany(
            "insert into CUPTI_ACTIVITY_KIND_MEMCPY values (?, ?, ?, ?)",
            [(800_000, 900_000, device, 10), (900_000, 950_000, device, 1)],
        )
    base.commit()
    base.close()
    return path


def figures(times):
    return times.compute_us, times.communication_us, times.exposed_us, times.memory_us, times.span_us


def test_nsights_sqlite_gives_each_devices_figures(tmp_path):
    records = read(nsight(tmp_path / "a.sqlite")).records
    assert [r.rank for r in records] == [0, 1] and records[0].facts["device"] == "NVIDIA H100"
    for record in records:
        assert figures(rank_times(record)) == pytest.approx((400.5, 500, 399.5, 50, 950))


def test_nsights_json_gives_the_same(tmp_path):
    lines = [{"data": ["", GEMM, RING]}]
    for start, end, name in ((0, 400_500, "1"), (300_000, 700_000, "2")):
        lines.append(
            {
                "Type": 79,
                "CudaEvent": {
                    "startNs": str(start),
                    "endNs": str(end),
                    "deviceId": 0,
                    "streamId": "7",
                    "kernel": {"demangledName": name},
                },
            }
        )
    lines.append(
        {"Type": 80, "CudaEvent": {"startNs": "800000", "endNs": "900000", "deviceId": 0, "memcpy": {"copyKind": 10}}}
    )
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, lines)) + '\n{"torn": ')
    (record,) = read(tmp_path / "a.json").records
    assert figures(rank_times(record)) == pytest.approx((400.5, 500, 399.5, 0, 900))
    assert "1 lines are not JSON" in record.notes[0]


def test_another_sqlite_and_a_torn_one_get_one_sentence(tmp_path):
    sqlite3.connect(tmp_path / "b.sqlite").execute("create table x(y)")
    whole = nsight(tmp_path / "a.sqlite").read_bytes()
    (tmp_path / "c.sqlite").write_bytes(whole[: len(whole) // 2])
    for name, words in (("b.sqlite", "without kernels of Nsight"), ("c.sqlite", "can't be read")):
        with pytest.raises(ProfileError, match=words):
            read(tmp_path / name)
    assert len(explain([tmp_path / "a.sqlite", tmp_path / "c.sqlite"]).skipped) == 1


@pytest.mark.parametrize("kernels", [True, False])
def test_graphs_that_were_recorded_as_wholes_are_no_quiet_gpu(tmp_path, kernels):
    path = nsight(tmp_path / "a.sqlite")
    base = sqlite3.connect(path)
    base.execute("create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start integer, end integer, deviceId integer)")
    base.execute("insert into CUPTI_ACTIVITY_KIND_GRAPH_TRACE values (0, 90000000, 0)")
    if not kernels:
        base.execute("drop table CUPTI_ACTIVITY_KIND_KERNEL")
    base.commit()
    base.close()
    with pytest.raises(ProfileError, match="--cuda-graph-trace=node"):
        read(path)


def jax(path, device="GPU", stream="Stream #20(MemcpyP2P)"):
    head = [
        ("process_name", None, f"/device:{device}:0"),
        ("thread_name", 5, stream),
        ("thread_name", 6, "XLA Modules"),
    ]
    events = [{"ph": "M", "pid": 3, "tid": tid, "name": kind, "args": {"name": name}} for kind, tid, name in head]
    events += [
        {"ph": "X", "pid": 3, "tid": 5, "ts": 0.0, "dur": 40.5, "name": "loop_fusion", "args": {"hlo_op": "fusion.1"}},
        {
            "ph": "X",
            "pid": 3,
            "tid": 5,
            "ts": 30.0,
            "dur": 30.0,
            "name": "all-reduce.7",
            "args": {"hlo_op": "all-reduce.7"},
        },
        {"ph": "X", "pid": 3, "tid": 6, "ts": 0.0, "dur": 100.0, "name": "jit_step"},
        {"ph": "X", "pid": 9, "tid": 1, "ts": 0.0, "dur": 500.0, "name": "python"},
    ]
    with gzip.open(path, "wt") as file:
        json.dump({"displayTimeUnit": "ns", "traceEvents": events}, file)
    return path


@pytest.mark.parametrize(("device", "stream"), [("GPU", "Stream #20"), ("TPU", "XLA Ops")])
def test_xlas_traces_give_each_devices_figures(tmp_path, device, stream):
    (record,) = read(jax(tmp_path / "a.trace.json.gz", device, stream)).records
    assert figures(rank_times(record)) == pytest.approx((40.5, 30, 19.5, 0, 60))
    assert [c.op for c in record.calls] == ["all_reduce"]


@pytest.mark.parametrize("kernels", [True, False])
def test_nccls_example_profiler_says_when_calls_ran_and_no_more(tmp_path, kernels):
    events = []
    if kernels:
        events.append(
            {"name": "KernelCh", "cat": "GPU", "ph": "b", "id": 0, "pid": 1, "ts": 1.0, "args": {"Channel": 0}}
        )
    for i in range(3):
        said = {
            "SeqNum": i,
            "CommHash": 9,
            "Rank": 1,
            "Count": 1000,
            "Datatype": "ncclFloat32",
            "Algorithm": "RING",
            "Protocol": "LL",
        }
        events.append({"name": "AllReduce", "cat": "COLL", "ph": "b", "id": i, "pid": 1, "ts": 100.0 * i, "args": said})
        events.append({"name": "AllReduce", "cat": "COLL", "ph": "e", "id": i, "pid": 1, "ts": 100.0 * i + 30})
    (tmp_path / "a.json").write_text("[\n" + ",\n".join(map(json.dumps, events)))
    found = explain(tmp_path / "a.json")
    (row,) = found.collectives
    assert (row.op, row.calls, row.call_us) == ("all_reduce", 3, 30 if kernels else None)
    assert found.causes[0].kind == "no_times" and not found.ranks
    assert any("when the host has enqueued it" in note for note in found.notes) is not kernels
    assert ("when the calls ran" in found.causes[0].evidence) is kernels
