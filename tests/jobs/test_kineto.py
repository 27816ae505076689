"""What one profile of torch says of its rank: calls, classes, window, and what it doesn't say."""

import gzip
import json

import pytest
from allranks.jobs import ProfileError, explain, kineto, read
from allranks.jobs.analysis import rank_times
from allranks.jobs.reading import read_file
from kineto_files import Profile


def record(profile, path):
    return read([profile.save(path)]).records[0]


def test_a_kernel_says_which_call_it_is(tmp_path):
    profile = Profile(groups={"0": [0, 1], "7": [1, 0]}).call("_allgather_base", 10, 30, 500, 1000, group="7")
    (call,) = record(profile, tmp_path / "a.json").calls
    assert (call.op, call.group, call.group_ranks, call.group_size) == ("all_gather", "7 (ranks 1,0)", (1, 0), 2)
    assert (call.start_us, call.end_us, call.in_elements, call.out_elements) == (10, 30, 500, 1000)
    assert (call.nbytes, call.dtype, call.seq) == (4000, "Float", 0)


def test_the_launch_tells_what_a_nameless_kernel_is(tmp_path):
    """As with RCCL's Generic kernels, and with NCCL's before torch 2.3, where the name is that of another operation."""
    profile = Profile()
    profile.add("user_annotation", "nccl:all_reduce", 5, 20, tid=3, **{"Input Dims": [[300]], "Input type": ["float"]})
    correlation = profile.launch(9, tid=3)
    kernel = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
    profile.add("kernel", kernel, 40, 10, stream=20, correlation=correlation)
    profile.add("kernel", kernel, 60, 10, stream=20, correlation=777)
    known, unknown = record(profile, tmp_path / "a.json").calls
    assert (known.op, known.nbytes, known.in_elements) == ("all_reduce", 1200, 300)
    assert (unknown.op, unknown.nbytes) == ("unknown", None)


def test_a_parameter_record_tells_more_than_an_annotation(tmp_path):
    profile = Profile()
    said = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "BFloat16"}
    profile.add("cpu_op", "record_param_comms", 5, 20, tid=3, **said, **{"Process Group Name": "0", "Group size": 2})
    profile.add("kernel", "ncclDevKernel_Generic(x)", 40, 10, stream=20, correlation=profile.launch(9, tid=3))
    (call,) = record(profile, tmp_path / "a.json").calls
    assert (call.op, call.nbytes, call.dtype, call.group_ranks) == ("all_reduce", 128, "BFloat16", (0, 1))


def test_a_list_of_ranks_that_is_cut_short_is_not_guessed(tmp_path):
    ranks = "[0, 1, 2, ...]"
    profile = Profile(groups={"0": [0, 1]})
    profile.call("allreduce", 0, 5, **{"Process Group Ranks": ranks, "Group size": 64, "Process Group Name": "x"})
    profile.call(
        "allreduce", 9, 15,
        **{"Process Group Ranks": ranks, "Group size": 4, "Global rank start": 2, "Global rank stride": 8},
    )  # fmt: skip
    unknown, known = record(profile, tmp_path / "a.json").calls
    assert (unknown.group, unknown.group_ranks, unknown.group_size) == ("x", None, 64)
    assert known.group_ranks == (2, 10, 18, 26)


def test_the_figures_are_those_of_interval_unions(tmp_path):
    profile = (
        Profile().compute(0, 40).compute(30, 60).call("allreduce", 50, 90).call("allreduce", 80, 100).copy(120, 130)
    )
    times = rank_times(record(profile, tmp_path / "a.json"))
    assert (times.span_us, times.compute_us, times.communication_us, times.exposed_us) == (130, 60, 50, 40)
    assert (times.idle_us, times.memory_us, times.other_us, times.overlap) == (20, 10, 50, 0.2)


