"""Errors in any program's words: which line is the first, who says it, what it means, and what only follows."""

import pytest
from allranks.jobs import ProfileError, explain

MPI = "-" * 40


def told(tmp_path, text, name="job.log"):
    (tmp_path / name).write_text(text)
    return explain(tmp_path / name)


CLASSES = [
    # an exception of an unknown kind, behind a logger's and a launcher's labels
    ("(Engine_2 pid=71) ERROR 02-11 08:00:01 [core.py:9] TypeError: load() missing 1 argument: 'x'\n", "failed_rank",
     ["TypeError: load() missing 1 argument: 'x' (Engine_2 process 71)", "line 1 says"]),
    ("2031-02-11 08:00:01,473 - tuner - INFO - [rank5]: KeyError: 'epoch'\n", "failed_rank", ["Rank 5 failed", "KeyError: 'epoch'"]),
    ("(VllmWorker rank=3 pid=9) ERROR 02-11 08:00:01 [m.py:7] torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n",
     "failed_rank", ["Rank 3 failed", "The memory of a GPU was full"]),
    # how a process ended, by launchers that nobody lists
    ("['/bin/python', 'a.py', '--local_rank=2'] exits with return code = -9\n", "failed_rank",
     ["A process was ended by signal 9 (SIGKILL"]),
    (f"{MPI}\nmpirun noticed that process rank 5 with PID 0 on node n7 exited on signal 11 (Segmentation fault).\n", "failed_rank",
     ["Rank 5 was ended by signal 11 (SIGSEGV)"]),
    ("1.7e+09 DEBUG events Pod: a.b-worker-3 exited with code 1 {}\n", "failed_rank", ["A process (a.b-worker-3) ended with exit code 1"]),
    (" 40%|##  | 3/9 [04:47<1:10, 1.8it/s]Killed\n", "failed_rank", ["signal 9"]),
    ("srun: error: n0: tasks 4-7: Exited with exit code 3\nsrun: error: n1: task 9: Exited with exit code 1\n", "failed_rank",
     ["Slurm's tasks 4-7 failed: Exited with exit code 3"]),
    ("slurmstepd: error: *** STEP 77.0 ON n3 CANCELLED AT 2031-02-11T08:00:01 ***\n", "stopped", ["Slurm: cancelled"]),
    ("slurmstepd: error: *** STEP 77.0 ON n3 CANCELLED AT 2031-02-11T08:00:01 DUE TO TASK FAILURE ***\n", "failed_rank",
     ["A task of the job failed, and Slurm ended the others"]),
    ("slurmstepd: error: *** JOB 77 ON n3 CANCELLED AT 2031-02-11T08:00:01 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***\n", "failed_rank",
     ["A machine of the job failed, and Slurm ended the others"]),
    ("[9.1] Memory cgroup out of memory: Killed process 712 (python) total-vm:9kB\n", "failed_rank", ["ended process 712 (python)"]),
    # what follows from another process' end is not called its fault
    ("[rank1]:[W211 08:00:01.02 TCPStore.cpp:1] [c10d] recvValue failed on SocketImpl(fd=9): Connection reset by peer\n", "hang",
     ["Rank 1: the connection to another process was lost", "rarely at fault"]),
    ("ERROR 02-11 08:00:01 w.py:1] Worker pid 9 died, exit code: -15\n", "no_times", ["ended from outside, as after another"]),
    ("Exception: Worker initialization failed. See stack trace above.\n", "no_times", ["does not say why that one did"]),
    # what C and C++ say before they end a process, and who it was
    ("[rank3]: malloc(): unsorted double linked list corrupted\n", "failed_rank", ["Rank 3: malloc(): unsorted double linked list"]),
    ("*** Error in `/opt/python': double free or corruption (out): 0x00000a1b ***\n", "failed_rank", ["double free or corruption (out)"]),
    ("pure virtual method called\nAborted (core dumped)\n", "failed_rank", ["pure virtual method called", "line 1 says"]),
    # waits
    ("ssh: Could not resolve hostname job-w-2: Temporary failure in name resolution\n", "hang", ["The name of a host was not found", "job-w-2"]),
    ("[rank1]: ValueError: host not found: Name or service not known\n", "hang", ["Rank 1: the name of a host was not found"]),
    ("[rank2]: torch.distributed.DistStoreError: wait timeout after 900000ms, keys: /default_pg/0//k\n", "hang",
     ["Rank 2 waited for the store where the ranks meet", "process of rank 0"]),
    ("[2031-02-11 08:00:01 TP3] Watchdog timeout (a=1)\n[2031-02-11 08:00:01 TP1] Watchdog timeout (a=1)\n[2031-02-11 08:00:04] Killed\n",
     "hang", ["made no progress (TP3, TP1)"]),
    ("INFO 02-11 08:00:01 r.py:2] Waiting for creating a placement group for 40 seconds.\n", "hang", ["waits for creating a placement"]),
    ("Init: GLOBAL_RANK: 1, MEMBER: 2/4\nInit: GLOBAL_RANK: 1, MEMBER: 2/4\nInit: GLOBAL_RANK: 0, MEMBER: 1/4\n", "missing_rank",
     ["Of 4 ranks, ranks 2 and 3 did not print that they begin", "rank 1 printed it more than once"]),
    ("".join(f"INFO:root:Waiting in store based barrier to initialize process group for rank: {r}, key: k:1 (world_size=4, "
             f"worker_count=3, timeout=0:30:00)\n" for r in (3, 0, 2, 3)), "missing_rank", ["Ranks 0, 2 and 3", "rank 1 did not"]),
    ("[2031-02-11 08:00:01 TP4] Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: [/g/gloo/transport/tcp/"
     "pair.cc:5] Read error [10.0.0.1]:4: Connection timed out\n", "hang", ["A connection of gloo's was lost", "(TP4)"]),
    ("models-1    | [TensorRT-LLM][ERROR] Assertion failed: no workspace (a.cpp:2)\nmodels-1    | MPI_ABORT was invoked on rank 2 in "
     "communicator MPI_COMM_WORLD\nmodels-1    | with errorcode 1.\n", "failed_rank",
     ["Assertion failed: no workspace", "another error, line 2 (rank 2): MPI_ABORT"]),
    ("application called MPI_Abort(MPI_COMM_WORLD, 1) - process 5\n", "failed_rank", ["Rank 5 called MPI_Abort", "only follow"]),
    ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error\n[ +0.1] pcieport 0000:00:03.0: PCIe Bus Error: "
     "severity=Corrected, type=Data Link Layer\n", "failed_rank", ["A GPU, its memory or a link failed", "line 1"]),
    # what any program may say of a resource
    ("g1:8:9 [0] misc/ibvwrap.cc:2 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n", "nccl_error",
     ["Memory could not be locked for a card", "memlock"]),
    ("[171.5] [g1:81:0] ib_md.c:3 UCX ERROR ibv_reg_mr(address=0x7, length=4) failed: Cannot allocate memory\n", "failed_rank",
     ["Memory could not be locked for a card", "(g1:81)", "ulimit -l"]),
    ("torch.distributed.DistNetworkError: failed to listen. port: 29511, code: -98, name: EADDRINUSE\n", "failed_rank", ["port that the job asks for is taken"]),
    ("[171.5] [g1:81:0] sock.c:3 UCX ERROR connect(fd=8, dest_addr=172.17.0.1:4) failed: Connection refused\n", "hang",
     ["A process (g1:81) could not connect to another one", "docker0"]),
    ("RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It may be out of shared memory.\n", "failed_rank", ["/dev/shm"]),
    ("ERROR:state:Unexpected result nan on rank 6 at iteration #9\n", "failed_rank", ["Rank 6: the numbers of the model became NaN"]),
    ("RuntimeError: Expected to have finished reduction in the prior iteration\nParameters which did not receive grad for rank 3: a.b\n",
     "failed_rank", ["Rank 3: parameters of the model got no gradient"]),
    # of NCCL's results that do not say why
    ("errors_impl.UnknownError: ncclCommInitRank failed: unhandled cuda error\n [[Node: a, device:GPU:0]]\n", "nccl_error", ["does not say why"]),
    ("(W pid=3) ERROR 02-11 08:00:01 [n.py:4] RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN)\n", "nccl_error", ["refused the arguments"]),
    ("[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the\n", "hang", ["names the rank and the call is not here"]),
    # a launcher's label before what only says that a program failed
    ("[1,2]<stderr>:subprocess.CalledProcessError: Command 'a' returned non-zero exit status 1.\n", "no_times",
     ["Rank 2: a program that a process had started failed"]),
    ("a:1:2 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0> [1]eth3:10.0.0.1<0>\na:1:2 [0] NCCL INFO Using network Socket\n", "wrong_interface",
     ["lo is the loopback"]),
    # a rank that only the end names; one that a launcher's label names in capitals; a level in brackets
    ("rank6 (local rank: 2)exitcode: -9 (pid: 36)error file: <N/A>\n", "failed_rank", ["Rank 6 was ended by signal 9"]),
    ("> [01/02/2031-08:00:01] [LLM] [RANK 5] [E] Error in load(a=1): CUDA out of memory. Tried to allocate 4 MiB.\n", "failed_rank",
     ["Rank 5: the memory of a GPU was full"]),
    (")): CUDA out of memory. Tried to allocate 4 MiB. GPU 0 has a total capacity of 9 GiB\n", "failed_rank", ["memory of a GPU was full"]),
    # a process that tells of another one's end does not stand for it, and the error above leads
    ("(Engine pid=5) ERROR 02-11 08:00:01 [x.py:2] Worker proc VllmWorker-2 died unexpectedly (exit code: None), shutting down.\n",
     "failed_rank", ["A process (VllmWorker-2) died, and"]),
    ("Failed: Cuda error /w/a.cuh:45 'an illegal memory access was encountered'\n(Engine pid=5) ERROR 02-11 08:00:01 [x.py:2] "
     "Worker proc W-2 died unexpectedly (exit code: None), shutting down.\n", "failed_rank", ["1. A kernel of a GPU used memory"]),
    ("step 3/9HW Exception by GPU node-9 (Agent handle: 0x6a20) reason :GPU Hang\nAborted (core dumped)\n", "failed_rank",
     ["1. A kernel of a GPU used memory that it may not use, or the GPU failed", "what only follows, line 2"]),
    ("NAME   READY   STATUS      RESTARTS\na-w-0  0/1     OOMKilled   0\n", "failed_rank", ["The host's memory was used up", "a-w-0 0/1"]),
    (" 0: [rank3]: torch.distributed.DistBackendError: NCCL error in: a.hpp:3, invalid usage, NCCL version 2.23.4\n", "nccl_error",
     ["NCCL says on rank 3: invalid usage"]),
    # a rank that only the message names
    ("AssertionError: Rank 11: found NaN in local grad norm in backward pass before data-parallel communication.\n", "failed_rank",
     ["Rank 11: the numbers of the model became NaN"]),
    ("srun: error: n1: task 1: Segmentation fault (core dumped)\nsrun: error: n0: task 0: Segmentation fault (core dumped)\n",
     "failed_rank", ["Slurm's tasks 0, 1 failed: Segmentation fault"]),
    # ends that launchers which nobody lists tell of
    ("Container rank 2 status failed cmd ['/bin/python', 'train.py'] code -11 log log/a.log\n", "failed_rank", ["Rank 2 was ended by signal 11"]),
    ("ERROR 2031-01-02 08:00:01,061 launch.py:2] ABORT!!! Out of all 4 trainers, the trainer process with rank=[0, 2] was aborted.\n",
     "failed_rank", ["Ranks 0 and 2: a process died, and this line does not say why"]),
    ("W0102 08:00:01.0 5 api.py:7] Received 1 death signal, shutting down workers\nm.SignalException: Process 5 got signal: 1\n", "stopped",
     ["SIGHUP: its terminal or connection was closed", "what only follows, line 2"]),
    # XLA's letter of a level, and NVSHMEM's status
    ("2031-01-02 08:00:01.5: E external/xla/xla/a.cc:4] failed: Invalid access of peer GPU memory over nvlink (CUDA_ERROR_CONTAINED)\n",
     "failed_rank", ["A GPU, its memory or a link failed"]),
    ("/w/ibrc/ibrc.cpp:1433: non-zero status: 7 connect EPS failed \n", "hang", ["A process could not connect to another one"]),
    ("kernel: NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11 (...)\n", "failed_rank", ["on a GPU that is not named"]),
    # the memory of hosts and of GPUs; a machine that mpirun lost; a port of NCCL's RAS, which stops nothing
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n", "failed_rank", ["The host's memory was used up"]),
    ("ORTE has lost communication with a remote daemon.\n\n  Remote daemon: [[4,0],3] on node g4\n", "failed_rank", ["mpirun lost a machine"]),
    ("a:1:2 [1] ras/client_support.cc:160 NCCL WARN Call to bind failed: Address already in use\na:1:2 [1] NCCL INFO NCCL_P2P_DISABLE set by "
     "environment to 1\n", "nccl_setting", ["1. GPUs of one machine do not talk to each other directly"]),
    # what another tool found out
    ("Not all ranks joining collective, sequence number: 41\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\nmissing ranks: {2, 5}\n",
     "missing_rank", ["names ranks 2 and 5 as missing", "call 41, group info 0:default_pg, collective nccl:all_reduce"]),
    (" id  collective_seq_id  collective_name  missing_ranks\n  0  3  nccl:broadcast\n  1  4  nccl:all_reduce  {1}\n", "missing_rank",
     ["names rank 1 as missing", "1 4 nccl:all_reduce {1}"]),
    ("STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: [7, 4]\n", "straggler",
     ["names ranks 4 and 7 as slower than the others"]),
    ("2031-01-02 08:00:01] | MnRtt/Rnk: 1400.50ms/3 | MxRtt/Rnk: 1550.00ms/6 | MnPwr/Rnk: 61.0W/0\n", "straggler",
     ["Rank 6 is the slowest in 1 of 1 report", "1,550 ms there and 1,400 ms on rank 3"]),
    # of ranks that are ready, the one that lacks is named
    ("One or more tensors were submitted to be reduced, by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
     "Stalled ops: HorovodBroadcast_a [ready ranks: 3, 0, 1]\n", "missing_rank", ["Ranks 0, 1 and 3 wait for rank 2 to submit HorovodBroadcast_a"]),
    # marked as an error, in words that nobody knows
    ("|CCL_ERROR| atl.cpp:7 run: unexpected status: FAILURE\n", "failed_rank", ["in words that this report does not know", "unexpected status"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "words"), CLASSES, ids=range(len(CLASSES)))
