"""Logs: the watchdog's texts of many ranks, NCCL's own lines, errors of ranks, and nvidia-smi topo -m."""

import os

import pytest
from allranks.jobs import Call, Job, ProfileError, RankRecord, explain, reading
from allranks.jobs.analysis import rank_times
from allranks.jobs.formats import WORK as HAS_TIMES
from allranks.jobs.formats import Format

HUNG = (
    "[rank{r}]:[E1101 10:00:00.0 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000) ran for 600{r}21 milliseconds before timing out.\n"
)
STATUS = (
    "[rank{r}]:[E1101 10:00:01.0 ProcessGroupNCCL.cpp:1664] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Exception (either an error or timeout) "
    "detected by watchdog at work: {seq}, last enqueued NCCL work: {last}, last completed NCCL work: {done}.\n"
)


def told(tmp_path, text, name="job.log"):
    (tmp_path / name).write_text(text)
    return explain(tmp_path / name)


def hung(r, seq=7, op="ALLREDUCE", n=100):
    return HUNG.format(r=r, seq=seq, op=op, n=n)


def test_a_rank_that_called_something_else_is_named(tmp_path):
    found = told(tmp_path, "epoch 1\n" + hung(0) + "loss 3.2\n" + hung(2, op="BROADCAST") + hung(1))
    assert (found.causes[0].kind, found.causes[0].rank) == ("desync", 2)
    assert "broadcast" in found.causes[0].cause and "call 7" in found.causes[0].evidence


def test_of_a_rank_whose_text_has_only_a_number_nothing_is_said_to_be_alike(tmp_path):
    status = [STATUS.format(r=r, seq=7, last=9, done=6) for r in (2, 0, 1)]
    first = told(tmp_path, "".join(status) + hung(0) + hung(1)).causes[0]
    assert "alike on ranks 0 and 1; of rank 2 only the call's number is told" in first.evidence
    assert "program is right" not in first.evidence


def test_ranks_too_far_apart_for_one_order_of_calls_are_told(tmp_path):
    text = hung(0, seq=40, op="_ALLGATHER_BASE") + STATUS.format(r=0, seq=40, last=47, done=39)
    text += hung(3, seq=42, op="ALLREDUCE", n=4) + STATUS.format(r=3, seq=42, last=45, done=41)
    first = told(tmp_path, text).causes[0]
    assert first.kind == "desync" and first.cause.startswith(
        "Rank 3 went on past call 40 of the group of all ranks, all_"
    )
    assert "call 41 has ended there" in first.evidence
    near = text.replace("Num=42", "Num=41").replace("work: 42", "work: 41").replace("work: 41.", "work: 40.")
    assert not any("went on past" in cause.cause for cause in told(tmp_path, near).causes)


def test_a_text_into_which_another_process_wrote_is_read(tmp_path):
    torn = [
        hung(r, n=n).replace("operation timeout", "operatA WARNING` of another process.ion timeout")
        for r, n in ((0, 8), (1, 9))
    ]
    assert "another size" in told(tmp_path, "".join(torn)).causes[0].cause


def test_a_call_whose_groups_line_is_cut_is_of_the_near_calls_group(tmp_path):
    text = hung(0, seq=16) + STATUS.format(r=0, seq=16, last=16, done=15) + hung(1, seq=17, n=1)
    assert told(tmp_path, text).causes[0].cause.startswith("Rank 0 never made call 17 of the group of all ranks")


def test_a_size_that_differs_is_named(tmp_path):
    found = told(tmp_path, "".join(hung(r, n=90 if r == 1 else 100) for r in range(4)))
    assert found.causes[0].rank == 1 and "90 elements" in found.causes[0].cause


def test_the_rank_whose_last_call_is_earlier_did_not_come(tmp_path):
    found = told(tmp_path, hung(0, seq=9) + hung(1, seq=8) + hung(2, seq=9))
    assert found.causes[0].kind == "missing_rank" and found.causes[0].rank == 1
    assert "never made call 9" in found.causes[0].cause


def test_the_last_enqueued_work_counts_too(tmp_path):
    named = "[PG ID 0 PG GUID 0(default_pg) Rank "
    text = "".join(hung(r, seq=9).replace(f"[Rank {r}] Watch", f"{named}{r}] Watch") for r in (0, 2))
    text += STATUS.format(r=1, seq=8, last=8, done=8)
    found = told(tmp_path, text)
    assert found.causes[0].rank == 1 and "call 9 of the group of all ranks" in found.causes[0].cause


def test_an_error_of_a_rank_comes_before_the_ranks_that_waited(tmp_path):
    text = (
        hung(0)
        + "[rank2]: Traceback (most recent call last):\n[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n"
        + hung(1)
    )
    found = told(tmp_path, text)
    assert (found.causes[0].kind, found.causes[0].rank) == ("failed_rank", 2)
    assert "OutOfMemoryError" in found.causes[0].evidence and not any(c.kind == "hang" for c in found.causes)


def test_a_log_of_each_rank_is_one_job(tmp_path):
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(hung(rank, op="ALLGATHER" if rank == 1 else "ALLREDUCE"))
    found = explain(tmp_path)
    assert found.causes[0].rank == 1 and not found.skipped


def test_one_ranks_text_alone_says_what_is_missing(tmp_path):
    found = told(tmp_path, hung(0))
    assert (
        found.causes[0].kind == "hang"
        and "logs of the other ranks" in found.causes[0].evidence
        and "600 s" in found.causes[0].evidence
    )


def test_older_texts_have_a_shape_and_no_number(tmp_path):
    old = "[E ProcessGroupNCCL.cpp:587] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, TensorShape=[2, 3], Timeout(ms)=1800000) ran for 1800116 milliseconds before timing out.\n"
    found = told(tmp_path, old)
    assert found.causes[0].kind == "hang" and "broadcast of 6" in found.causes[0].cause


WORK = (
    "[rank{r}]:[E822 16:31:17.1 ProcessGroupNCCL.cpp:2271] [PG ID 4 PG GUID {group} Rank {r}]  failure detected by watchdog at work "
    "sequence id: {seq} PG status: last enqueued work: {last}, last completed work: {done}\n"
)