def test_kernels_of_the_last_step_and_without_a_launch_do_not_count(tmp_path):
    """As in HolisticTraceAnalysis: the profiler may stop before the last step's kernels end."""
    profile = (
        Profile().step(1, 0, 100).step(2, 100, 200).compute(10, 50).compute(90, 130, launched=95).compute(140, 190)
    )
    profile.add("kernel", "gemm", 200, 50, stream=7, correlation=999)
    found = record(profile, tmp_path / "a.json")
    assert found.compute == ((10, 50), (90, 130))
    assert rank_times(found).steps == 2
    assert any("leave out 2 of 4 kernels" in note for note in found.notes)


def test_nothing_is_rounded(tmp_path):
    profile = Profile().compute(0.5, 10.25).compute(20.5, 20.75).compute(30.5, 40.0)
    times = rank_times(record(profile, tmp_path / "a.json"))
    assert (times.span_us, times.compute_us, times.idle_us) == (39.5, 9.75 + 0.25 + 9.5, 20.0)


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)", "all_reduce"),
        ("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", "all_reduce"),
        ("_ZN4vllm26cross_device_reduce_2stageIfLi8EEEvPNS_8RankDataE", "all_reduce"),
        ("void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>, __half>(__half*)", "all_reduce"),
        ("void deep_ep::internode_ll::dispatch<true, 3, 7168>(void*)", "all_to_all"),
        ("userbuffers_fp16_sum_inplace_gpu_mc_rs_oop<8>(int)", "reduce_scatter"),
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "barrier"),
        ("void mscclpp::collective::allreducePacket<float>(float*)", "all_reduce"),
    ],
)  # fmt: skip
def test_other_libraries_kernels_communicate(tmp_path, kernel, op):
    found = record(Profile().compute(0, 10).compute(20, 50, name=kernel), tmp_path / "a.json")
    times = rank_times(found)
    assert (times.compute_us, times.communication_us, times.exposed_us) == (10, 30, 30)
    assert [c.op for c in found.calls] == [op]


def test_a_kernel_that_computes_and_sends_counts_as_both_and_says_so(tmp_path):
    name = "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16, 8>(x)"
    found = record(Profile().compute(0, 10).compute(20, 50, name=name), tmp_path / "a.json")
    times = rank_times(found)
    assert (times.compute_us, times.communication_us, times.exposed_us) == (40, 30, 0)
    assert any("both compute and send (flashinfer::trtllm_allreduce_fusion::" in note for note in found.notes)


def test_a_copy_to_another_gpu_communicates_and_one_on_the_gpu_does_not(tmp_path):
    profile = Profile().compute(0, 10)
    profile.add("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 10, 5, stream=7, correlation=90)
    profile.add("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 20, 5, stream=7, correlation=91)
    times = rank_times(record(profile, tmp_path / "a.json"))
    assert (times.communication_us, times.memory_us) == (5, 5)


def test_a_triton_kernel_named_after_a_collective_only_computes(tmp_path):
    found = record(Profile().compute(0, 10, name="triton_red_fused_all_reduce_add_0"), tmp_path / "a.json")
    assert found.compute == ((0, 10),) and not found.communication


def test_times_that_are_no_times_are_left_out(tmp_path):
    profile = Profile().compute(0, 10)
    for ts, dur in ((5, -3), (float("nan"), 3), (5, None), ("x", 1)):
        profile.add("kernel", "gemm", ts, dur, stream=7, correlation=1)
    profile.add("kernel", "gemm", "20", "5", stream=7, correlation=1)
    found = record(profile, tmp_path / "a.json")
    assert found.compute == ((0, 10), (20, 25))
    assert any("4 events have no time" in note for note in found.notes)


def test_a_kernel_that_is_twice_in_the_file_counts_once(tmp_path):
    profile = Profile().call("allreduce", 0, 10)
    profile.events.append(profile.events[-1])
    found = record(profile, tmp_path / "a.json")
    assert len(found.calls) == 1 and any("twice" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "rank", "source"),
    [
        ("trace_rank_3.json", 3, "the file's name"),
        ("host.r12.json.gz", 12, "the file's name"),
        ("a7.json", 0, "unknown"),
    ],
)
def test_the_rank_is_in_the_file_or_in_its_name_or_unknown(tmp_path, name, rank, source):
    profile = Profile(0).compute(0, 5)
    profile.header.pop("distributedInfo")
    found = record(profile, tmp_path / name)
    assert (found.rank, found.rank_from) == (rank, source)
    assert rank_times(found).rank == (None if source == "unknown" else rank)


def test_without_kernels_the_calls_have_no_times(tmp_path):
    said = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "dtype": "Float"}
    profile = Profile().add("cpu_op", "record_param_comms", 5, 20, **said).add("cpu_op", "aten::mm", 0, 50)
    profile.add("cpu_op", "record_param_comms", 30, 5, **{"Collective name": "wait"})
    found = record(profile, tmp_path / "a.json")
    assert [(c.op, c.start_us, c.nbytes) for c in found.calls] == [("all_reduce", None, 256)]
    assert any("does not say how long" in note for note in found.notes)