def test_each_class_of_text_is_told_by_its_form(tmp_path, text, kind, words):
    found = told(tmp_path, f"begin\n{text}".replace("begin\n", "", 1))
    said = " ".join(found.text().split())
    assert found.causes[0].kind == kind, said
    assert [part for part in words if part not in said] == [] and "Every recorded call" not in said


def test_a_step_that_slurm_ends_after_a_task_failed_was_not_ended_from_outside(tmp_path):
    text = "srun: error: n0: task 0: Out Of Memory\nslurmstepd: error: *** STEP 7.0 ON n0 CANCELLED AT 2031-02-11T08:00:01 ***\n"
    [cause] = told(tmp_path, text + "srun: error: n1: tasks 4-7: Terminated\n").causes
    assert cause.cause == "Slurm's task 0 was ended for lack of the host's memory."


def test_gloos_wait_is_no_lost_connection(tmp_path):
    text = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:8] Timed out waiting 600000ms for recv operation to complete\n"
    [cause] = told(tmp_path, text).causes
    assert cause.cause == "A rank waited 600 s in gloo for a message with another rank, which did not take part."


def test_a_rank_that_another_file_tells_of_keeps_its_own_call(tmp_path):
    (tmp_path / "rank0.log").write_text(
        "[rank0]:[E211 08:00:01.0 ProcessGroupNCCL.cpp:19] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to "
        "a collective timeout from  rank 2 and we will try. Last enqueued NCCL work: 31, last completed NCCL work: 30.\n"
    )
    wait = "[rank2]:[E211 08:00:01.0 ProcessGroupNCCL.cpp:6] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL("
    wait += "SeqNum=7, OpType=ALLTOALL_BASE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
    (tmp_path / "rank2.log").write_text(wait)
    found = explain(tmp_path)
    assert any("Rank 2 waited in call 7" in cause.cause for cause in found.causes) and not found.skipped


