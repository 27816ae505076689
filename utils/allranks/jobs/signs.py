"""Lines of other programs than NCCL that name what went wrong: torch's rendezvous and gloo, UCX, JAX's coordination
service, UCCL and perftest, vLLM, Ray, and NVIDIA's driver in the kernel's log.

Seen: torch 1.9 to 2.13 (c10d/socket.cpp, TCPStore.cpp, ProcessGroupNCCL.cpp, elastic/rendezvous), UCX 1.8 to 1.15
(ib_mlx5_log.c), jaxlib 0.4 (coordination_service.cc), vLLM 0.6 to 0.11, Ray 2, NVIDIA's list of Xids.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from allranks.base.errors import listed
from allranks.jobs.job import MAX_RANKS, Cause

__all__ = ["SIGNS", "Xids", "sign"]

_WHERE = (
    "that place is --rdzv_endpoint, or MASTER_ADDR and MASTER_PORT: look whether its process runs, whether the address "
    "is one that the other hosts reach (not 127.0.0.1, not one inside a container), and at the firewall"
)
# what a line has in it; its pattern; the cause and the evidence, with the pattern's groups; how sure, and its kind. The
# group `rank` is the rank that the others wait for
_LINES: tuple[tuple[str, re.Pattern[str], str, str, float, str], ...] = tuple(
    (sign, re.compile(pattern), words, why, sure, kind)
    for sign, pattern, words, why, sure, kind in (
        (
            "client socket has timed out",
            r"client socket has timed out after (\d{1,7}) ?(?:s|seconds) while trying to connect to "
            r"\(?([^\s,)]+?)(?:, (\d+)\))?\.?\s*$",
            "A process did not reach the place where the ranks meet, in {1} s.",
            f"it tried {{2}}:{{3}}; {_WHERE}",
            0.8,
            "hang",
        ),
        (
            "clients joined",
            r"Timed out after (\d{1,7}) seconds waiting for clients\. (\d{1,7})/(\d{1,7}) clients joined",
            "Only {2} of {3} processes came to the place where the ranks meet, in {1} s.",
            "look how the others were started and whether they ended before; each must have the same number of all. "
            + _WHERE,
            0.85,
            "missing_rank",
        ),
        (
            "via c10d key-value store",
            r"\[(\d{1,7})\] is setting up NCCL communicator and ret\w+ ncclUniqueId from \[(?P<rank>\d{1,7})\]",
            "Rank {2} did not come to the first call of a group, in which rank {1} waits for it.",
            "NCCL's id of the group comes from there: look how it ended, or where it stands; ranks are the group's own",
            0.8,
            "missing_rank",
        ),
        (
            "gloo/transport/tcp",
            r"gloo/transport/tcp/\S+\] (.*(?:[Cc]onnection \w+ by|[Tt]imed out|refused|no error).{0,200})",
            "A connection of gloo's was lost: the other rank or its machine ended first, or the network failed.",
            "gloo says: {1}; look at the first error of the other ranks: the rank that says this is rarely at fault. "
            "A rank that ends before its messages were taken loses them too; GLOO_SOCKET_IFNAME names the interface",
            0.5,
            "hang",
        ),
        (
            "RendezvousTimeoutError",
            "",
            "Not all nodes came to the place where torchrun's nodes meet, in its time.",
            f"look how torchrun was started on the others. {_WHERE}",
            0.7,
            "missing_rank",
        ),
        (
            "monitoredBarrier",
            r"Rank (\d{1,7}) successfully reached monitoredBarrier, but received errors while waiting for send/recv "
            r"from rank (?P<rank>\d{1,7})",
            "Rank {2} did not pass the monitored_barrier that rank {1} reached.",
            "the connection to it was lost: look at its first error, and how it ended",
            0.8,
            "missing_rank",
        ),
        (
            "Transport retry count exceeded",
            r"Transport retry count exceeded on (\S+)",
            "A message of UCX's over {1} was never answered: the other side is dead, or the fabric or the GID is "
            "wrong.",
            "look first whether the peer's process had ended before; if not, look at the port (ibstat, cables, "
            "switches), on RoCE at UCX_IB_GID_INDEX, and try ib_write_bw between the two hosts",
            0.7,
            "hang",
        ),
        (
            "Barrier timed out",
            r"Barrier timed out\. (?:Barrier_id|Id): (\S+?)\.?(?:\s|$)",
            "Not all tasks of JAX came to a barrier, in its time.",
            "it is {1}; look at the first error of the tasks that did not come, and whether they were started",
            0.6,
            "missing_rank",
        ),
        (
            "oordination service agent",
            r"[Cc]oordination service agent in error status: (\w+)",
            "A task of JAX lost its coordination service, or never reached it: {1}.",
            "the service runs in task 0: look whether that process runs and at its first error, at "
            "coordinator_address, and at the firewall",
            0.6,
            "hang",
        ),
        (
            "odify QP",
            r"[Ff]ailed to modify QP(?: \w+)? to (RT[RS])",
            "Two cards of InfiniBand or RoCE could not be connected: one does not reach the other.",
            "the step to {1} failed: look at the GID index (show_gids), at the addresses and routes of both hosts' "
            "cards, and try ib_write_bw between them",
            0.7,
            "hang",
        ),
        (
            "NVRM: fallen off the bus",
            "",
            "The driver reports that a GPU has fallen off the bus.",
            "the line before has its number; look at power, temperature and the slot",
            0.85,
            "failed_rank",
        ),
        (
            "/task:",
            r"^\W*/job:\w+/replica:\d+/task:(?P<rank>\d{1,7})\s*$",
            "JAX's coordination service names task {1}: it did not come, or sent no heartbeat any more.",
            "look at its first error and how it ended; a task is a process of the job",
            0.8,
            "missing_rank",
        ),
        (
            "heartbeat timeout",
            r"/task:(?P<rank>\d{1,7}) heartbeat timeout",
            "Task {1} of JAX sent no heartbeat any more: it ended, or its host did not run it.",
            "look at its first error and how it ended; a step of the host that takes long delays heartbeats too "
            "(heartbeat_timeout_seconds of jax.distributed.initialize)",
            0.7,
            "missing_rank",
        ),
        (
            "shm_broadcast",
            r"No available (?:shared memory broadcast )?block found in (\d{1,7}) ?second",
            "A process of vLLM waited {1} s and more for the others: they load or compile, or one of them hangs.",
            "the line does not say which: look at the first error of the workers, and at the stack of each (py-spy "
            "dump). Some versions print it of an engine that has nothing to do, too",
            0.4,
            "hang",
        ),
        (
            "orker exit type",
            r"Worker exit type: (\w+)",
            "A worker process of Ray's ended: {1}.",
            "Ray does not say by what: look at dmesg for the out-of-memory killer and at the worker's own log "
            "(worker-*.err); what other ranks say follows from it",
            0.5,
            "failed_rank",
        ),
    )
)
SIGNS = (*(sign for sign, *_ in _LINES if sign != "/task:"), "/job:", "NVRM: Xid")  # a line that has one is looked at


def sign(line: str) -> Cause | None:
    """The cause that a line names, or None.

    >>> sign("Timed out after 901 seconds waiting for clients. 4/8 clients joined.").cause
    'Only 4 of 8 processes came to the place where the ranks meet, in 901 s.'
    """
    for mark, pattern, words, why, sure, kind in _LINES:
        if mark in line and (found := pattern.search(line)):
            said = [(text or "").strip()[:200] for text in (found[0], *found.groups())]
            rank = int(found["rank"]) if "rank" in pattern.groupindex else None
            if rank is None or rank < MAX_RANKS:
                return Cause(words.format(*said), why.format(*said).replace(":;", ";"), None, sure, kind, rank)
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
            self.of[int(found[3] or found[2])][found[1]] = None

    def causes(self) -> Iterable[Cause]:
        """A cause for each number; those that only follow are left out where others are there.

        >>> xids = Xids()
        >>> xids.take("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 1 caused by previous Xid 149")
        >>> next(iter(xids.causes())).cause
        'The driver reports Xid 149, an error of NVLink, on GPU dc:00.'
        """
        for number in [n for n in self.of if n not in (43, 45)] or list(self.of):
            what = next((words for numbers, words in _MEANINGS if number in numbers), "")
            gpus = list(self.of[number])
            where = f"GPU{'s' if len(gpus) > 1 else ''} {listed(gpus)}"
            words = f"The driver reports Xid {number}{f', {what},' if what else ''} on {where}."
            why = "nvidia-smi -q has the ranks' GPUs by these numbers; what ranks of other GPUs say follows from it. "
            why += "Look at nvidia-smi -q, dcgmi diag and NVIDIA's list of Xids before this machine gets work again"
            yield Cause(words, why, None, 0.85 if number not in _MEANINGS[0][0] else 0.6, "failed_rank")