def test_a_bare_array_of_events_is_a_profile(tmp_path):
    path = tmp_path / "rank1.json"
    path.write_text(json.dumps(Profile().compute(0, 5).events))
    assert read([path]).records[0].compute == ((0, 5),)


def long_profile(count=4000):
    profile = Profile()
    for n in range(count):
        profile.compute(10 * n, 10 * n + 5)
    return profile


def test_what_stands_before_the_end_of_a_broken_file_is_read(tmp_path):
    text = long_profile().text().encode()
    for name, cut, words in (
        ("json", text[: len(text) // 2], "the JSON ends in the middle"),
        ("gz", gzip.compress(text, mtime=0)[:-4000], "the gzip file ends in the middle"),
    ):
        path = tmp_path / f"cut.{name}"
        path.write_bytes(cut)
        (found,) = read([path]).records
        assert len(found.compute) > 1000 and found.rank_from == "the file"
        assert any(note.startswith(words) for note in found.notes)


def test_an_event_that_is_not_json_is_skipped(tmp_path):
    text = Profile().compute(0, 5, name="one").compute(10, 15, name="two").compute(20, 25, name="three").text()
    path = tmp_path / "rank0.json"
    path.write_text(text.replace('"two"', '"t"w"o"'))
    (found,) = read([path]).records
    assert found.compute == ((0, 5), (20, 25))
    assert any("1 events are not JSON" in note for note in found.notes)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"\x7fELF\x02\x01\x00garbage", "its format is not known"),
        (gzip.compress(b"", mtime=0)[:10], "it is packed, and nothing of it can be unpacked"),
        (b'{"schemaVersion": 1, "traceEvents": [', "the JSON ends in the middle"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "it holds no event with a time"),
        (b'{"schemaVersion": 1, "traceEvents": 3}', "it holds no event with a time"),
        (b'{"ph" 1', "the JSON is damaged"),
        (b"[" * 100_000 + b'"ph"', "its format is not known"),
    ],
)
def test_a_file_without_a_job_gets_one_sentence(tmp_path, content, why):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    found, said = read_file(path)
    assert not found and (said.startswith(why) or said in ("the JSON ends in the middle", why))
    with pytest.raises(ProfileError, match="no file says anything of a job"):
        read([path])


def test_large_files_are_read_in_processes_with_the_same_result(tmp_path, monkeypatch):
    from allranks.jobs import reading

    paths = [Profile(rank).compute(0, 5 + rank).save(tmp_path / f"{rank}.json") for rank in (0, 1)]
    here = read(paths)
    monkeypatch.setattr(reading, "PARALLEL_FROM", 0)
    monkeypatch.setattr(reading, "_cores", lambda: 2)
    assert read(paths) == here


def test_the_text_of_a_file_is_never_whole_in_memory(tmp_path):
    """20 MB of events that say nothing take a few MB."""
    import tracemalloc

    row = json.dumps(
        {"ph": "X", "cat": "python_function", "name": "f" * 200, "ts": 1, "dur": 1, "args": {"Python id": 1}}
    )
    path = tmp_path / "rank0.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + ",\n".join([row] * 70_000) + "]}")
    tracemalloc.start()
    kineto.read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 20e6 and most < 12 << 20


def explained(profile, path):
    from allranks.jobs import explain

    return explain([profile.save(path)])