def test_of_nccls_complaints_that_stand_by_themselves_the_first_leads(tmp_path):
    text = "a:1:2 [0] net_ib.cc:7 NCCL WARN NET/IB : Got completion with error 4, opcode 1, len 2, vendor err 81\n"
    text += "b:1:2 [3] init.cc:9 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 3.\n"
    first, second = told(tmp_path, text).causes
    assert "memory that it may not use" in first.cause and "did not make the same collective" in second.cause


def test_a_launchers_words_on_an_end_are_no_cause_beside_the_end_that_it_names(tmp_path):
    text = "[W api.py:8] Sending process 61 closing signal SIGTERM\n[E api.py:9] failed (exitcode: 3) local_rank: 2 (pid: 63) of binary: p\n"
    [cause] = told(tmp_path, text + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n").causes
    assert "local rank 2 failed, with exit code 3" in cause.cause


def test_the_first_error_leads_and_a_launchers_words_on_it_do_not(tmp_path):
    text = "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    raise ValueError('x: y')\nValueError: bad batch\n"
    text += "KeyError: 'later'\nsubprocess.CalledProcessError: Command 'a' returned non-zero exit status 1.\n"
    found = told(tmp_path, text)
    assert [cause.cause for cause in found.causes] == ["ValueError: bad batch.", "KeyError: 'later'."]
    assert "line 4 says" in found.causes[0].evidence and any("CalledProcess" in said for said in found.said)


def test_a_worker_that_ended_after_a_timeout_does_not_lead(tmp_path):
    wait = "[rank0]:[E211 08:00:01.0 ProcessGroupNCCL.cpp:6] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL("
    wait += "SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
    end = "(raylet) A worker died. Worker exit type: SYSTEM_ERROR Worker exit detail: End of file.\n"
    assert [cause.kind for cause in told(tmp_path, wait + end).causes] == ["hang", "no_times"]


def test_a_process_that_others_dump_for_is_said_to_wait_in_no_call(tmp_path):
    text = "[rank5]:[E211 08:00:01.0 ProcessGroupNCCL.cpp:17] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal due to a "
    text += (
        "collective timeout from  rank 2 and we will try. Last enqueued NCCL work: 31, last completed NCCL work: 31.\n"
    )
    first = told(tmp_path, text).causes[0]
    assert first.cause == "Rank 5 waited in no call of the group of all ranks when the watchdog of rank 2 gave up."


def test_the_rank_that_torchs_own_report_names_stands_before_those_who_waited(tmp_path):
    wait = "[rank0]:[E211 08:00:01.0 ProcessGroupNCCL.cpp:6] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL("
    wait += "SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
    report = "\t     [5] finished collective #41, but didn't join collective #42 (count from 1)\n"
    found = told(tmp_path, wait + report)
    assert "names rank 5: it ended call 41" in found.causes[0].cause and found.causes[1].kind == "hang"


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: ld.so: object 'a.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
        "2031-02-11 08:00:01.1: E xla/cuda_dnn.cc:9] Unable to register cuDNN factory: Attempting to register factory again",
        "w.py:20: UserWarning: A is not set, all archs are included.",
        "INFO 02-11 08:00:01 [m.py:2] 0 errors, 2 warnings, timeout=600",
        "step 40 loss 2.34 grad_norm 0.91",
    ],
)
def test_what_a_program_goes_on_after_is_no_failure(tmp_path, line):
    with pytest.raises(ProfileError, match="it is a text, and no line of it is of a kind that is read"):
        told(tmp_path, f"{line}\n{{'loss': 1.2}}\n" * 3)


