"""What an error's words mean, of programs other than NCCL: torch's rendezvous and gloo, UCX, JAX, vLLM, Ray, launchers,
the kernel; and what any program may say of memory, ports, connections and files. NVIDIA's driver has its Xids.

Seen: torch 1.9 to 2.13 (c10d/socket.cpp, TCPStore.cpp, ProcessGroupNCCL.cpp, TraceUtils.h, elastic/rendezvous), UCX 1.8
to 1.16 (ib_mlx5_log.c), jaxlib 0.4 (coordination_service.cc), vLLM 0.6 to 0.11, SGLang 0.4 and 0.5, Ray 2, DeepEP 1,
NVIDIA's list of Xids, and issues of these projects.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from allranks.base.errors import listed
from allranks.jobs.complaints import LOCKED
from allranks.jobs.job import MAX_RANKS, Cause

__all__ = ["Xids", "sign"]

_WHERE = (
    "that place is --rdzv_endpoint, or MASTER_ADDR and MASTER_PORT: look whether its process runs, whether the address "
    "is one that the other hosts reach (not 127.0.0.1, not one inside a container), and at the firewall"
)
_ENDED = "look at its first error and how it ended"
_OTHERS = "look at the first error of the other processes, and how they ended"
# a pattern; the cause and the evidence, with the pattern's groups; how sure, and its kind. The group `rank` is the rank
# that the others wait for. The first that fits is taken: what one program says stands before what any may say
_LINES: tuple[tuple[str, str, str, float, str], ...] = (
    (r"client socket has timed out after (\d{1,7}?)(?:000ms| ?s| ?seconds) while trying to connect to "
     r"\(?([^\s,)]+?)(?:, (\d+)\))?\.?\s*$",
     "A process did not reach the place where the ranks meet, in {1} s.", f"it tried {{2}}:{{3}}; "
     f"{_WHERE}", 0.8, "hang"),
    (r"Timed out after (\d{1,7}) seconds waiting for clients\. (\d{1,7})/(\d{1,7}) clients joined",
     "Only {2} of {3} processes came to the place where the ranks meet, in {1} s.",
     "look how the others were started and whether they ended before; each must have the same number of all. " + _WHERE,
     0.85, "missing_rank"),
    (r"\[(\d{1,7})\] is setting up NCCL communicator and ret\w+ ncclUniqueId from \[(?P<rank>\d{1,7})\]",
     "Rank {2} did not come to the first call of a group, in which rank {1} waits for it.",
     "NCCL's id of the group comes from there: look how it ended, or where it stands; ranks are the group's own", 0.8,
     "missing_rank"),
    ("RendezvousTimeoutError", "Not all nodes came to the place where torchrun's nodes meet, in its time.",
     f"look how torchrun was started on the others. {_WHERE}", 0.7, "missing_rank"),
    (r"Rank (\d{1,7}) successfully reached monitoredBarrier, but received errors while waiting for send/recv "
     r"from rank (?P<rank>\d{1,7})", "Rank {2} did not pass the monitored_barrier that rank {1} reached.",
     "the connection to it was lost: look at its first error, and how it ended", 0.8, "missing_rank"),
    (r"Transport retry count exceeded on (\S+)",
     "A message of UCX's over {1} was never answered: the other side is dead, or the fabric or the GID is wrong.",
     "look first whether the peer's process had ended before; if not, look at the port (ibstat, cables, switches), on "
     "RoCE at UCX_IB_GID_INDEX, and try ib_write_bw between the two hosts", 0.7, "hang"),
    (r"Barrier timed out\. (?:Barrier_id|Id): (\S+?)\.?(?:\s|$)", "Not all tasks of JAX came to a barrier, in its "
     "time.",
     "it is {1}; look at the first error of the tasks that did not come, and whether they were started", 0.6,
     "missing_rank"),
    (r"(?:[Cc]oordination service (?:agent in error|with) status: |(?=DEADLINE_EXCEEDED.*CoordinationService|"
     r"UNAVAILABLE: Failed to send RPC to coordination))(\w+)",
     "A task of JAX lost its coordination service, or never reached it: {1}.",
     "the service runs in task 0: look whether that process runs and at its first error, at coordinator_address, and "
     "at the firewall", 0.6, "hang"),
    (r"CoordinationService/RegisterTask", "A task of JAX did not reach its coordination service.",
     "the service runs in task 0: look whether that process runs, at coordinator_address and its port, and at the "
     "firewall", 0.7, "hang"),
    (r"backend initialization is taking more than (\S+) seconds",
     "A process of JAX has waited {1} s for its devices: on a slice of several hosts, for the other hosts' processes.",
     "the program must run on all hosts at once; look also for another process that has the TPU (/tmp/libtpu_lockfile)",
     0.6, "hang"),
    (r"[Ff]ailed to modify QP(?: \w+)? to (RT[RS])",
     "Two cards of InfiniBand or RoCE could not be connected: one does not reach the other.",
     "the step to {1} failed: look at the GID index (show_gids), at the addresses and routes of both hosts' cards, and "
     "try ib_write_bw between them", 0.7, "hang"),
    ("NVRM: fallen off the bus", "The driver reports that a GPU has fallen off the bus.",
     "the line before has its number; look at power, temperature and the slot", 0.85, "failed_rank"),
    (r"/task:(?P<rank>\d{1,7}) heartbeat timeout",
     "Task {1} of JAX sent no heartbeat any more: it ended, or its host did not run it.",
     f"{_ENDED}; a step of the host that takes long delays heartbeats too (heartbeat_timeout_seconds of "
     "jax.distributed.initialize)", 0.7, "missing_rank"),
    (r"No available (?:shared memory broadcast )?block found in (\d{1,7}) ?second",
     "A process of vLLM waited {1} s and more for the others: they load or compile, or one of them hangs.",
     "the line does not say which: look at the first error of the workers, and at the stack of each (py-spy dump). "
     "Some versions print it of an engine that has nothing to do, too", 0.4, "hang"),
    (r"did not receive grad for rank (\d{1,7})|Expected to have finished reduction in the prior iteration",
     "Parameters of the model got no gradient, so that DDP's all_reduce of them could not end.",
     "use all outputs in the loss, or find_unused_parameters=True; TORCH_DISTRIBUTED_DEBUG=DETAIL names them", 0.9,
     "failed_rank"),
    (r"store[- ]based barrier .{0,40}rank:? \d+.*world_size=",
     "A process waited for others at the start of a group: not all had come.",
     "the line has how many came, of world_size: look how the others were started and whether they ended before; more "
     "than all of them means that processes of an earlier attempt were counted too", 0.7, "missing_rank"),
    (r"store->get|wait timeout after|waitForInput|key-value store|StoreTimeout|"
     r"[Tt]imeout waiting for key",
     "A process waited for the store where the ranks meet, and what it waited for did not come in time.",
     "the store is in the process of rank 0, which may be late, busy (reading data, a checkpoint) or gone: look where "
     "it stands, and at its first error; then at MASTER_ADDR and the firewall", 0.6, "hang"),
    (r"(?i)watchdog timeout", "A watchdog ended processes that made no progress.",
     "who did not come, this text does not say: those that print it first need not be at fault. Look at the stack of "
     "each (py-spy dump) the next time, before it ends them", 0.6, "hang"),
    (r"device-side assert|Assertion `[^`']*' failed|index out of bounds.*device",
     "A kernel of the GPU found a wrong value: mostly an index out of range.",
     "look at labels, tokens and sizes of embeddings; run once on the CPU, or with CUDA_LAUNCH_BLOCKING=1, which shows "
     "the call. NCCL and other ranks that complain later only follow", 0.8, "failed_rank"),
    (r"[Kk]illed process (\d+) ?(\([^)]*\))?", "The kernel ended process {1} {2} for lack of the host's memory.",
     "which rank that is, the process' number says; look at the limit of the container or the job (Slurm's --mem), at "
     "data loaders' workers and at copies of the model on the host (each rank loads its own)", 0.9, "failed_rank"),
    (r"RendezvousClosedError", "The place where torchrun's nodes meet was closed: the others had ended, or had given "
     "up.",
     "look at the first error of the other nodes; a node that starts again after the job's end meets nobody, too", 0.7,
     "hang"),
    (r"\b[Ww]aiting (?:for|on) (.{3,100}?)(?: for|,| \(waited|:)? (?:over |more than )?(\d{2,7}) ?(?:s|sec|seconds)\b",
     "A process waits for {1}: {2} s and more.",
     "look at what it waits for: whether that was started, has what it needs (ray status: GPUs that are free), and its "
     "first error", 0.4, "hang"),
    (r"lame workers|(?:missed|no|lost) heartbeats?|heartbeat (?:was )?(?:lost|missed|failed)|unhealthy (?:worker|task|"
     r"node)s?",
     "A worker sent no heartbeat any more: it ended, its machine was taken away, or it did not run.",
     "look whether that machine still runs (a preemptible one may be taken), and at the worker's own log", 0.6,
     "missing_rank"),
    (r"[Nn]ame or service not known|failure in name resolution|ould not resolve host|nor servname provided",
     "The name of a host was not found.",
     "look whether the name is right and this host knows it (getent hosts NAME), whether the machine or pod of that "
     "name has begun, and at DNS; a launcher that tries again goes on", 0.7, "hang"),
    (r"RendezvousConnectionError|failed to send a keep-alive",
     "A node of torchrun did not reach the place where the nodes meet, or lost it.",
     f"its process is the first node's agent: {_ENDED}; {_WHERE}", 0.6, "hang"),
    (r"DeepEP .*timeout", "A rank waited in DeepEP for messages that did not come in time.",
     "look whether a rank did not come (its first error), at the network between the hosts, and whether this DeepEP "
     "fits its NVSHMEM", 0.6, "hang"),
    (r"\[([\d, ]+)\] finished collective #(\d+), but didn't join collective #(\d+)",
     "Torch's own report names rank {1}: it ended call {2}, and did not join call {3}.",
     f"torch counts here from 1, over all groups of the rank; {_ENDED}, or where it stands", 0.85, "missing_rank"),
    (r"using best-guess GPU|using GPU \d+ .*currently unknown",
     "A rank had not said which GPU is its own, and torch guessed one.",
     "ranks that guess one GPU hang: torch.cuda.set_device(local_rank), or device_id= of init_process_group",
     0.4, "hang"),
)  # fmt: skip
# what any program may say
_ANY: tuple[tuple[str, str, str, float, str], ...] = (
    (r"server socket has failed to listen(?!.*(?:EADDRINUSE|Permission|in use))",
     "A process could not open the port at which the ranks meet.", "the lines around it say why: another job or a "
     "process of an earlier run has it (ss -ltnp), or the user may not open it; choose another one (MASTER_PORT, "
     "--master_port, --main_process_port)", 0.8, "failed_rank"),
    (r"(?i)\bnan in\b|loss (?:=|is|:|became) ?nan|\bnan loss|diverged|result nan|\binf or nan|(?:inf|nan) (?:grad|"
     r"value|detect)",
     "The numbers of the model became NaN or infinite.", "this is no fault of the network: look at the rank that says "
     "it first, its data, the learning rate and the types; the same batch on another GPU tells a bad GPU from bad "
     "numbers",
     0.75, "failed_rank"),
    (r"EADDRINUSE|[Aa]ddress already in use", "A port that the job asks for is taken.",
     "another job or a process of an earlier run has it (ss -ltnp): end that one, or choose another port "
     "(MASTER_PORT, --master_port, --main_process_port; torchrun --rdzv-endpoint=localhost:0 finds a free one)", 0.85,
     "failed_rank"),
    (r"failed to bind to .*Permission denied", "A port that the job asks for may not be opened by this user.",
     "ports below 1024 are root's: choose another one (MASTER_PORT)", 0.9, "failed_rank"),
    (r"(?i)(?P<own>(?:\b\w{1,40} )?out of memory\. tried to allocate)|"
     r"(?:CUDA|HIP|NPU|XPU|GPU)\b.{0,80}out of memory|torch\.(?:cuda\.)?OutOfMemoryError|RESOURCE_EXHAUSTED|"
     r"ERROR_OUT_OF_MEMORY|"
     r"out of memory.{0,60}(?:GPU|CUDA|device)|No available memory for the cache blocks",
     "The memory of a GPU was full.", "look what else is on this GPU (nvidia-smi), and at the batch, the length of "
     "sequences, activation checkpointing and sharding; other ranks then wait for this one", 0.85, "failed_rank"),
    (r"(?i)\bibv_.{0,200}cannot allocate memory|max locked memory", *LOCKED, 0.75, "failed_rank"),
    (r"out of shared memory|insufficient shared memory",
     "The shared memory of the machine or container (/dev/shm) was full.",
     "look at df -h /dev/shm; give a container more (docker run --shm-size=8g or --ipc=host; in Kubernetes an "
     "emptyDir of medium Memory), or let data loaders have fewer workers", 0.75, "failed_rank"),
    (r"(?i)(?P<own>\boomkilled\b(?!\W{0,3}false))|oom[-_ ]?kill|is killed by signal: killed|"
     r"cannot allocate memory|std::bad_alloc|"
     r"defaultcpuallocator|\bMemoryError\b|(?:exceptions|lang)\.OutOfMemoryError|low on memory|"
     r"exceed\w* .{0,30}memory limit",
     "The host's memory was used up: a process was ended for lack of it, or got none.",
     "look at dmesg, at the limit of the container or the job (Slurm's --mem), at data loaders' workers and at copies "
     "of the model on the host (each rank loads its own)", 0.8, "failed_rank"),
    (r"No space left on device|Disk quota exceeded", "A disk is full, or /dev/shm, or a quota is used up.",
     "look at df -h and df -i of the path, at /dev/shm, and at quota", 0.8, "failed_rank"),
    (r"(?i)illegal memory access|misaligned address|unspecified launch failure|memory access fault by gpu|"
     r"illegal instruction was|CUDA_ERROR_ILLEGAL|an illegal|HW exception by GPU",
     "A kernel of a GPU used memory that it may not use, or the GPU failed.",
     "CUDA_LAUNCH_BLOCKING=1 (AMD_SERIALIZE_KERNEL=3) shows the call, compute-sanitizer the kernel; then look at dmesg "
     "for an error of the GPU", 0.7, "failed_rank"),
    (r"(?i)uncorrectable|\bECC error|fallen off the bus|gpu is lost|nvlink error|"
     r"over nvlink|cuda_error_contained|(?P<own>unable to determine the device handle)",
     "A GPU, its memory or a link failed.", "look at dmesg for Xid, at nvidia-smi -q and dcgmi diag, before this "
     "machine gets work again", 0.8, "failed_rank"),
    (r"(?i)no cuda-capable device|cuda driver version|cuda unknown error|invalid device ordinal|no hip gpus|"
     r"no nvidia driver|"
     r"system not yet initialized|devices? (?:is|are) busy or unavailable|no cuda gpus|re-initialize cuda in forked",
     "A process could not use its GPU.", "look at CUDA_VISIBLE_DEVICES and the number of processes, at the container's "
     "GPUs, the driver (nvidia-smi), at nvidia-fabricmanager on machines with NVSwitches, and whether the process was "
     "forked after CUDA was used", 0.7, "failed_rank"),
    (r"(?i)cannot open shared object|undefined symbol|ModuleNotFoundError|ImportError|symbol lookup error|"
     r"no module named", "A library, module or program was not found, or does not fit.",
     "compare the environments of all hosts (PATH, LD_LIBRARY_PATH, pip list)", 0.75, "failed_rank"),
    (r"(?i)no such file|FileNotFoundError|is not a local folder|permission denied|read-only file system|"
     r"stale file handle|"
     r"input/output error|does not exist|401 client error|gated repo|credential expired",
     "A file, a model or a right to use it was missing.", "the text names it; look whether all hosts have it", 0.6,
     "failed_rank"),
    (r"MPI error .{0,200}'?\b6'?|MPI_ERR_RANK|invalid rank", "MPI was given a rank that its world does not have.",
     "compare the number of processes (mpirun -n) with what the program or the engine was built for (tp times pp)", 0.7,
     "failed_rank"),
    (r"(?i)\bibv_\w+|ibv_create|UD mlx5|\bmlx5_\d", "A card of InfiniBand or RoCE could not be used or connected.",
     "look at ibstat and show_gids on both hosts, at the route between their cards, and at locked memory (ulimit -l)",
     0.65, "nccl_error"),
    (r"NET/OFI ", "The plugin for libfabric and EFA (aws-ofi-nccl) reported an error.",
     "compare the versions of the EFA driver, libfabric and aws-ofi-nccl on all hosts; fi_info -p efa shows the cards, "
     "FI_LOG_LEVEL=warn libfabric's own text", 0.6, "nccl_error"),
    (r"(?i)connection refused|no route to host|network is unreachable|destination is unreachable|"
     r"connectFullMesh|failed to connect|could not connect|connect\(.*failed|connect(?:ions|)\b(?: \w+)? failed",
     "A process could not connect to another one.",
     "nobody listened there (it had not begun, or had ended), or the address is not one that this host reaches "
     "(172.17.0.1 is docker0): look at that process first, then at ip addr of both hosts, at the variable that names "
     "the interface (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, UCX_NET_DEVICES), and at the firewall", 0.6, "hang"),
    (r"(?i)(?<!operation )\btimed? ?out\b|deadline[_ ]exceeded|timeouterror|no response|did not respond|"
     r"failed to receive from",
     "Something was waited for that did not come in time.",
     f"the text names who waited; who did not come may have failed or be late: {_OTHERS}", 0.5, "hang"),
)  # fmt: skip
# what follows from the end of another process, and what any program may say of that
_FOLLOW: tuple[tuple[str, str, str, float, str], ...] = (
    (r"gloo/transport/tcp/\S+\] Timed out waiting (\d{1,9}?)(?:000)?ms for \w+ operation",
     "A rank waited {1} s in gloo for a message with another rank, which did not take part.",
     "who that is, this line does not say: look which rank has no such line, at its first error, and where it stands",
     0.5, "hang"),
    (r"gloo/transport/tcp/\S+\] (.*(?:[Cc]onnection \w+ by|[Tt]imed out|[Tt]imeout|refused|no error).{0,200})",
     "A connection of gloo's was lost or not made: the other rank or its machine ended first, or the network failed.",
     "gloo says: {1}; look at the first error of the other ranks: the rank that says this is rarely at fault. A rank "
     "that ends before its messages were taken loses them too; GLOO_SOCKET_IFNAME names the interface", 0.5, "hang"),
    (r"\b(?:ORTE|PRTE)\b.{0,40}(?:lost communication|unexpectedly failed)",
     "mpirun lost a machine of the job, or its own process there.",
     "the lines below it name the node: look whether that machine runs, and at the network between the two", 0.6,
     "failed_rank"),
    (r"(?i)\bMPI_Abort(?: was invoked|\(.{0,60}- process \d)", "A process called MPI_Abort, which ends all ranks.",
     "the other ranks only follow: its own error stands before this line, or in its log", 0.6, "failed_rank"),
    (r"node has crashed|\bnode .{0,80}\b(?:dead|died)\b", "Ray lost a machine of the job, or its process of Ray's.",
     "look whether that machine runs and what its log (raylet.out, dmesg) says last", 0.6, "failed_rank"),
    (r"may have exceeded K8s pod memory limits",
     "A worker process of Ray's ended; Ray says that it may have exceeded its pod's limit of memory.",
     "look at the pod's events (OOMKilled), and at the host's memory that the process took", 0.6, "failed_rank"),
    (r"[Ww]orker exit type: (\w+)", "A worker process of Ray's ended: {1}.",
     "Ray does not say by what: look at dmesg for the out-of-memory killer and at the worker's own log (worker-*.err); "
     "what other ranks say follows from it", 0.5, "failed_rank"),
)  # fmt: skip
_ANY_FOLLOW: tuple[tuple[str, str, str, float, str], ...] = (
    (r"(?i)\b(?:died|exited|terminated|crashed) unexpectedly\b|the actor died|abort!!!|trainer process with rank",
     "A process died, and this line does not say why.", "look at its own last lines, above or in another "
     "log, and at dmesg for the out-of-memory killer", 0.5, "failed_rank"),
    (r"CalledProcessError", "A program that a process had started failed, and this line does not say why.",
     "its own error stands above, or in another log", 0.4, "no_times"),
    (r"(?i)SIGTERM|SIGINT|SIGHUP|sigquit|killing subprocess|closing signal|see stack trace|root cause above|"
     r"in a background process|ChildFailed|"
     r"ProcessRaisedException|ActorDied|RayTaskError|RayActorError|EngineDead|engine.{0,20}dead|worker died|"
     r"was aborted|"
     r"child (?:process )?(?:failed|died)|shutting down|Job step aborted|fatal signal from worker",
     "A process was ended after another one had failed, and this line does not say why that one did.",
     f"it stands above, or in another log: {_OTHERS}", 0.4, "no_times"),
    (r"(?i)connection (?:was |has been )?(?:reset|closed|aborted|lost)|broken pipe|socket closed|recvvalue failed|"
     r"remote peer exited|end of file|operation timed out|\bEOFError\b",
     "The connection to another process was lost: that process or its machine ended first, or the network failed.",
     f"the one that says this is rarely at fault: {_OTHERS}", 0.5, "hang"),
)  # fmt: skip
_TABLES = ((_LINES, False, True), (_FOLLOW, True, True), (_ANY, False, False), (_ANY_FOLLOW, True, False))
_NAMED = [
    (re.compile(pattern), words, why, sure, kind, follows, own)
    for table, follows, own in _TABLES
    for pattern, words, why, sure, kind in table
]


def sign(line: str) -> tuple[Cause, bool, bool] | None:
    """The cause that a line names, whether it only follows from another process' end, and whether these are the words
    of one program, which no other text has; None for a line without a cause.

    >>> sign("Timed out after 901 seconds waiting for clients. 4/8 clients joined.")[0].cause
    'Only 4 of 8 processes came to the place where the ranks meet, in 901 s.'
    """
    for pattern, words, why, sure, kind, follows, own in _NAMED:
        if found := pattern.search(line):
            said = [(text or "").strip()[:200] for text in (found[0], *found.groups())]
            rank = int(found["rank"]) if "rank" in pattern.groupindex else None
            if rank is None or rank < MAX_RANKS:
                why = why.format(*said).replace(":;", ";")
                own |= "own" in pattern.groupindex and found["own"] is not None
                return Cause(words.format(*said), why, None, sure, kind, rank), follows, own
    return None


# what NVIDIA's list of Xids says of those that stop jobs
_MEANINGS = (
    ((13, 31, 43, 45, 68, 69), "a program's work was stopped, mostly by its own fault, such as a wrong address"),
    ((48, 63, 64, 92, 94, 95, 140, 171, 172), "an error of the GPU's memory (ECC)"),
    ((74, *range(144, 151)), "an error of NVLink"),
    ((79,), "the GPU has fallen off the bus"),
    ((61, 62, 109, 119, 120), "the GPU's own processor does not answer"),
)
_XID = re.compile(r"NVRM: Xid \(PCI:(?:0000:)?([\da-fA-F:.]+)\): (\d{1,4})(?:.*caused by previous Xid (\d{1,4}))?")


@dataclass
class Xids:
    """The errors of GPUs in the kernel's log: of each number, the GPUs."""

    of: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, line: str) -> None:
        """Files a line; one that says which error caused it counts as that one."""
        if found := _XID.search(line):
            gpu = found[1] if any(letter.isalnum() for letter in found[1]) else ""  # cut out before it was shown
            self.of[int(found[3] or found[2])][gpu] = None

    def causes(self) -> Iterable[Cause]:
        """A cause for each number; those that only follow are left out where others are there.

        >>> xids = Xids()
        >>> xids.take("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 1 caused by previous Xid 149")
        >>> next(iter(xids.causes())).cause
        'The driver reports Xid 149, an error of NVLink, on GPU dc:00.'
        """
        for number in [n for n in self.of if n not in (43, 45)] or list(self.of):
            what = next((words for numbers, words in _MEANINGS if number in numbers), "")
            gpus = [gpu for gpu in self.of[number] if gpu]
            where = f"GPU{'s' if len(gpus) > 1 else ''} {listed(gpus)}" if gpus else "a GPU that is not named"
            words = f"The driver reports Xid {number}{f', {what},' if what else ''} on {where}."
            why = "nvidia-smi -q has the ranks' GPUs by these numbers; what ranks of other GPUs say follows from it. "
            why += "Look at nvidia-smi -q, dcgmi diag and NVIDIA's list of Xids before this machine gets work again"
            yield Cause(words, why, None, 0.85 if number not in _MEANINGS[0][0] else 0.6, "failed_rank")