def waits(r, seq, last, group="67", **call):
    return hung(r, seq=seq, **call) + WORK.format(r=r, group=group, seq=seq, last=last, done=seq - 1)


def test_a_rank_that_enqueued_the_call_is_not_said_to_be_absent(tmp_path):
    text = waits(0, 31, 90, op="BROADCAST") + "".join(waits(r, 30, 90, op="BROADCAST") for r in (1, 2, 3))
    first = told(tmp_path, text).causes[0]
    assert first.kind == "hang" and "never made" not in first.cause
    assert (
        "call 30 of group 67, broadcast of 100" in first.cause and "ranks 1, 2 and 3 did not finish it" in first.cause
    )
    assert "rank 0 finished it and waits in call 31" in first.evidence and "up to 90" in first.evidence


def test_calls_that_were_enqueued_behind_the_hang_differ_and_mean_nothing(tmp_path):
    first = told(tmp_path, waits(0, 30, 90) + waits(1, 30, 84)).causes[0]
    assert first.kind == "hang" and "The 2 ranks that have a text here made call 30" in first.cause


def test_a_rank_that_did_not_enqueue_the_call_is_named_with_its_group(tmp_path):
    text = waits(0, 30, 31) + waits(2, 30, 31) + WORK.format(r=1, group="67", seq=29, last=29, done=29)
    first = told(tmp_path, text).causes[0]
    assert (first.kind, first.rank) == ("missing_rank", 1) and "never made call 30 of group 67" in first.cause


def test_a_status_line_may_stand_before_its_timeout_or_be_missing(tmp_path):
    before = WORK.format(r=0, group="5(tp)", seq=30, last=30, done=29) + hung(0, seq=30)
    found = told(tmp_path, before + hung(1, seq=30))
    assert {(c.rank, c.group) for c in found.job.calls} == {(0, "5 tp"), (1, "5 tp")}


def test_each_rank_is_given_its_own_call(tmp_path):
    text = waits(0, 50, 50, group="3(tp)") + waits(2, 8, 8, group="1(dp)", op="_REDUCE_SCATTER_BASE", n=6)
    first = told(tmp_path, text).causes[0]
    assert "Rank 0 waited in call 50 of group tp, all_reduce of 100 elements" in first.cause
    assert "rank 2 waited in call 8 of group dp, reduce_scatter of 6 elements" in first.cause


def test_the_lowest_of_a_ranks_calls_is_the_one_that_waits(tmp_path):
    found = told(tmp_path, hung(0, seq=9) + hung(0, seq=6) + hung(0, seq=8) + hung(7, seq=2))
    assert "Rank 0 waited in call 6, all_reduce" in found.causes[0].cause
    assert "rank 7 waited in call 2, all_reduce" in found.causes[0].cause
    absent = found.causes[1]
    assert absent.kind == "missing_rank" and absent.sure < 0.5 and "never enqueued" in absent.evidence


STUCK = (
    "[rank{r}]:[E626 05:14:36.3 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank {r}] ProcessGroupNCCL's watchdog got stuck "
    "for 480 seconds without making progress in monitoring enqueued collectives.\n"
)


@pytest.mark.parametrize("ranks", [(5, 7), (3,)])
def test_a_watchdog_that_got_stuck_is_the_suspect(tmp_path, ranks):
    found = told(tmp_path, waits(2, 40, 41, group="1") + "".join(STUCK.format(r=r) for r in ranks))
    assert found.causes[0].rank == (3 if ranks == (3,) else None) and "got stuck" in found.causes[0].cause
    assert all(str(r) in found.causes[0].cause for r in ranks) and "480 s" in found.causes[0].evidence
    absent = next(c for c in found.causes if c.kind == "missing_rank")
    assert absent.sure < 0.5 and not any(f"rank {r}" in absent.cause for r in ranks)


def test_the_one_rank_without_a_text_may_be_alive(tmp_path):
    first = told(tmp_path, "".join(waits(r, 30, 30, group="1", op="GATHER") for r in (1, 2, 3))).causes[0]
    assert (first.kind, first.rank) == ("missing_rank", 0) and first.sure == 0.7
    assert "alive and never enqueued" in first.evidence and "ranks 1, 2 and 3 wait in call 30" in first.evidence


def test_a_group_whose_members_no_line_names_is_not_said_to_be_whole(tmp_path):
    oom = "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n"
    found = told(tmp_path, oom + "".join(waits(r, 30, 32, group="1") for r in (0, 1, 2)))
    assert found.causes[0].rank == 3 and not any("Every rank" in c.cause for c in found.causes)


INFO = """a:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>
a:1:1 [0] NCCL INFO Using network IB
a:1:1 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5
a:1:1 [0] NCCL INFO Channel 00/16 :    0   1   2   3
a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
a:1:1 [0] NCCL INFO Channel 00/0 : 3[3] -> 0[0] [receive] via NET/IB/0/GDRDMA
a:1:1 [0] NCCL INFO comm 0x55 rank 0 nRanks 4 nNodes 2 localRanks 2 - Init COMPLETE
a:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 1 proto 2 channel{Lo..Hi}={0..15}
a:1:1 [0] misc/socket.cc:50 NCCL WARN socketStartConnect: Connect to 10.0.0.2 failed
"""


def test_nccls_choices_and_warnings_are_told(tmp_path):
    found = told(tmp_path, INFO)
    words = " ".join(found.said)
    for part in ("NCCL 2.21.5", "network: IB over mlx5_0, mlx5_1", "ring of channel 0: 0 1 2 3", "1 by P2P/CUMEM", "AllReduce was done by ring with simple",
                 "NCCL_IB_HCA=mlx5", "NCCL warns: socketStartConnect"):  # fmt: skip
        assert part in words, words
    assert not any(c.kind == "wrong_interface" for c in found.causes)


def test_a_log_that_says_nothing_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(ProfileError, match="no line of it is of a kind that is read"):
        told(tmp_path, "NCCL INFO\n")


TOPO = """\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-31\t0
GPU1\tNV12\t X \tSYS\tSYS\tPXB\t0-31\t0
GPU2\tSYS\tSYS\t X \tNV12\tSYS\t32-63\t1
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t32-63\t1
NIC0\tPXB\tPXB\tSYS\tSYS\t X
"""