def test_a_refusal_quotes_the_line_that_looks_most_like_an_error(tmp_path):
    with pytest.raises(ProfileError, match="line 2 looks like an error: the gadget failed to spin"):
        told(tmp_path, "step 1\nthe gadget failed to spin\n")
    stack = (
        "Exception raised from watch at ../c10d/ProcessGroupNCCL.cpp:7 (most recent call first):\nframe #0: f() + 0x1\n"
    )
    with pytest.raises(ProfileError, match="line 1 looks like an error: Exception raised from watch at"):
        told(tmp_path, stack)
    head = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "a.py", line 3, in f\n'
    with pytest.raises(ProfileError, match="line 1 looks like an error: Traceback"):
        told(tmp_path, head)


@pytest.mark.parametrize("name", ["notes.md", "train.py", "config.yaml"])
def test_sources_and_documents_that_speak_of_errors_are_no_logs(tmp_path, name):
    with pytest.raises(ProfileError, match="its format is not known"):
        told(tmp_path, "ValueError: this is what you get\n", name)


def test_an_error_behind_many_like_lines_is_found(tmp_path):
    text = "".join(f"INFO 02-11 08:00:{n % 60:02d} [m.py:{n}] 0 errors, connected to {n} peers\n" for n in range(3000))
    found = told(tmp_path, text + "[rank7]: RuntimeError: lost it\n" + text)
    assert found.causes[0].rank == 7 and "lost it" in found.causes[0].evidence


