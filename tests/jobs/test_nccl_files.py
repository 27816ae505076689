"""What NCCL's Inspector and RAS write, as their sources print it (NCCL's plugins/profiler/inspector and src/ras)."""

from __future__ import annotations

import json

import pytest
from allranks.jobs.desync import desync
from allranks.jobs.job import Job, ProfileError
from allranks.jobs.nccl_files import is_nccl_file, read_nccl


def finished(number, rank=2, verbose=True, **header):
    perf = {
        "coll": "ReduceScatter",
        "coll_sn": number,
        "coll_msg_size_bytes": 2147483648,
        "coll_exec_time_us": 41057,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 418.4,
        "coll_busbw_gbs": 366.1,
    }
    if verbose:
        kernels = [{"channel_id": c, "kernel_start_ts": 1000 + c, "kernel_stop_ts": 5000 + c} for c in range(2)]
        perf["event_trace_ts"] = {"coll_start_ts": 900, "coll_stop_ts": 910, "kernel_events": kernels}
    meta = {"inspector_output_format_version": "v4.0", "hostname": "node7", "pid": 11}
    return json.dumps(
        {
            "header": {"id": "0xe62d", "rank": rank, "n_ranks": 8, "nnodes": 1, **header},
            "metadata": meta,
            "coll_perf": perf,
        }
    )


def test_the_inspectors_lines_are_calls():
    text = "\n".join([finished(1), finished(2), finished(1, rank=0, id="0xaa", n_ranks=2)])
    assert is_nccl_file(text.encode())
    [record] = read_nccl("host.log", text.encode())
    assert (record.rank, record.world_size, record.source) == (2, 8, "nccl inspector")
    call = record.calls[1]
    assert (call.op, call.group, call.seq, call.nbytes) == ("reduce_scatter", "0xe62d", 2, 2147483648)
    assert (call.start_us, call.end_us) == (1000, 5001)
    assert record.facts["exec_us"] == {"reduce_scatter": 3 * 41057}


def test_without_times_and_with_a_torn_end_it_says_so():
    text = finished(1, verbose=False) + "\n" + finished(2)[:50]
    [record] = read_nccl("host.log", text.encode())
    assert record.calls[0].start_us is None
    assert "NCCL_INSPECTOR_DUMP_VERBOSE" in record.notes[0]
    assert "ends in the middle" in record.notes[1]
    with pytest.raises(ProfileError, match="no finished collective"):
        read_nccl("host.log", b'{"header": {}, "metadata": {}}')


def ras(counts, missing=()):
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks = [
        {
            "rank": r,
            "host": "10.0.0.1",
            "pid": 100 + r,
            "status": status,
            "collective_counts": {"AllReduce": c, "Recv": 0},
        }
        for r, c in counts.items()
    ]
    gone = [
        {"rank": r, "host": "10.0.0.2", "status": {"unresponsive": True, "considered_dead": dead}}
        for r, dead in missing
    ]
    comm = {"hash": "0x1", "size": len(ranks) + len(gone), "ranks": ranks, "missing_ranks": gone}
    return json.dumps({"nccl_version": "2.28.3", "communicators_count": 1, "communicators": [comm]}).encode()


def test_ras_names_who_does_not_answer_and_who_is_behind():
    data = ras({0: 900, 1: 899, 2: 900}, missing=[(3, True)])
    assert is_nccl_file(data)
    job = Job(tuple(read_nccl("ras.json", data)))
    assert job.missing == (3,)
    dead, behind = desync(job)
    assert (dead.kind, dead.rank, dead.evidence) == ("missing_rank", 3, "RAS considers it dead")
    assert (behind.kind, behind.rank) == ("desync", 1)
    assert "rank 1: 899, the others up to 900" in behind.evidence


def test_of_few_ranks_that_are_ahead_ras_says_their_count_and_the_others():
    [cause] = desync(Job(tuple(read_nccl("ras.json", ras({0: 640, 1: 640, 2: 641, 3: 640})))))
    assert cause.cause.startswith("Rank 2 made more calls") and "rank 2: 641, the others 640, when" in cause.evidence


def test_ras_text_is_refused_with_the_way_to_json():
    with pytest.raises(ProfileError, match="ncclras -f json"):
        read_nccl("ras.txt", b"NCCL version 2.28.3 compiled with CUDA 12.8\nCUDA runtime version 12080\n")


def test_ras_text_is_read_behind_a_shells_line_and_without_its_head():
    table = "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    #  in group  per comm\n"
    table += "    0         1         2       3-4         8         7   RUNNING  INCOMPLETE\n\n#0-0 (1b) INCOMPLETE\n"
    head = "$ ncclras -v\nNCCL version 2.28.3 compiled with CUDA 13.0\n\n"
    for text in (
        head + table + "  Rank 7 -- GPU 3 managed by process 9 on node a\n",
        table + "  The missing rank: 7\n",
    ):
        assert is_nccl_file(text.encode())
        [cause] = desync(Job(tuple(read_nccl("ras.txt", text.encode()))))
        assert (cause.kind, cause.rank) == ("missing_rank", 7)