def test_the_links_of_a_machine_are_told(tmp_path):
    words = " ".join(told(tmp_path, TOPO, "topo.txt").said)
    assert "4 GPUs; pairs: 4 by SYS, across CPU sockets, 2 by 12 NVLinks" in words
    assert "GPU2, GPU3: the nearest card is behind a CPU" in words


def test_a_second_machine_is_not_told_the_fault_of_the_first(tmp_path):
    healthy = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n"
    (tmp_path / "one.txt").write_text(TOPO)
    (tmp_path / "two.txt").write_text(TOPO + healthy)
    one, two = (reading.read_file(tmp_path / name)[0][0].facts for name in ("one.txt", "two.txt"))
    assert two["said"] == (*one["said"], "2 GPUs; pairs: 1 by 18 NVLinks")
    assert two["bad_links"] == one["bad_links"]


def test_a_pipe_does_not_hold_up_the_others(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "job.log").write_text(hung(0) + hung(1, seq=6))
    found = explain([tmp_path / "pipe", tmp_path / "job.log"])
    assert found.causes[0].rank == 1 and "no ordinary file" in found.skipped[0]["why"]


def test_a_reader_that_fails_loses_no_other_file(tmp_path, monkeypatch):
    def fails(path):
        raise IndexError("in the middle")

    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    (tmp_path / "job.log").write_text(hung(0) + hung(1, seq=6))
    broken = Format("kineto", lambda path, head: head.startswith(b"{"), fails)
    monkeypatch.setattr(reading, "FORMATS", (broken, *reading.FORMATS))
    found = explain(tmp_path)
    assert found.causes[0].rank == 1 and "its reader failed: IndexError" in found.skipped[0]["why"]


def test_one_row_says_of_a_new_reader_that_its_records_have_times(monkeypatch):
    record = RankRecord(0, "a", "mine", compute=((0.0, 4.0),), communication=((3.0, 6.0),), span=(0.0, 10.0))
    assert rank_times(record) is None
    mine = Format("mine", lambda path, head: False, lambda path: [], {"mine": HAS_TIMES})
    monkeypatch.setattr(reading, "FORMATS", (*reading.FORMATS, mine))
    assert rank_times(record).exposed_us == 2.0


def recorded(rank, done, started, last):
    """What a recorder says of a rank that made `last` broadcasts, of which `done` ended and `started` run."""
    states = ["completed"] * done + ["started"] * started + ["scheduled"] * (last - done - started)
    calls = (Call(rank, "broadcast", group="67 ep", seq=i, in_elements=4, state=s) for i, s in enumerate(states, 1))
    return RankRecord(rank, f"rank{rank}", "flight recorder", calls=tuple(calls), groups={"67 ep": (0, 1, 2)})


def test_of_recorded_calls_the_lowest_unfinished_one_is_named_with_its_state():
    first = explain(Job((recorded(0, 5, 1, 9), recorded(1, 4, 1, 9), recorded(2, 4, 0, 9)))).causes[0]
    assert "call 5 of group ep" in first.cause and "ranks 1 and 2 did not finish it" in first.cause
    for part in ("started on rank 1", "scheduled on rank 2", "rank 0 finished it and waits in call 6", "up to 9"):
        assert part in first.evidence


def test_a_recorded_rank_that_is_behind_is_absent_though_its_last_call_has_not_ended():
    first = explain(Job((recorded(0, 4, 1, 5), recorded(1, 3, 1, 4), recorded(2, 4, 1, 5)))).causes[0]
    assert (first.kind, first.rank) == ("missing_rank", 1) and "never made call 5" in first.cause
    assert "which has not ended there" in first.evidence


def block(*exits, at=None):
    """What torchrun prints: of each rank how it ended, the first one as the root cause; `at` are the seconds."""
    entry = "  rank      : {0} (local_rank: {0})\n  exitcode  : {1} (pid: 43{0})\n  error_file: <N/A>\n"
    clock = "  time      : 2026-06-08_19:04:{0}\n  host      : a\n"
    clocks = [clock.format(second) for second in at] if at else [""] * len(exits)
    root, *rest = [when + entry.format(*one) for when, one in zip(clocks, exits, strict=True)]
    return f"train.py FAILED\nFailures:\n[1]:\n{''.join(rest)}Root Cause (first observed failure):\n[0]:\n{root}"


@pytest.mark.parametrize(
    ("code", "words"), [(1, "exit code 1"), (-9, "SIGKILL"), (-11, "SIGSEGV"), (137, "SIGKILL"), (2, "exit code 2")]
)
def test_the_launchers_root_cause_is_the_culprit(tmp_path, code, words):
    first = told(tmp_path, block((3, code), (0, -15), (1, -15))).causes[0]
    assert (first.kind, first.rank) == ("failed_rank", 3) and words in first.evidence
    assert "ranks 0 and 1 ended by signal 15, which follows from it" in first.evidence


def test_of_ranks_that_failed_in_one_second_none_is_called_the_first(tmp_path):
    found = told(tmp_path, block((0, 1), (2, 1), (3, 1), (1, -15), at=(45, 45, 45, 45)))
    [first] = found.causes
    assert (first.cause, first.rank) == ("Ranks 0, 2 and 3 failed in the same second.", None)
    assert "first error above" in first.evidence and "follows from it; rank" not in first.evidence
    assert "rank 1 ended by signal 15" in first.evidence
    later = told(tmp_path, block((0, 1), (2, 1), at=(45, 48))).causes[0]
    assert later.rank == 0 and "rank 2 ended by exit code 1" in later.evidence
    known = told(tmp_path, "[rank2]: ValueError: bad batch\n" + block((2, 1), (0, 1), at=(45, 45))).causes[0]
    assert known.rank == 2 and "rank 0 ended by exit code 1, which follows from it" in known.evidence


def test_a_report_that_a_logger_made_one_line_each_is_read_though_its_root_is_cut_off(tmp_path):
    line = "  | 2024-08-23T22:22:58.879Z | [{0}]: time : 2024-08-23_22:22:58 host : a rank : {0} (local_rank: {0}) "
    line += "exitcode : -6 (pid: 18{0}) error_file: <N/A> traceback : Signal 6 (SIGABRT) received by PID 18{0}\n"
    text = (
        "".join(line.format(r) for r in range(2, 8))
        + "  | 2024-08-23T22:22:58.880Z | Root Cause (first observed failure):\n"
    )
    [first] = told(tmp_path, text).causes
    assert first.cause == "Ranks 2, 3, 4, 5, 6 and 7 failed in the same second."
    assert first.rank is None and "a watchdog ends its own process so" in first.evidence


