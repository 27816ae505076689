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


TIMELINE = {"Computing": [(0, 700), (900, 1200)], "Communication": [(500, 900), (1250, 1400)], "Free": [(1200, 1250)]}


def ascend(path, lane="Overlap Analysis"):
    """What torch_npu writes: processes with names, times as texts, no categories on the device."""
    names = {1: "Python", 3: "Ascend Hardware", 4: "Communication", 5: lane}
    events = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names.items()]
    events.append({"ph": "X", "cat": "cpu_op", "name": "aten::matmul", "pid": 1, "tid": 1, "ts": "1000.0", "dur": 50})
    rows = [(5, name, start, end) for name, parts in TIMELINE.items() for start, end in parts]
    rows += [(3, "MatMulV2", 0, 700), (4, "hcom_allReduce__123_0_1", 500, 900), (4, "Notify_Wait", 500, 520)]
    rows.append((4, "hcom_allReduce__123_1_1", 1250, 1400))
    for pid, name, start, end in rows:
        events.append({"ph": "X", "name": name, "pid": pid, "tid": 0, "ts": f"{1000 + start}.000", "dur": end - start})
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(events))
    return path


def test_ascends_own_lane_says_what_its_device_does(tmp_path):
    path = ascend(tmp_path / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json")
    (tmp_path / "host_1_ascend_pt" / "profiler_info_3.json").write_text("{}")
    (record,) = read(path).records
    assert record.rank == 3 and [call.op for call in record.calls] == ["all_reduce", "all_reduce"]
    assert figures(rank_times(record)) == pytest.approx((1000, 550, 350, 0, 1400))


def test_a_device_whose_events_have_no_category_is_named_and_not_denied(tmp_path):
    path = ascend(tmp_path / "x" / "profile.json", lane="Other")
    path.write_text(path.read_text().replace("Ascend Hardware", "Some Accelerator"))
    text = str(explain(path))
    assert "Some Accelerator" in text and "no event of a GPU" not in text and "has no GPU events" not in text


TABLES = {
    "nsys stats": (
        "Processing [x.sqlite] with [cuda_gpu_trace.py]...\n"
        "Start (ns),Duration (ns),CorrId,Bytes (MB),Device,Ctx,Strm,Name\n",
        lambda start, end, name: f'{start},{end - start},1,,NVIDIA H100 80GB HBM3 (0),1,7,"{name}"\n',
    ),
    "rocprofv3": (
        '"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n',
        lambda start, end, name: f'"KERNEL_DISPATCH","Agent 4",1,"{name}",1,{start},{end}\n',
    ),
}


@pytest.mark.parametrize("tool", TABLES)
def test_a_table_with_a_line_for_each_kernel_is_a_profile(tmp_path, tool):
    head, line = TABLES[tool]
    rows = [
        (0, 400_500, GEMM),
        (300_000, 700_000, RING),
        (800_000, 900_000, "[CUDA memcpy Peer-to-Peer]"),
        (900_000, 950_000, "[CUDA memset]"),
    ]
    path = tmp_path / "kernels.csv"
    path.write_text(head + "".join(line(*row) for row in rows))
    (record,) = read(path).records
    assert figures(rank_times(record)) == pytest.approx((400.5, 500, 399.5, 50, 950))