@pytest.mark.parametrize("world", [10**9, 10**30, -3, 0])
def test_a_world_size_that_can_not_be_is_said_and_takes_no_memory(tmp_path, world):
    """Ranks that are missing are listed: a damaged number would fill the memory."""
    one = record(Profile(world=2).call("allreduce", 10, 30), tmp_path / "a.json")
    assert one.world_size == 2
    profile = Profile().call("allreduce", 10, 30)
    profile.header["distributedInfo"]["world_size"] = world
    found = explained(profile, tmp_path / "b.json")
    assert found.job.world_size is None and found.job.missing == ()


def test_a_group_too_large_to_be_is_not_listed(tmp_path):
    said = {"Group size": 10**9, "Global rank start": 0, "Global rank stride": 1, "Process Group Ranks": "[0, 1, ...]"}
    said["Process Group Name"] = "9"
    (call,) = record(Profile().call("allreduce", 10, 30, **said), tmp_path / "a.json").calls
    assert call.group_ranks is None


def test_a_rank_that_can_not_be_is_refused(tmp_path):
    profile = Profile(rank=10**30).call("allreduce", 10, 30)
    with pytest.raises(ProfileError, match="no job has such a rank"):
        record(profile, tmp_path / "a.json")


@pytest.mark.parametrize(("start", "length"), [(1e300, 5), (0, 1e308), (0, 10**40)])
def test_times_beyond_all_clocks_are_left_out(tmp_path, start, length):
    profile = Profile().call("allreduce", 10, 30).compute(0, 10)
    profile.add("kernel", "gemm", start, length, stream=7)
    assert record(profile, tmp_path / "a.json").span[1] < 1e6


def test_what_a_file_that_is_cut_off_lacks_is_no_proof(tmp_path):
    """Without a call in what is left, it is not sure that the ranks do not communicate."""
    whole = Profile().compute(0, 100).compute(200, 300).compute(400, 500).save(tmp_path / "a.json")
    (cause,) = [c for c in _causes(whole) if c.kind == "no_communication"]
    assert cause.sure == 1
    text = whole.read_text()
    (tmp_path / "b.json").write_text(text[: text.rindex("}", 0, text.rindex("]"))])
    (cause,) = [c for c in _causes(tmp_path / "b.json") if c.kind == "no_communication"]
    assert cause.sure < 0.5 and "not whole" in cause.evidence


def _causes(path):
    from allranks.jobs import explain

    return explain([path]).causes


def test_an_event_nested_without_end_loses_no_other(tmp_path):
    event = '{"ph":"X","cat":"kernel","name":"k","ts":%d,"dur":2}'
    deep = f'{{"traceEvents":[{event % 1},{"[" * 300_000},{event % 4}]}}'
    (tmp_path / "rank0.json").write_text(deep)
    [record], why = read_file(tmp_path / "rank0.json")
    assert not why and list(record.compute) == [(1, 3), (4, 6)]
    assert "1 events are not JSON and were left out" in record.notes


def test_two_devices_of_one_process_are_told_apart(tmp_path):
    profile = Profile()
    del profile.header["distributedInfo"]
    for device, compute, call in ((0, (0, 400), (400, 800)), (1, (400, 1000), (400, 800))):
        for name, (start, end), stream in (("gemm", compute, 7), ("ncclKernel_AllReduce_RING_LL_Sum_float", call, 20)):
            profile.add("kernel", name, start, end - start, tid=stream, pid=device, device=device, stream=stream,
                        correlation=profile.launch(0))  # fmt: skip
    records = read(profile.save(tmp_path / "both.json")).records
    assert [(r.rank, rank_times(r).exposed_us) for r in records] == [(0, 400), (1, 0)]


def test_calls_of_unknown_sizes_are_not_compared_as_if_they_were_alike(tmp_path):
    profile = Profile(world=4)
    for start, end in ((0, 100), (200, 1200)):
        profile.add("kernel", "ncclDevKernel_AllGather_RING_LL", start, end - start, tid=20, pid=0, stream=20, device=0,
                    correlation=profile.launch(start))  # fmt: skip
    assert "same size" not in str(explain(profile.compute(1200, 2500).save(tmp_path / "rank0.json")))