def test_the_first_failure_of_one_machine_is_not_called_that_of_the_job(tmp_path):
    text = "[2024-02-09 09:09:15,164] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) "
    [first] = told(tmp_path, text + "local_rank: 3 (pid: 170581) of binary: /usr/bin/python3.10\n").causes
    assert "local rank 3 failed, with exit code 1: the first that its machine's torchrun saw" in first.cause
    assert "on another machine one may have failed earlier" in first.evidence and first.sure <= 0.6


@pytest.mark.parametrize("code", [-6, -15, 1, 134])
def test_an_end_that_follows_from_a_timeout_is_no_cause(tmp_path, code):
    found = told(tmp_path, hung(0) + hung(1) + block((0, code), (1, -6)))
    assert found.causes[0].kind == "hang" and not any(c.kind == "failed_rank" for c in found.causes)


def test_an_abort_without_a_timeout_is_a_failure(tmp_path):
    first = told(tmp_path, block((2, -6), (0, -15))).causes[0]
    assert (first.kind, first.rank) == ("failed_rank", 2) and "SIGABRT" in first.evidence


def test_ranks_that_only_got_a_signal_are_not_said_to_have_failed(tmp_path):
    found = told(tmp_path, block((1, -15), (0, -15)))
    assert "nothing here says which" in found.causes[0].cause
    assert all(c.kind != "failed_rank" and c.rank is None for c in found.causes)


RESTART = "W0321 02:08:00.0 1 torch/distributed/elastic/agent/server/api.py:900] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"


@pytest.mark.parametrize("clock", ["10:00", "12:30"])
def test_the_last_attempt_is_the_one_that_is_judged(tmp_path, clock):
    again = (hung(0, seq=32) + hung(1, seq=31, op="BROADCAST") + hung(2, seq=32)).replace("10:00", clock)
    found = told(tmp_path, hung(0, seq=58) + hung(1, seq=58) + (RESTART if clock == "10:00" else "") + again)
    assert {(c.rank, c.seq) for c in found.job.calls} == {(0, 32), (1, 31), (2, 32)}
    assert "2 attempts" in " ".join(found.said) and not any("58" in c.cause + c.evidence for c in found.causes)


def test_a_log_that_ends_at_the_restart_is_of_the_attempt_before(tmp_path):
    found = told(tmp_path, hung(0) + hung(1, op="BROADCAST") + RESTART)
    assert found.causes[0].kind == "desync"


def test_a_number_that_falls_at_one_moment_is_no_restart(tmp_path):
    found = told(tmp_path, hung(0, seq=9) + hung(0, seq=6) + hung(1, seq=6))
    assert {(c.rank, c.seq) for c in found.job.calls} == {(0, 9), (0, 6), (1, 6)}


@pytest.mark.parametrize("later", [True, False])
def test_an_error_counts_in_the_attempt_in_which_it_was_printed(tmp_path, later):
    oom = "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n"
    once, again = hung(0, seq=58) + hung(1, seq=58), (hung(0, seq=32) + hung(1, seq=32)).replace("10:00", "12:30")
    found = told(tmp_path, once + again + oom if later else oom + once + again)
    assert any(c.kind == "failed_rank" for c in found.causes) is later


WARN = "n1:1:2 [0] misc/socket.cc:484 NCCL WARN {}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "NET/IB : Got completion from peer 10.2.1.3<5> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
            "never answered",
        ),
        ("socketStartConnect: Connect to 172.17.0.1<39921> failed : Connection refused", "could not connect"),
        ("Call to connect returned No route to host", "could not connect"),
        (
            "Call to posix_fallocate failed : No space left on device",
            "shared memory of the machine or container is full",
        ),
        (
            "Error while creating shared memory segment /dev/shm/nccl-x : Permission denied",
            "could not make its segment",
        ),
        ("Bootstrap : no socket interface found", "no network interface"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "same GPU"),
        ("something new", "no rule for"),
    ],
)
def test_each_warning_is_a_cause_with_what_to_look_at(tmp_path, text, words):
    [cause] = told(tmp_path, WARN.format(text)).causes
    assert cause.kind == "nccl_error" and words in cause.cause and text in cause.evidence


