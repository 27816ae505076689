"""NCCL's lines of calls, XLA's waits and HCCL's errors: what logs say beyond a watchdog's texts."""

import pytest
from allranks import profiles
from allranks.jobs.hccl import HcclErrors
from allranks.jobs.horovod import HorovodStalls
from allranks.jobs.logs import read_lines
from allranks.jobs.xla_waits import XlaWaits


def call(rank, op, key, count, *, comm="0x7f0", size=4, host="a", pid=100, dtype=7, end="") -> str:
    return (f"{host}:{pid + rank}:{pid + rank} [{rank}] NCCL INFO {op}: opCount {key:x} sendbuff 0x1 recvbuff 0x2 count "
            f"{count} datatype {dtype} op 0 root 0 comm {comm}{rank} [nranks={size}] stream 0x5{end}\n")  # fmt: skip


def begun(rank, *, comm="0x7f0", size=4, host="a", pid=100, commid="") -> str:
    return (f"{host}:{pid + rank}:{pid + rank} [{rank}] NCCL INFO comm {comm}{rank} rank {rank} nranks {size} cudaDev {rank} "
            f"busId 1000{commid} - Init COMPLETE\n")  # fmt: skip


def explained(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    return profiles.explain(folder)


def test_a_file_for_each_process_is_compared_with_the_others(tmp_path):
    files = {f"r{r}": begun(r) + "".join(call(r, "AllReduce", k, 64) for k in range(9)) for r in range(4)}
    files["r2"] = begun(2) + "".join(call(2, "AllReduce", k, 64 if k != 7 else 65) for k in range(9))
    (cause, *_) = explained(tmp_path, **files).causes
    assert cause.kind == "desync" and cause.rank == 2
    assert cause.cause == (
        "Rank 2 made another call than ranks 0, 1 and 3: all_reduce of 65 float32, where they made all_reduce of 64 float32."
    )
    assert "opCount 7" in cause.evidence


def test_calls_that_are_alike_are_no_cause(tmp_path):
    found = explained(tmp_path, one="".join(begun(r) for r in range(4)) + "".join(
        call(r, op, k, 64) for k, op in enumerate(("Broadcast", "AllReduce", "AllGather")) for r in range(4)))  # fmt: skip
    assert [c.kind for c in found.causes] == ["no_times"]
    assert any("by 4 processes of 4 ranks: broadcast 4, all_reduce 4, all_gather 4" in said for said in found.said)


def test_calls_of_one_group_of_calls_share_a_number(tmp_path):
    lines = "".join(call(r, "AllReduce", 3, n) for r in range(4) for n in (8, 16, 32))
    assert explained(tmp_path, one=lines).causes[0].kind == "no_times"
    other = "".join(call(r, "AllReduce", 3, n) for r in range(4) for n in ((8, 16, 32) if r else (8, 32, 16)))
    assert explained(tmp_path, one=other).causes[0].kind == "desync"


def test_a_log_that_begins_later_does_not_differ(tmp_path):
    lines = "".join(call(r, "AllReduce", k, 8 + k) for k in range(20) for r in range(4) if k >= (12 if r == 1 else 0))
    assert explained(tmp_path, one=lines).causes[0].kind == "no_times"


def test_counts_that_stay_zero_are_not_keys(tmp_path):
    """NCCL 2.27 and later inside one node."""
    lines = "".join(call(r, "AllReduce", 0, 8 + k) for k in range(5) for r in range(4))
    assert explained(tmp_path, one=lines).causes[0].kind == "no_times"
    short = "".join(call(r, "AllReduce", 0, 8 + k) for k in range(5) for r in range(4) if not (r == 3 and k == 2))
    (cause, *_) = explained(tmp_path, one=short).causes
    assert cause.kind == "desync" and "GPU 3 made another call" in cause.cause and "left one out" in cause.evidence
    assert cause.sure == 0.4 and "if they begin in the middle" in cause.evidence  # no line begins a communicator
    (cause, *_) = explained(tmp_path, one="".join(begun(r) for r in range(4)) + short).causes
    assert cause.sure > 0.9 and "in the middle" not in cause.evidence


def test_messages_shift_the_counts_of_collectives_and_are_not_compared(tmp_path):
    lines = ""
    for r in range(3):
        key = 0
        for k in range(6):
            lines += call(r, "AllReduce", key, 8 + k, size=3)
            key += 1
            for _ in range(1 if r else 2):
                lines += call(r, "Recv" if r else "Send", key, 4, size=3)
                key += 1
    found = explained(tmp_path, one=lines)
    assert found.causes[0].kind == "no_times" and any("12 sends and 12 receives" in said for said in found.said)


def test_two_groups_of_one_size_are_told_apart_by_their_id_or_not_at_all(tmp_path):
    def group(ranks, comm, number, count):
        return "".join(
            f"a:{100 + r}:{100 + r} [{r}] NCCL INFO ncclCommInitRank comm {comm}{r} rank {i} nranks 2 cudaDev {r} busId 1 "
            f"commId {number} - Init COMPLETE\n" + call(r, "AllReduce", 0, count, comm=comm, size=2)
            for i, r in enumerate(ranks))  # fmt: skip

    known = group((0, 1), "0xa", "0x111", 8) + group((2, 3), "0xb", "0x222", 16)
    assert explained(tmp_path, one=known).causes[0].kind == "no_times"
    unknown = "".join(line for line in known.splitlines(True) if "Init" not in line)
    found = explained(tmp_path, one=unknown)
    assert found.causes[0].kind == "no_times" and any(
        "do not say which process is in which" in said for said in found.said
    )


def test_rccl_says_the_rank_at_the_end_of_the_line(tmp_path):
    lines = "".join(
        call(r, "AllReduce" if r else "Reduce", 0, 8, size=2, end=f" task 1 globalrank {r + 6}") for r in range(2)
    )
    assert explained(tmp_path, one=lines).causes[0].cause.startswith("Rank 7 made another call than rank 6: all_reduce")


OLD = (
    "W1 This thread has been waiting for 5000ms for and may be stuck: participant for device ordinal {}, stream 0x5 waiting for "
    "all participants to arrive at rendezvous RendezvousKey{{run_id=RunId: 7, global_devices=[0,1,2,3], num_local_participants=4, "
    "collective_op_kind=cross_replica, op_id=3}}"
)


def test_the_participants_of_data_are_devices_too():
    waits = XlaWaits()
    text = OLD.replace("participant for device ordinal {}, stream 0x5", "participant AllReduceParticipantData{{buffers=[{{element_"
                       "count=10}}], rendezvous_key=K, device_ordinal={}, stream=(nil)}}")  # fmt: skip
    for device in (0, 3):
        waits.take(text.format(device))
    (cause,) = waits.causes()
    assert cause.cause == "Devices 0 and 3 wait at a rendezvous of XLA of devices 0 to 3; devices 1 and 2 did not come."


def test_a_thread_that_went_on_waits_no_more():
    waits = XlaWaits()
    for device in (0, 1, 3):
        waits.take(OLD.format(device))
    waits.take(
        "Thread is unstuck!  Warning above was a false-positive.  Perhaps the timeout is too short: participant for device ordinal 1"
    )
    assert "Devices 0 and 3 wait" in waits.causes()[0].cause
    waits.take("Thread is unstuck! ... participant for device ordinal 0")
    waits.take("Thread is unstuck! ... participant for device ordinal 3")
    assert waits.causes() == () and "3 threads" in waits.said()[0]


def test_a_clique_on_one_host_names_the_rank_that_did_not_come():
    waits = XlaWaits()
    for rank in (0, 1, 2):
        waits.take(f"E0218 03:50:19.100000 {rank} rendezvous.cc:100] [id={rank}] This thread has been waiting for `acquire clique for "
                   f"rank {rank}; clique=devices=[4,5,6,7]; is_p2p=0; run_id=-1558191007` for 10 seconds and may be stuck. Expected 4 "
                   "threads to join the rendezvous, but not all of them arrived on time.")  # fmt: skip
    (cause,) = waits.causes()
    assert cause.cause == "Ranks 0 to 2 wait at a rendezvous of XLA of devices 4 to 7; rank 3 did not come."


def timeout(rank, mine, remote, group="g"):
    return (
        f"[ERROR] 2025-10-11-15:09:34 (PID:1, Device:0, RankID:{rank}) ERR00100 PTA call acl api failed.\n"
        f"EI0002: [PID: 1] 2025-10-11 The wait execution of the Notify register times out. Reason: The Notify register has not "
        f"received the Notify record from remote rank: [{remote}]. base information: [tag[AllGather_{group}]]. group information: "
        f"[group:[{group}], user define information[], rankSize[4], rankId[{mine}].]\n"
    ).splitlines()


def test_of_ranks_that_wait_for_each_other_the_one_that_does_not_wait_is_named():
    errors = HcclErrors()
    for line in (*timeout(8, 0, 1), *timeout(9, 1, 2), *timeout(11, 3, 2)):
        errors.take(line)
    (cause,) = errors.causes()
    assert (
        "Ranks 8, 9 and 11 (in the group ranks 0, 1 and 3 of 4) waited in all_gather for rank 2 of group g"
        in cause.cause
    )


def test_a_text_without_the_remote_rank_names_nobody():
    errors = HcclErrors()
    for line in timeout(8, 0, "unknown"):
        errors.take(line)
    assert "waited in all_gather for a rank that the text does not name" in errors.causes()[0].cause


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EI0005: 2024-04-24-06:32:27.781.599 The arguments for collective communication are inconsistent between ranks:parameter "
         "count, local end 16512, remote end 8320", "count 16512 on one, 8320 on the other"),
        ("EI0007: [PID: 4] 2024-04-24-06:32:27 Failed to allocate resource[Memory]", "could not get a resource"),
        ("EI0011: 2025 Failed to allocate", "the memory of a device is full"),
    ],
)  # fmt: skip
def test_other_codes_of_hccl(text, words):
    (record,) = read_lines("a.log", [text])
    assert words in record.facts["causes"][0].cause