def test_a_process_of_nccls_lines_without_a_watchdogs_text_is_counted(tmp_path):
    wait = "[rank{0}]:[E ProcessGroupNCCL.cpp:7] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, "
    wait += (
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600381 milliseconds before timing out.\n"
    )
    closed = "g1:6{0}:71 [{0}] NCCL INFO [Service thread] Connection closed by localRank 0\n"
    two, three = ("".join(closed.format(n) for n in range(ranks)) for ranks in (2, 3))
    waits = wait.format(0) + wait.format(1)
    assert "made call 3" in told(tmp_path, waits + two).causes[0].cause
    assert "Ranks 0 and 1 waited in call 3" in told(tmp_path, waits + three).causes[0].cause


def test_whom_torchrun_kills_after_its_patience_did_not_fail_first(tmp_path):
    one = "[{0}]:\n  time      : 2031-02-11_08:0{3}\n  rank      : {1} (local_rank: {1})\n  exitcode  : {2} (pid: 9)\n"
    text = "[rank1]: RuntimeError: HCCL function error: HcclReduce, error code is 5\na.py FAILED\nFailures:\n"
    ends = one.format(1, 3, 1, "0:58") + one.format(2, 0, -9, "1:29") + one.format(3, 2, -15, "1:29")
    found = told(tmp_path, text + ends + "Root Cause (first observed failure):\n" + one.format(0, 1, 1, "0:58"))
    said = " ".join(found.text().split())
    assert found.causes[0].cause == "Ranks 1 and 3 failed in the same second." and "HcclReduce" in said
    assert "rank 0 ended by signal 9 (SIGKILL, as the out-of-memory killer sends it), rank 2 otherwise, which" in said


def test_unlike_lines_that_are_marked_as_errors_are_not_counted_together(tmp_path):
    text = "[rank1]: ERROR: the gadget spins\n[rank2]: ERROR: the lamp is off\n[rank3]: ERROR: the lamp is off\n"
    cause = told(tmp_path, text).causes[0]
    assert cause.cause.startswith("Rank 1: a line is marked") and "like line" not in cause.evidence