XLA = "2024-01-11 05:43:11.7: E external/xla/xla/service/gpu/nccl_utils.cc:219] INTERNAL: nccl_utils.cc:216: "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NCCL operation async_err failed: remote process exited or there was a network error", "connection to another"),
        ("NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: unhandled cuda error (run with NCCL_DEBUG=INFO "
         "for details). Last NCCL warning(error) log entry (may be unrelated) 'Cuda failure 2 'out of memory''.; current "
         "tracing scope: all-reduce-start.285", "could not get memory"),
        ("NCCL operation ncclGroupEnd() failed: unhandled cuda error", "this text does not say why"),
        ("NCCL operation ncclGetUniqueId(&id) failed: Unable to load NCCL library. Multi-GPU collectives will not work.; "
         "current tracing scope: all-reduce-start", "did not find NCCL's library"),
    ],
)  # fmt: skip
def test_a_call_of_nccl_that_failed_in_xla_is_read(tmp_path, text, words):
    [cause] = told(tmp_path, XLA + text + "\n").causes
    assert cause.kind == "nccl_error" and words in cause.cause and "tracing scope" not in cause.evidence


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 192.0.2.1:1234",
         "hang", "it tried 192.0.2.1:1234;"),
        ("[E socket.cpp:793] [c10d] The client socket has timed out after 60s while trying to connect to (IP1, 2222).",
         "hang", "it tried IP1:2222;"),
        ("[E1 socket.cpp:9] [c10d] The client socket has timed out after 45000ms while trying to connect to (n9, 2222).",
         "hang", "A process did not reach the place where the ranks meet, in 45 s"),
        ("RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: k:1 (world_size=6, "
         "worker_count=5, timeout=0:30:00)", "missing_rank", "Rank 3 waited for others at the start of a group"),
        ("[INFO] - Waiting in store based barrier to initialize process group for rank: 2, key: k:1 (world_size=6, "
         "worker_count=4, timeout=0:30:00)", "missing_rank", "Rank 2 waited for others at the start of a group"),
        ('E {"message": "RendezvousConnectionError: The connection to the C10d store has failed."', "hang",
         "did not reach the place where the nodes meet, or lost it"),
        ("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 4/8 clients joined.",
         "missing_rank", "Only 4 of 8 processes came"),
        ("RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store "
         "by key '0', but store->get('0') got error: Timeout waiting for key", "missing_rank", "Rank 0 did not come"),
        ("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [192.0.2.30]:30872",
         "hang", "A connection of gloo's"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "missing_rank", "Not all nodes came"),
        ("RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 2. "
         "Please check", "missing_rank", "Rank 2 did not pass the monitored_barrier that rank 3 reached"),
        ("[n1:77:0:77] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_1:1/RoCE (synd 0x15 vend 0x81)",
         "hang", "A message of UCX's over mlx5_1:1/RoCE was never answered"),
        ("XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: sync7. Timed out task names:\n"
         "/job:jax_worker/replica:0/task:5\n", "missing_rank", "names task 5: it did not come"),
        ("E coordination_service.cc:117] UNAVAILABLE: Task /job:jax_worker/replica:0/task:4 heartbeat timeout. This",
         "missing_rank", "Task 4 of JAX sent no heartbeat"),
        ("E client.cc:96] Coordination service agent in error status: DEADLINE_EXCEEDED: Deadline Exceeded", "hang",
         "A task of JAX lost its coordination service, or never reached it: DEADLINE_EXCEEDED"),
        ("E agent.cc:4] Failed to disconnect from coordination service with status: UNAVAILABLE: no", "hang",
         "A task of JAX lost its coordination service, or never reached it: UNAVAILABLE"),
        ("F client.h:7] Terminating process. absl::Status: UNAVAILABLE: Failed to send RPC to coordination service. Socket closed",
         "hang", "A task of JAX lost its coordination service, or never reached it: UNAVAILABLE"),
        ("Failed to modify QP to RTR: Connection timed out", "hang", "the step to RTR failed"),
        ("[ 12.3] NVRM: (PCI ID: 10de:26b5) installed in this system has\n NVRM: fallen off the bus and is not responding",
         "failed_rank", "a GPU has fallen off the bus"),
        ("(EngineCore pid=9) INFO [shm_broadcast.py:5] No available shared memory broadcast block found in 60 seconds.",
         "hang", "A process of vLLM waited 60 s"),
        ("The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: x",
         "failed_rank", "A worker process of Ray's ended: SYSTEM_ERROR"),
        ("[12.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.", "failed_rank",
         "Xid 79, the GPU has fallen off the bus, on GPU 3b:00"),
    ],
)  # fmt: skip
def test_what_other_programs_say_of_a_failure_is_told(tmp_path, text, kind, words):
    first = told(tmp_path, f"Setting OMP_NUM_THREADS\n{text}\n").causes[0]
    assert first.kind == kind and words in f"{first.cause} {first.evidence}"


def test_a_start_at_which_all_ranks_met_is_no_wait(tmp_path):
    text = "NCCL version 2.17.1+cuda12.1\nINFO:c10d:Added key: store_based_barrier_key:1 to store for rank: 2\n"
    text += "INFO:c10d:Rank 2: Completed store-based barrier for key:store_based_barrier_key:1 with 3 nodes.\n"
    assert "waited" not in told(tmp_path, text).text()


def test_an_error_of_a_gpu_that_another_one_caused_counts_as_that_one(tmp_path):
    xid = "kernel: NVRM: Xid (PCI:0000:{}:00): {}, pid=1, name=python3, Ch 00000001{}\n"
    text = xid.format("dc", 45, " caused by previous Xid 149") + xid.format("1a", 45, "") + xid.format("1b", 145, "")
    causes = [cause.cause for cause in told(tmp_path, text).causes]
    assert causes == [
        "The driver reports Xid 149, an error of NVLink, on GPU dc:00.",
        "The driver reports Xid 145, an error of NVLink, on GPU 1b:00.",
    ]
    assert "Xid 45" in told(tmp_path, xid.format("1a", 45, "")).causes[0].cause


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 4096 : CUDA error 401 'x'",
            "NVLink SHARP (NVLS)",
        ),
        ("Call to ibv_modify_qp failed with error No route to host", "Two cards of InfiniBand or RoCE could not be"),
        ("NET/IB : m:1 async fatal event on QP (0x1): local access violation work queue error", "told to use memory"),
        ("NET/IB : Got async event : local catastrophic error", "A card of InfiniBand or RoCE failed as a whole"),
        (
            "NET/IB : m:1 async fatal event on QP (0x7): invalid request local work queue error",
            "card reported an error",
        ),
        ("NET/IB : Got async event : port error", "A port of InfiniBand or RoCE lost its link"),
        ("Attempt to use communicator before the previous operation returned ncclSuccess", "A communicator was used"),
    ],
)
def test_each_kind_of_a_cards_and_a_switchs_failure_has_its_words(tmp_path, text, words):
    log = "".join(f"[1,{rank}]<stdout>:n1:1:2 [0] net_ib.cc:80 NCCL WARN {text}\n" for rank in (12, 9))
    [cause] = told(tmp_path, log + WARN.format("a text that nobody knows")).causes
    assert words in cause.cause and "NCCL says on ranks 9 and 12: " in cause.evidence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[vllm]: [rank0]: RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
         "this text does not say why"),
        ("pod-1: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1197, unhandled cuda error\n"
         "pod-1: Last error:\npod-1: Cuda failure 'initialization error'", "CUDA could not be used by a rank"),
        ("what(): NCCL error: remote process exited, NCCL version 2.14.3 ncclRemoteError: A call failed. Last error: NET/IB : "
         "Got completion from peer 192.0.2.3<391> with error 12, opcode 0, len 0, vendor err 129", "never answered"),
        ("Failed, NCCL error /src/ncclPlugin/allreducePlugin.cpp:295 'internal error - please report this issue'",
         "this text does not say why"),
        ("[1,23]<stdout>:a:7:7 [7] x:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument",
         "aws-ofi-nccl"),
    ],
)  # fmt: skip
def test_nccls_errors_are_known_behind_labels_and_in_other_programs(tmp_path, text, words):
    first = told(tmp_path, text + "\n").causes[0]
    assert first.kind == "nccl_error" and words in first.cause and "pod-1" not in first.evidence