def test_horovods_list_of_missing_ranks_is_read():
    """Horovod 0.19 and later."""
    stalls = HorovodStalls()
    for line in ("Missing ranks:", "1: [grad.a, grad.b]", "3: [grad.a, grad.b ...]", "loss 7: [not a rank]"):
        stalls.take("[1,0]<stderr>:" + line)
    assert (
        stalls.causes()[0].cause
        == "Ranks 1 and 3 did not submit what the other ranks wait for (2 tensors, grad.a the first)."
    )


def test_horovods_ready_ranks_name_who_waits_and_nobody_else():
    stalls = HorovodStalls()
    stalls.take("Stalled ops: a.w [ready ranks: 2, 0, 1], loss [ready ranks: 3]")
    assert stalls.causes()[0].cause == "Ranks 0, 1 and 2 wait for the other ranks to submit a.w."


def test_two_parameters_that_differ_in_canns_log_are_told():
    errors = HcclErrors()
    errors.take("[ERROR] HCCL(3743927,all_reduce_test):2025-10-25-16:11:16.831.640 [rank_consistentcy_checker.cc:429] [3743951]"
                "[InitChannelStage][ParameterConflict]CMD information tag check fail. local[AllGather_127.10.0.1%enp], "
                "remote[AllReduce_127.10.0.1%enp]")  # fmt: skip
    (cause,) = errors.causes()
    assert (
        cause.kind == "desync"
        and "tag AllGather_127.10.0.1%enp on one, AllReduce_127.10.0.1%enp on the other" in cause.cause
    )


def test_ranks_of_small_groups_are_not_the_jobs(tmp_path):
    """A process has another number in each group; none of these is its rank."""
    lines = "".join(
        f"a:{100 + r}:{100 + r} [{r}] NCCL INFO comm 0x{g}{r} rank {n} nranks 2 cudaDev {r} busId 1 - Init COMPLETE\n"
        for r in range(4) for g, n in (("a", r // 2), ("b", r % 2)))  # fmt: skip
    found = explained(tmp_path, one=lines + "a:100:100 [0] NCCL INFO Using network IB\n")
    assert found.job.world_size is None and found.text().startswith("rank unknown, log")


def test_a_log_full_of_calls_is_bounded(monkeypatch):
    from allranks.jobs import coll_lines

    monkeypatch.setattr(coll_lines, "MOST_CALLS", 100)
    collected = coll_lines.CollLines()
    for key in range(500):
        collected.take(call(0, "AllReduce", key, key))
    assert sum(len(e.calls) for e in collected.calls) == 100
