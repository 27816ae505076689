"""Logs: the watchdog's texts of many ranks, NCCL's own lines, errors of ranks, and nvidia-smi topo -m."""

import os

import pytest
from allranks.jobs import ProfileError, explain, reading
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
    with pytest.raises(ProfileError, match="says nothing of NCCL's choices"):
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