def test_a_rank_whose_watchdog_said_that_it_gave_up_has_a_text(tmp_path):
    gave_up = "[rank{0}]:[E626 16:48:25.4 ProcessGroupNCCL.cpp:684] [Rank {0}] Some NCCL operations have failed or timed out.\n"
    found = told(tmp_path, hung(0) + gave_up.format(3))
    assert found.job.missing == (1, 2)


def test_hccls_timeout_without_a_rank_says_on_which_device(tmp_path):
    text = "EI9999: 2024-07-03-11:28:40.419.527  The error from device(chipId:{}, dieId:0), serial number is 1, hccl "
    text += (
        "fftsplus task timeout occurred during task execution, stream_id:4, stuck notify num:7, timeout:{}.[FUNC:A]\n"
    )
    [cause] = told(tmp_path, text.format(3, 1836) + text.format(0, "30min(default)")).causes
    assert cause.cause == "A call of HCCL did not end on devices 0, 3 in 1836 s (EI9999)."
    assert "does not say" in cause.evidence and "HCCL_EXEC_TIMEOUT" in cause.evidence


def test_the_line_after_last_error_counts_as_a_warning(tmp_path):
    text = "[rank1]: ncclRemoteError: A call failed possibly due to a network error.\n[rank1]: Last error:\n[rank1]: NET/IB : x status=12 y\n"
    [cause] = told(tmp_path, INFO.rpartition("a:1:1")[0] + text).causes
    assert cause.kind == "nccl_error" and "never answered" in cause.cause


def test_a_long_warning_is_cut_between_words(tmp_path):
    found = told(tmp_path, WARN.format("remote " * 90))
    assert any(w.endswith("remote…") for w in found.said) and "remote…;" in found.causes[0].evidence


def test_a_full_shm_stands_before_the_rank_that_failed_of_it_and_a_refusal_before_the_hang(tmp_path):
    full = WARN.format("Call to posix_fallocate failed : No space left on device") + WARN.format(
        "Error while creating shared memory segment"
    )
    kinds = [c.kind for c in told(tmp_path, full + "[rank1]: RuntimeError: mine\n" + hung(0)).causes]
    assert kinds[:2] == ["nccl_error", "failed_rank"] and kinds.count("nccl_error") == 1
    kinds = [c.kind for c in told(tmp_path, hung(0) + hung(1) + WARN.format("Connection refused")).causes]
    assert kinds == ["nccl_error", "hang"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NCCL_P2P_DISABLE set by environment to 1.", "NCCL_P2P_DISABLE=1"),
        ("NCCL_SHM_DISABLE set by environment to 1", "NCCL_SHM_DISABLE=1"),
        ("NCCL_ALGO set by environment to Tree.", "NCCL_ALGO=Tree"),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "GPUDirect RDMA is off"),
    ],
)
def test_a_fast_way_that_is_off_is_a_cause(tmp_path, line, words):
    [cause] = told(tmp_path, f"a:1:2 [0] NCCL INFO Using network IB\na:1:2 [0] NCCL INFO {line}\n").causes
    assert cause.kind == "nccl_setting" and words in cause.cause


def test_a_switch_that_is_set_to_off_is_no_cause(tmp_path):
    text = "a:1:2 [0] NCCL INFO Using network IB\na:1:2 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 0.\n"
    assert [c.kind for c in told(tmp_path, text).causes] == ["no_times"]


def test_the_variables_that_ask_for_sockets_are_named(tmp_path):
    lines = ("NCCL_IB_DISABLE set by environment to 1.", "NCCL_SOCKET_IFNAME set by environment to lo", "NET/Socket : Using [0]lo:127.0.0.1<0>", "Using network Socket",
             "Channel 00/02 :    0   1   2   3", "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/Socket/0")  # fmt: skip
    found = told(tmp_path, "".join(f"a:1:2 [0] NCCL INFO {line}\n" for line in lines))
    [cause] = found.causes
    assert cause.kind == "wrong_interface" and "NCCL_SOCKET_IFNAME=lo and NCCL_IB_DISABLE=1" in cause.evidence
    assert "loopback" in cause.evidence and any(w.startswith("2 channels;") for w in found.said)


def test_bad_links_of_a_machine_are_causes(tmp_path):
    found = told(tmp_path, TOPO, "topo.txt").causes
    assert [c.kind for c in found] == ["slow_links", "slow_links"] and "GPU2, GPU3" in found[1].cause


@pytest.mark.parametrize(("said", "ranks", "rank"), [("Ranks 2, 3", "Ranks 2 and 3", None), ("Rank 5", "Rank 5", 5)])
def test_the_ranks_that_a_monitored_barrier_names_did_not_come(tmp_path, said, ranks, rank):
    found = told(tmp_path, f"Traceback\nRuntimeError: [Rank 0]: {said} failed to pass monitoredBarrier in 2000000 ms\n")
    [cause] = found.causes
    assert (cause.kind, cause.rank) == ("missing_rank", rank) and cause.cause.startswith(f"{ranks} did not come")
    assert "rank 0 waited 2,000 s" in cause.evidence and "nccl" not in found.text().splitlines()[0]


PRINT = "[rank{r}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {r} is running collective: {mine}, but Rank {s} is running collective: {theirs}.Collectives differ\n"
FINGER = "CollectiveFingerPrint(SequenceNumber=7, OpType={}, TensorShape=[{}], TensorDtypes={}, TensorDeviceTypes=TensorOptions(dtype=float (default)))"


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (("BROADCAST", "1", "Long"), "another call than ranks 0 and 1: broadcast, where they made all_reduce"),
        (("ALLREDUCE", "4, 3", "Float"), "with another size than ranks 0 and 1: all_reduce of 12 float32"),
        (("ALLREDUCE", "10", "Half"), "with another type than ranks 0 and 1"),
    ],
)
def test_a_mismatch_that_torch_itself_found_is_read(tmp_path, odd, words):
    usual, other = FINGER.format("ALLREDUCE", "10", "Float"), FINGER.format(*odd)
    text = PRINT.format(r=0, s=2, mine=usual, theirs=other) + PRINT.format(r=2, s=1, mine=other, theirs=usual)
    [cause] = told(tmp_path, text).causes
    assert (cause.kind, cause.rank) == ("desync", 2) and words in cause.cause and "call 7" in cause.evidence


def test_a_mismatch_whose_two_numbers_differ_is_read_and_asks_for_no_watchdogs_text(tmp_path):
    theirs = "CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)"  # as torch writes it of a call without tensors
    text = PRINT.format(r=1, s=7, mine=FINGER.format("ALLGATHER", "1", "Long"), theirs=theirs)
    [cause] = told(tmp_path, text).causes
    assert cause.kind == "desync" and "Rank 7 made another call than rank 1: reduce" in cause.cause
    base = PRINT.format(
        r=1, s=0, mine=FINGER.format("ALLGATHER", "6", "Double"), theirs="CollectiveFingerPrint(OpType=_ALLGATHER_BASE)"
    )
    assert (
        "made another call than rank 0: ALLGATHER, where it made _ALLGATHER_BASE"
        in told(tmp_path, base).causes[0].cause
    )
    behind = PRINT.format(r=1, s=2, mine="CollectiveFingerPrint(SequenceNumber=1OpType=BARRIER)",
                          theirs="CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER)")  # fmt: skip
    assert told(tmp_path, behind).causes[0].rank == 2


@pytest.mark.parametrize(
    ("at", "instead"),
    [
        ("Watchdog caught", "Watchdog\ncaught"),
        ("Watchdog caught", "Watch\ndog caught"),
        ("operation timeout", "opera\ntion timeout"),
        ("timeout: Work", "timeout: \nWork"),
        ("NumelIn=100,", "NumelIn=10\n0,"),
        ("ran for", "\nran for"),
    ],
)
def test_a_text_that_a_terminal_broke_is_read(tmp_path, at, instead):
    found = told(tmp_path, "".join(hung(r, n=90 if r == 1 else 100) for r in range(3)).replace(at, instead))
    assert found.causes[0].rank == 1 and "90 elements" in found.causes[0].cause


@pytest.mark.parametrize(
    "cut", ["exception: [Rank {r}]\n Watchdog", "ProcessGroupNCCL's watchdog ended: [Rank {r}]\nWatchdog"]
)
def test_a_text_whose_rank_is_on_the_line_before_is_read(tmp_path, cut):
    text = "".join(
        f"  what():  {hung(r).partition('] Watchdog')[0]}] " + cut.format(r=r) + hung(r).partition("Watchdog")[2]
        for r in (0, 2)
    )
    found = told(tmp_path, text.replace("[rank0]:", "").replace("[rank2]:", ""))
    assert [r.rank for r in found.job.records] == [0, 2] and "call 7" in found.causes[0].evidence


def test_a_watchdog_that_got_stuck_is_read_where_its_rank_is_on_the_line_before(tmp_path):
    start = (
        "[rank6]:[E1101 10:00:00.0 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL'"
    )
    found = told(tmp_path, start + "\ns watchdog got stuck for 480 seconds without making progress\n")
    assert "The watchdog of rank 6 got stuck" in found.causes[0].cause and "480 s" in found.causes[0].evidence


def test_a_timeout_of_a_blocking_wait_is_read(tmp_path):
    work = "Work WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) timed out in blocking wait."
    found = told(tmp_path, "".join(f"[rank{r}]: [Rank {r}] {work.format(n=n)}\n" for r, n in ((0, 9), (1, 8), (2, 9))))
    assert (found.causes[0].kind, found.causes[0].rank) == ("missing_rank", 1)


def test_a_dump_signal_says_in_which_call_a_rank_stood(tmp_path):
    start = "[rank1]:[E1101 10:00:00.0 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to "
    text = (
        start
        + "a collective timeout from this local rank and we will try\nto dump. Last enqueued NCCL work: 855, last completed NCCL work: 12.This is\n"
    )
    causes = told(tmp_path, text).causes
    assert any("Rank 1 had not completed call 13 of the group of all ranks" in c.cause for c in causes), causes


DIED = "[{prefix}Rank {r}] Process group watchdog thread terminated with exception: {why}\n"


@pytest.mark.parametrize("start", ["", "{{'loss': 0.1, 'epoch': 3}}\n 94%|## | 8/9 [rank2]:"])
@pytest.mark.parametrize(
    "why", ["CUDA error: an illegal memory access was encountered", "a == b INTERNAL ASSERT FAILED at x.h:2"]
)
def test_a_watchdog_that_died_of_an_error_names_its_rank(tmp_path, start, why):
    text = start.format() + DIED.format(prefix="PG ID 0 PG GUID 0(default_pg) ", r=2, why=why)
    first = told(tmp_path, text + hung(0)).causes[0]
    assert (first.kind, first.rank) == ("failed_rank", 2) and why.partition(" (")[0][:20] in first.evidence
    assert "rank 0 waited until the watchdog gave up" in first.cause


def test_a_watchdog_that_died_in_a_group_is_not_said_to_be_of_all_ranks(tmp_path):
    why = "CUDA error: unspecified launch failure"
    assert (
        "(rank 2 of group 3)"
        in told(tmp_path, DIED.format(prefix="PG ID 2 PG GUID 3 ", r=2, why=why)).causes[0].evidence
    )
    shut = DIED.format(prefix="", r=1, why="CUDA error: driver shutting down")
    assert all(c.rank != 1 for c in told(tmp_path, hung(0) + hung(1) + shut).causes)


def test_a_log_that_may_be_cut_does_not_say_that_all_ranks_came(tmp_path):
    assert "if the job has more than 2 ranks" in told(tmp_path, hung(0) + hung(1)).causes[0].evidence


def test_a_table_of_pcie_alone_says_nothing_of_nvlink(tmp_path):
    table = "        GPU0 GPU1 NIC0 CPU Affinity\nGPU0     X   NODE PIX  0-31\nGPU1    NODE  X   NODE 0-31\n"
    found = told(tmp_path, "$ nvidia-smi topo -mp\n" + table, "topo.txt")
    assert not any("NVLink" in c.cause for c in found.causes) and "shows PCIe only" in " ".join(found.said)
    assert (
        "No pair of GPUs has an NVLink" in told(tmp_path, "$ nvidia-smi topo -m\n" + table, "topo.txt").causes[0].cause
    )


def test_nvlinks_that_are_inactive_are_named(tmp_path):
    link = "         Link {}: {}\n"
    text = "GPU 0: Tesla V100 (UUID: GPU-1)\n" + link.format(0, "25.781 GB/s") + link.format(1, "25.781 GB/s")
    text += "GPU 1: Tesla V100 (UUID: GPU-2)\n" + link.format(0, "<inactive>") + link.format(1, "25.781 GB/s")
    text += "GPU 2: B200 (UUID: GPU-3)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
    words = [cause.cause for cause in told(tmp_path, text, "links.txt").causes]
    assert "GPU1: NVLink 0 of 2 inactive" in words[0] and "GPU2: no NVLink is active" in words[1] and len(words) == 2


def test_cells_of_a_topology_that_lost_their_space_are_two(tmp_path):
    table = (
        "      GPU0 GPU1 NIC0 NIC1 NIC2 CPU Affinity\nGPU0  X NV12 NODENODE PIX 0-31\nGPU1  NV12 X SOCSOC PIX 0-31\n"
    )
    assert "3 network cards; the nearest of each GPU: 2 by PIX" in " ".join(told(tmp_path, table, "topo.txt").said)


def test_a_text_whose_end_is_lost_is_counted(tmp_path):
    with pytest.raises(ProfileError, match="2 lines of a watchdog's text are cut in the middle"):
        told(tmp_path, hung(0)[:110] + "\n" + hung(1)[:120] + "\n")
    assert "cut in the middle and are not read: 1" in " ".join(told(tmp_path, hung(0) + hung(1)[:110] + "\n").said)
    assert "cut in the middle and are not read: 1" in " ".join(told(tmp_path, hung(0)[:110] + "\n" + hung(1)).said)


def test_a_progress_bar_before_a_text_does_not_hide_it(tmp_path):
    bar = "\r".join(f"epoch 3: {n} %" for n in range(2000))
    assert "call 7" in told(tmp_path, bar + "\r" + hung(0)).causes[0].cause


ROWS = """[0]    134217728      33554432     float     sum      -1    631.9  212.41    0.00      0     0.51  263017.30    0.00      0
[0]    268435456      67108864     float     sum      -1   1007.4  266.46    0.00      0     0.31  857621.27    0.00      0
"""


@pytest.mark.parametrize("before", ["", "[0] a:1:1 [0] NCCL INFO 8192 Bytes -> Algo 0 proto 0 time 26.549810\n"])
def test_rows_of_nccl_tests_without_a_head_are_sent_to_fit(tmp_path, before):
    with pytest.raises(ProfileError, match="rows of nccl-tests: allranks fit reads them"):
        told(tmp_path, before + ROWS)


def test_a_log_with_a_table_of_nccl_tests_in_it_says_who_reads_that(tmp_path):
    found = told(tmp_path, "NCCL version 2.8.4+cuda10.1\n" + WARN.format("x status=12 y") + ROWS)
    assert any("allranks fit" in note for note in found.notes)
    with pytest.raises(ProfileError, match="rows of nccl-tests: allranks fit reads them"):
        told(tmp_path, "NCCL version 2.8.4+cuda10.1\n" + ROWS)
    assert not any("nccl-tests" in note for note in told(tmp_path, "NCCL version 2.8.4+cuda10.1\n").notes)


def test_the_output_of_nccl_tests_is_sent_to_fit(tmp_path):
    with pytest.raises(ProfileError, match="allranks fit reads it"):
        told(tmp_path, "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)\n#\n", "all_reduce.txt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Rank 0] rank=0 | comm op: all_gather | time (ms): 9.46 | msg size: 6.0 MB\n", "allranks fit reads it"),
        (
            " Time (%)  Total Time (ns)  Instances  Name\n 33.2  277809887  4048  ncclDevKernel_AllReduce\n",
            "nsys export",
        ),
        ("time (ms) | forward-compute: 31.57 | backward-params-all-reduce: 21.15 | optimizer: 57.50\n", "Megatron's"),
        ("(min, max) time across ranks (ms):\n  forward-backward ....: (26094.39, 26095.09)\n", "Megatron's"),
        (" iteration 30/ 100 | elapsed time per iteration (ms): 123.4 | lm loss: 1.01E+01 |\n", "Megatron's"),
        ("collective: nccl:all_reduce\nerror msg: Culprit rank 2; Error type: SIZE\n", "torchfrtrace: give the dumps"),
        ("       Count        Size                Time, us\n    65536  262144  76.46\n", "allranks fit reads it"),
        (
            'Thread 0x00007f4fe54b0480 (most recent call first):\n  File "t.py", line 320 in wait\n',
            "faulthandler prints",
        ),
        ("dcgmi diag -r 2\n| DCGM Version   | 3.3.7  |\n| PCIe   | Fail - All   |\n", "dcgmi diag"),
        ("   Name    Self CPU %      Self CPU   # of Calls\n   aten::mm   0.1%   379.0us   4\n", "export_chrome_trace"),
    ],
)
def test_a_summary_of_another_tool_is_refused_with_what_to_give_instead(tmp_path, text, words):
    with pytest.raises(ProfileError, match=words):
        told(tmp_path, text, "summary.txt")


def test_numbers_without_end_and_warnings_without_number_lose_no_log(tmp_path):
    endless = f"[Rank 0]: Ranks 2 failed to pass monitoredBarrier in {'9' * 3000} ms\n"
    endless += f"[rank1]: watchdog got stuck for {'9' * 3000} seconds\n"
    many = "".join(WARN.format(f"address {n}") for n in range(1200))
    found = told(tmp_path, endless + many + hung(0) + hung(1, seq=6))
    assert found.causes[0].rank == 1 and len(found.job.records[0].facts["warnings"]) == 1000
