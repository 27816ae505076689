"""What a job printed: the watchdog's texts, NCCL_DEBUG=INFO, and errors of ranks.

The logs of many ranks may be interleaved in one file, with a launcher's label before each line, and wrapped as a
terminal wraps them. Seen: the watchdog of torch 1.7 to 2.13 (ProcessGroupNCCL.cpp), NCCL 2.2 to 2.22 in logs and 2.4 to
2.30 in its source (src/debug.cc, init.cc, net.cc, graph/). NCCL's lines of calls, XLA's waits, HCCL's errors and
Horovod's stalls have files of their own (`coll_lines`, `xla_waits`, `hccl`, `horovod`).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks.base.errors import counted
from allranks.jobs.coll_lines import CollLines, said_of_calls
from allranks.jobs.complaints import shortened
from allranks.jobs.dumps import DTYPES
from allranks.jobs.error_lines import DIGITS, MOST_SHAPES, SENT, SIGNALS, Errors, rank_in_label, signal_of, thrown
from allranks.jobs.formats import STANDS, Format
from allranks.jobs.hccl import HcclErrors
from allranks.jobs.horovod import HorovodStalls
from allranks.jobs.job import MAX_RANKS, Call, Cause, ProfileError, RankRecord
from allranks.jobs.names import operation
from allranks.jobs.nccl_files import RAS_GROUP
from allranks.jobs.scan import lines_of
from allranks.jobs.signs import Xids, sign
from allranks.jobs.verdicts import Verdicts
from allranks.jobs.xla_waits import XlaWaits
from allranks.theory.cost.sweep_tables import is_row

__all__ = ["FORMAT", "LOG", "WATCHDOG", "read_lines"]

WATCHDOG, LOG = "watchdog", "log"
TABLE = "it has rows of nccl-tests, which are not read here: allranks fit says whether their bandwidth is normal"
NO_GROUP = "of this log"  # the group of texts that name none
MOST_WARNINGS = 1000  # different ones; addresses in them make many of one kind
MOST_LINE = 4000  # letters of a line that are looked at
_WORK = re.compile(
    r"[Cc]aught collective operat.{1,200}?(?: for work)?: Work[A-Z]*CCL\(([^()]*(?:\([^()]*\)[^()]*)*)\)"
    r"(?: ran for (\d+) milliseconds)?"
)
_RANK = re.compile(r"\[(?:[^\[\]]*\s)?[Rr]ank ?(\d+)\]")
_PG = re.compile(r"\[PG(?: ID)? (\d+)(?: PG GUID (\w+)(?:\((\w+)\))?| \((\w+)\))?")  # torch 2.4 names it without GUID
_STATUS = re.compile(
    r"(?:\bwork(?: sequence id)?: (\d+)\W+(?:PG status: )?)?[Ll]ast enqueued(?: NCCL)? work: (-?\d+),"
    r"(?: last started [^,]*,)* last completed(?: NCCL)? work: (-?\d+)"
)
_TIMEOUT = "aught collective operat"
_OF_RAS = re.compile(r"\bras/\w+\.cc:\d+ $")  # what RAS lacks stops no job
_BLOCKING = re.compile(r"\bWork Work[A-Z]*CCL\(([^()]*(?:\([^()]*\)[^()]*)*)\) timed out in ")
_DIED = re.compile(
    r"watchdog thread terminated with exception: (.*(?:CUDA error: (?!driver shutting)|INTERNAL ASSERT).*)"
)
# texts that end with numbers
_BEGUN = ("Watchdog caught", "Exception (either an error or timeout)", "at NCCL work", "ast enqueued")
_REPEATED = re.compile(r"\[repeated (\d{1,6})x across cluster\]")  # Ray prints like lines of several ranks once
_OF_A_RANK = (*_BEGUN[:2], "ast enqueued", "watchdog got stuck")  # texts before which a rank stands
# what a watchdog that gave up says beside the call
_SPOKE = ("Some NCCL operations have failed", "preparing to dump debug info", "Stack trace of the failed collective")
_BROKEN = (*_BEGUN, "watchdog got stuck")  # what a line has in it that may be a part of its text only
_STUCK = re.compile(r"[Ww]atchdog got stuck for (\d{1,12}) (milli)?second")
_EXIT = re.compile(r"\brank\s*:\s*(\d+) \(local_rank: \d+\).*")
_FAILED_LOCAL = re.compile(
    r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,4}) "
)  # torchrun, before it knows ranks
_DEATH = re.compile(r"Received (\d{1,2}|Signals\.\w+) death signal")
_OLD_LINE = re.compile(r"(:\d+:\d+ \[\d+\](?: \S+:\d+)?) (INFO|WARN) ")  # NCCL 2.0 to 2.2 does not write its name
_TASK = re.compile(
    r"srun: error: \S+: tasks? (\d[\d,-]*): (Out Of Memory|Killed|Segmentation fault[^\n]*|Aborted[^\n]*|Terminated|"
    r"Exited with exit code \d+)"
)
_CANCELLED = re.compile(r"\bCANCELLED AT \S+ (?:DUE TO (?!JOB REQUEUE|PREEMPTION)([A-Z ]+\b)|\*\*\*)")
_ASYNC = re.compile(r"Collective WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+).*raised the following async exception")
_CHANNELS = re.compile(r"(\d+) coll channels, (?:\d+ collnet channels, )?(\d+) nvls channels")
_TIMINGS = re.compile(r"Init timings.*?: rank (\d{1,7}) nranks \d+ total ([\d.]+) \((.*)\)")
_XLA_FAILED = re.compile(
    r"(?:async NCCL error: |NCCL operation .{1,200}? failed: )(.{1,300}?)"
    r"(?:; current tracing scope.*|\. Last NCCL warning\(error\) log entry \(may be unrelated\) '(.{1,300}?)'"
    r"\.?(?:;.*)?)?$"
)
# vLLM's pynccl, CuPy, TensorRT-LLM, and what torch puts into one line
_NCCL_ERROR = re.compile(r"(?:\b\w*Error: NCCL error: |\bLast error: |\bFailed, NCCL error \S+ ')(.{1,300}?)'?\s*$")
_IN_BLOCK = re.compile(r".*\b(?:traceback *: |error_file *: |host +: |rank +: )|\W*\S+ FAILED\s*$")
# of NCCL's results: the words that do not say why
_VAGUE = re.compile(
    r"unhandled (?:cuda|system) error|internal error\b|invalid (?:usage|argument)|remote process exited|nccl(?:System|"
    r"Internal|"
    r"Remote|UnhandledCuda|InvalidUsage)Error"
)
_SECOND = re.compile(r"\btime\s+: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)")
_EXITCODE = re.compile(r"exitcode\s*:\s*(-?\d+)")
# errors that tell of other ranks, or that follow from one of HCCL's
_READ_ELSEWHERE = ("monitoredBarrier", "Detected mismatch between collectives", "function error: Hccl")
_MONITORED = re.compile(r"\[Rank (\d+)\]: Ranks? ([\d, ]+?) failed to pass monitoredBarrier in (\d{1,12}) ms")
_PRINT = re.compile(
    r"[Rr]ank (\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(\d+)(?:, )?)?OpType=(\w+)"
    r"(?:, TensorShape=\[([\d, ]*)\])?(?:, TensorDtypes=(\w+))?"
)
_RESTART = re.compile(r"will restart worker group|Restarting worker group|DUE TO (?:JOB REQUEUE|PREEMPTION)")
_CLOCK = re.compile(r"\[[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)")
NEAR = 4  # so many calls apart are ranks of one group that stopped for one reason
PATIENCE_S = 25  # torchrun waits 30 s
APART_S = 60  # one process's timeouts of one moment are closer together
_SYMPTOMS = (
    "DistBackendError",
    "DistStoreError",
    "DistNetworkError",
    "ChildFailedError",
    "SignalException",
    "ProcessRaisedException",
    "CheckpointException",
    "ncclSystemError",
    "ncclRemoteError",
    "ncclInternalError",
    "ncclUnhandledCudaError",
    "ncclInvalidUsage",
)
_COMM = re.compile(r"\brank (\d+) n[rR]anks (\d+)")
_VIA = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)?\s*: \d+(?:\[\w+\])? -> \d+(?:\[\w+\])? (?:\[(?:send|receive)\] )?via "
    r"([A-Za-z][\w/().+-]*(?: [A-Za-z][\w/().+-]*)*?)(?= comm |\s*$)"
)
_RING = re.compile(
    r"NCCL INFO Channel (\d+)(?:/0*(\d+))?\s*:\s+((?:\d+\s+)*\d+)\s*$"
)  # NCCL 2.4 does not say of how many
_TUNED = re.compile(
    r"(Algorithm|Protocol|Latency/AlgBw|AllReduce|AllGather|ReduceScatter|Broadcast|Reduce)\s*\|(.+)\|\s*$"
)
_EXPECTED = re.compile(r"\s*([\d.]+)/\s*([\d.]+)\s*$")
_CHOSEN = re.compile(r"(\w+): (\d+) Bytes -> Algo (\S+) proto (\S+)(?: .*channel\S*=\{?(\d+)\.\.(\d+))?")
_ALGORITHMS = ("tree", "ring", "collnet direct", "collnet chain", "NVLS", "NVLS tree", "PAT")
_PROTOCOLS = ("LL", "LL128", "simple")

_OF_HCCL = ("EI00", "EJ00", "RankID:", "HCCL(", "hccl fftsplus task timeout")
_NO_LOGS = (".md .rst .py .ipynb .sh .c .cc .cpp .cu .h .hpp .js .ts .css .html .svg .xml .yaml .yml .toml .ini .cfg "
            ".csv .tsv .json .tex .patch .diff").split()  # fmt: skip
# what a line has in it, in small letters, that a reader here looks for; and what an error of any program has
_KNOWN = (
    "ccl|missing|straggl|/rnk:|watchdog|enqueued|fingerprint|monitoredbarrier|ei00|ej00|rankid:|ranks:|local_rank|exitcode|cancelled|srun|nvrm|"
    "oom|worker group|due to|death|stuck|waiting|/task:|member: | float |running|collective|] info | warn "
).split("|")
_ERRORS = (
    "err|fail|abort|kill|timed out|timeout|exce|sig|refus|reset|cannot|could "
    "not|unable|denied|reach|termin|assert|crash|"
    "died|exit|return code|critical|fatal|nan|heartbeat|lame|healthy|diverge|warn|memory|no space|quota|already in use|"
    "deadline|initialization|grad for|connect|broken pipe|fallen|(): |corrupt|pure virtual|block found|[e |traceback|"
    "lost comm"
).split("|")
NEAR_LINES = 12  # behind a line of interest: the rest of a text that a terminal broke, or of a launcher's block
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\x1b\b\f")  # what no text has
_GAVE_UP = Cause(
    "A watchdog of torch's gave up on a call of NCCL's, and the line that names the rank and the call is not here.",
    "look above it for Watchdog caught collective operation timeout, and for the first error of all "
    "ranks", None, 0.4, "hang",
)  # fmt: skip
_DOCKER = '{"log":'  # Docker's own files: a line of the program's in each


def _looks(path: Path, head: bytes) -> bool:
    """Whether it is a text: anything may be a log, and the reader says where nothing in it is an error or a choice."""
    if path.suffix.lower() in _NO_LOGS and not any(
        word in head for word in (b"NCCL INFO", b"NCCL WARN", b"Watchdog ca")
    ):
        return False  # sources and documents speak of errors, too
    start = head.lstrip()
    # {"..." is JSON; {'loss': ...} is what a trainer prints
    if (re.match(rb'\x80|\{\s*(?:["}]|\Z)', start) and not start.startswith(_DOCKER.encode())) or b"\0" in head:
        return False
    return len(head[:4096].translate(None, _CONTROL)) == len(head[:4096])


@dataclass
class _Rank:
    """What the log says of one rank."""

    calls: list[Call] = field(default_factory=list)
    enqueued: dict[str, int] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)
    group_of: dict[int, str] = field(default_factory=dict)  # of the works that a status line names
    stuck_s: float | None = None  # for so long its watchdog made no progress
    waited_s: float | None = None
    error: str = ""
    first: bool = False  # the launcher saw it fail first
    by_launcher: bool = False  # its error is only what the launcher says of its end
    at_once: bool = False  # others failed in the same second
    ended: str = ""  # how it was ended, where that only follows from another failure
    line: int = 0  # of its error
    told_s: float | None = None  # the clock of its last timeout
    attempt: int = 0
    spoke: bool = False  # its watchdog said that it gave up
    gave_up: bool = False  # another rank's text says that its watchdog gave up
    not_come: str = ""  # which rank waited for it in a monitored_barrier
    compared: bool = False  # its call is from a comparison before the call ran, not from a watchdog
    world: int | None = None


class _Log:
    """Collects what the lines say."""

    def __init__(self) -> None:
        self.ranks: dict[int, _Rank] = defaultdict(_Rank)
        self.version = ""
        self.networks: Counter[str] = Counter()
        self.interfaces: list[str] = []
        self.boot = ""  # the interface that NCCL before 2.4 names for all sockets
        self.missing_ib = False
        self.vias: Counter[str] = Counter()
        self.channels: dict[int, str] = {}
        self.chosen: Counter[tuple[str, str, str]] = Counter()
        self.settings: dict[str, str] = {}
        self.warnings: Counter[str] = Counter()
        self.warned: dict[str, set[int]] = defaultdict(set)  # which ranks said it, by a launcher's label
        self.now = ""  # the line that is looked at
        self.nvls: str = ""
        self.processes: set[tuple[str, str]] = set()  # the host and the number of each that NCCL's lines are of
        self.last_failed: int | None = None
        self.root = False  # whether the lines are of the launcher's block on the first failure
        # of a rank, by the launcher's block: its exit code, whether it is the root cause, and the second of its end
        self.exits: dict[int, tuple[int, bool, str]] = {}
        self.second = ""
        self.aborted = False
        self.after_last_error = False
        self.label = ""
        self.nccl = False
        self.broken = 0  # lines that begin as a timeout's text and do not go on as one
        self.known_at: int | None = None  # the line at which something was found that stops a job
        self.symptoms: set[int] = set()  # ranks that printed an error that only follows from another failure
        self.spoke = False  # a watchdog that gave up, of no rank that the line names
        self.claimed = False  # whether what this line says is known
        self.failed_call = ""  # of NCCL: an error's words that do not say why
        self.held = ""  # a line that begins such a text, until the next ones have the rest
        self.parts = 0
        self.last = ""  # the line before, of which this one may be the rest
        self.local_exits: dict[int, int] = {}  # of a machine's own numbers: the exit code
        self.stopped = ""  # the signal that ended the launcher
        self.tasks: dict[str, str] = {}  # of Slurm's tasks, in its words: how they ended
        self.out_of_memory = False  # whether Slurm's log says so of a task that it does not name
        self.in_async: dict[int, str] = {}  # the call of a rank whose communicator failed
        self.nvls_channels: tuple[int, int] | None = None
        self.starts: dict[int, tuple[float, str]] = {}  # seconds of a communicator's start, and of its parts
        self.repeated = 0  # like texts that Ray did not print
        self.tuned_by: list[str] = []  # the columns of the tuner's table
        self.algorithms: list[str] = []
        self.tuning: dict[str, list[tuple[str, float, float]]] = {}  # of an operation: the way, microseconds, GB/s
        self.not_come: dict[int, str] = {}
        self.without_gdr: Counter[str] = Counter()
        self.count = 0  # of channels
        self.fell_at = 0  # the line at which a rank's count began anew
        self.before: tuple[dict[int, _Rank], dict[int, tuple[int, bool, str]]] | None = None
        self.lines = 0
        # of communicators that RAS lists: how many ranks, and what it says of them
        self.ras: list[tuple[int, str]] = []
        self.errors = Errors()
        self.xids = Xids()
        self.rows = 0  # of a table of nccl-tests
        self.colls, self.xla, self.hccl, self.horovod = CollLines(), XlaWaits(), HcclErrors(), HorovodStalls()
        self.verdicts = Verdicts()
        # of a process and its GPU: the ranks that it has in communicators of each size
        self.comms: dict[tuple[str, str], dict[int, set[int]]] = {}

    def take(self, line: str) -> bool:
        """Files one line, or its beginning until the rest has come; whether it was of use."""
        self.lines += 1
        line = line[:MOST_LINE]
        if self.held and ("ProcessGroup" in line or "[rank" in line or self.parts == 3):
            self._give_up()  # the next text begins
        if self.held:
            self.parts += 1
            if joined := self._whole(line):
                self.held = ""
                self._file(joined)
            else:
                self.held += line.rstrip("\r\n")
            return True
        end = line.rstrip().rpartition("] ")[2]
        cut = end[:1] == "W" and _BEGUN[0].startswith(end)  # the text was wrapped within its first words
        if not cut and not _has_one(line, _BROKEN):  # as most lines
            self.last = line
            self._file(line)
            return self.claimed
        line, self.last = self._with_its_rank(line), line
        text = line.rstrip("\r\n")
        if (cut or _has_one(line, _BEGUN)) and "[" in line and not _numbers(text):
            self.held, self.parts = text + " " * (end == "Watchdog"), 0
            return True
        self._file(line)
        return True

    def skip(self, line: str) -> None:
        """Passes a line in which nothing is of interest."""
        self.lines, self.last = self.lines + 1, line

    def _with_its_rank(self, line: str) -> str:
        """The line; a text whose rank a terminal left on the line before gets that line's end back."""
        if not _has_one(line, _OF_A_RANK) or _rank_of(line) is not None:
            return line
        before = self.last.rstrip("\r\n")
        ours = "ProcessGroup" in before or before.rstrip().endswith("]")
        return before + line if ours and _rank_of(before) is not None else line

    def _whole(self, line: str) -> str:
        """The line held and this one, cut between letters or between words, if together they are whole; else ""."""
        tries = (self.held + line.strip(), f"{self.held.rstrip()} {line.strip()}")
        return next((text for text in tries if _numbers(text)), "")

    def _give_up(self) -> None:
        """Files a line that was held and has no rest."""
        held, self.held = self.held, ""
        if held:
            self._file(held)

    def _file(self, line: str) -> None:
        self.now, self.claimed = line, False
        if "NCCL INFO" in line and not self.after_last_error and "rror" not in line and "Watchdog" not in line:
            self._of_nccl(line)
            return
        if "RUNNING" in line and (comm := RAS_GROUP.match(line)) and 0 < int(comm[2]) <= MAX_RANKS:
            self.ras.append((int(comm[2]), comm[3]))
        if " float " in line and is_row(line):  # the type that nccl-tests takes by itself
            self.rows += 1
        if ("] INFO " in line or " WARN " in line) and "NCCL INFO" not in line and "NCCL WARN" not in line:
            line = _OLD_LINE.sub(r"\1 NCCL \2 ", line)
        if ("orker group" in line or "DUE TO" in line) and _RESTART.search(line):
            self._restart()
        if "Watchdog caught" in line and not _WORK.search(line):
            self.broken += 1
        self._of_nccl(line)
        if self.after_last_error and line.strip():
            text = re.sub(r"^\s*(?:\[rank\d+\]:)?\s*", "", line.removeprefix(self.label)).strip()
            known = any(text in told for told in self.warnings)
            if text and not known and not text.startswith(("Traceback", "Exception raised from")):
                self._warns(text)
        self.claimed |= self.after_last_error
        self.after_last_error = line.rstrip().endswith("Last error:")
        self.claimed |= self.after_last_error
        self.label = line.rpartition("Last error:")[0]  # of a launcher, which the next line has too
        if "monitoredBarrier" in line and (barrier := _MONITORED.search(line)):
            self.claimed = True
            for number in re.findall(r"\d{1,7}", barrier[2]):
                self.not_come[int(number)] = (
                    f"rank {barrier[1]} waited {int(barrier[3]) / 1000:,.0f} s in monitored_barrier"
                )
        if "CollectiveFingerPrint" in line:
            self.claimed = True
            self._fingerprints(line)
        if "NVRM: Xid" in line:
            self.claimed = True
            self._knows()
            self.xids.take(line)
        if "stuck" in line or "Termination timeout for `" in line:
            self.claimed = True
            self.xla.take(line)
        if _has_one(line, _OF_HCCL):
            self.claimed |= self.hccl.take(line)
            if self.claimed:
                self._knows()
        if "ranks" in line or self.horovod.listing:
            self.claimed |= self.horovod.take(line)
        self._failures(line)
        self.claimed = self.claimed or self.verdicts.take(line, self.lines)
        self.claimed = self.claimed or self.errors.take(line, self.lines)

    def _of_nccl(self, line: str) -> None:
        """What torch's watchdog and NCCL say."""
        if _TIMEOUT in line and (work := _WORK.search(line)):
            self.nccl |= "NCCL" in line
            self.claimed = True
            self._timeout(line, work[1], work[2])
            if hidden := _REPEATED.search(line):
                self.repeated = max(self.repeated, int(hidden[1]))
        elif "timed out in" in line and (work := _BLOCKING.search(line)):
            self.nccl |= "NCCL" in line
            self.claimed = True
            self._timeout(line, work[1], None)
        elif "NCCL" in line:
            self.nccl = True
            self.claimed = _has_one(line, ("NCCL INFO", "NCCL WARN", "Last error:", ": opCount "))
            self.claimed |= "ProcessGroupNCCL.cpp" in line and not _has_one(line, ("[W", "Exception raised from"))
            if ": opCount " in line:
                self.colls.take(line)
            elif "NCCL INFO" in line:
                self._info(line)
            elif "NCCL WARN" in line:
                place, _, told = line.partition("NCCL WARN ")
                if not _OF_RAS.search(place):
                    self._warns(told.strip())
            elif failed := _XLA_FAILED.search(line):
                self.claimed = True
                self._warns(failed[2] or failed[1])
            elif failed := _NCCL_ERROR.search(line):
                self.claimed = True
                self._warns(failed[1])
            if "NCCL INFO" not in line and (found := re.search(r"NCCL version ([\w.+]+)", line)):
                self.version = found[1]
        if ("ccl" in line or "NCCL" in line) and not self.claimed and (vague := _VAGUE.search(line)):
            self.claimed, self.failed_call = True, self.failed_call or shortened(line[vague.start() :])
        if "ast enqueued" in line and (status := _STATUS.search(line)) and (rank := _rank_of(line)) is not None:
            self._status(rank, _group_of(line), status[1], int(status[2]), int(status[3]))
        if "ollective timeout from" in line and (first := re.search(r"timeout from +rank (\d{1,7})\b", line)):
            if int(first[1]) < MAX_RANKS:
                self.ranks[int(first[1])].gave_up = True
        if _has_one(line, _SPOKE):
            if (rank := _rank_of(line)) is not None:
                self.ranks[rank].spoke = True
            self.spoke |= rank is None
        if "got stuck" in line and (stuck := _STUCK.search(line)) and (rank := _rank_of(line)) is not None:
            self.ranks[rank].stuck_s = int(stuck[1]) / (1000 if stuck[2] else 1)

    def _knows(self) -> None:
        self.known_at = self.known_at or self.lines

    def _warns(self, text: str) -> None:
        self._knows()
        if len(self.warnings) < MOST_WARNINGS or text in self.warnings:
            self.warnings[text] += 1
            if (rank := rank_in_label(self.now)) is not None:
                self.warned[text].add(rank)

    def _fingerprints(self, line: str) -> None:
        """Files the calls that TORCH_DISTRIBUTED_DEBUG=DETAIL found to differ: its text has those of two ranks."""
        prints = _PRINT.findall(line)
        differ = len({op for _, _, op, _, _ in prints}) > 1  # then these two met, whatever number each gives its call
        alike = differ and len({operation(op) for _, _, op, _, _ in prints}) == 1
        for number, seq, op, shape, dtype in prints:
            if len(number) > 7 or int(number) >= MAX_RANKS:
                continue
            seq = prints[0][1] if differ else seq
            # torch has several operations of one name here, such as ALLGATHER and _ALLGATHER_BASE, which do not meet
            name, elements = (op if alike else operation(op)), _elements(shape)
            call = Call(int(number), name, NO_GROUP, seq=int(seq) if seq else 1, in_elements=elements, state="started",
                        dtype=DTYPES.get(dtype, (dtype or None, 0))[0], label=op[:40])  # fmt: skip
            mine = self.ranks[int(number)]
            if not any((c.seq, c.group) == (call.seq, call.group) for c in mine.calls):
                mine.calls.append(call)
                mine.compared = True

    def _restart(self) -> None:
        """Begins a new attempt: its calls are counted from 1 again. The one before is kept until it speaks."""
        if any(r.calls or r.error or r.enqueued for r in self.ranks.values()) or self.exits:
            self.before = (self.ranks, self.exits)
            fresh = {n: _Rank(attempt=r.attempt + 1, world=r.world) for n, r in self.ranks.items()}
            attempt = max((r.attempt for r in fresh.values()), default=1)
            self.ranks, self.exits = defaultdict(lambda: _Rank(attempt=attempt), fresh), {}

    def _last_attempt(self) -> int:
        """Keeps what the last attempt said that said anything; the number of attempts."""
        if self.before and not self.exits and not any(r.calls or r.error or r.enqueued for r in self.ranks.values()):
            self.ranks, self.exits = defaultdict(_Rank, self.before[0]), self.before[1]
        last = max((r.attempt for r in self.ranks.values()), default=0)
        begin = min((r.told_s for r in self.ranks.values() if r.attempt == last and r.told_s is not None), default=0.0)
        for rank, told in self.ranks.items():
            late = self.fell_at < told.line if told.told_s is None else told.told_s > begin - APART_S
            if told.attempt < last and not late:
                self.ranks[rank] = _Rank(attempt=last, world=told.world)
        return last + 1

    def _of_communicators(self) -> None:
        """Names the ranks that NCCL's communicators name: a process's rank in its largest, where that is one number."""
        largest = max((size for sizes in self.comms.values() for size in sizes), default=0)
        for sizes in self.comms.values():
            ranks = sizes.get(largest, set())
            if len(ranks) == 1 and len(self.comms) <= largest:  # more processes than ranks: it is not the job's
                mine = self.ranks[next(iter(ranks))]
                mine.world = max(largest, mine.world or 0)

    def _ends(self) -> None:
        """How ranks ended, by the launcher's block: a failure of their own, or one that follows from another."""
        gave_up = self.aborted or any(r.calls or r.stuck_s for r in self.ranks.values())
        began = min((second for _, _, second in self.exits.values() if second), default=None)
        alike = [r for r, (code, _, second) in self.exits.items() if second == began and signal_of(code) not in SENT]
        if any(self.ranks[rank].error for rank in self.exits):
            alike = []  # the log has an error's text, which says more than the launcher's clock
        # torchrun sends SIGTERM after the first failure, and SIGKILL to those that still run after its patience
        late = {
            rank
            for rank, (code, root, second) in self.exits.items()
            if signal_of(code) == 9 and not root and began and _moment(second) - _moment(began) >= PATIENCE_S
        }
        own = {
            rank
            for rank, (code, _, _) in self.exits.items()
            if self.ranks[rank].error or not (signal_of(code) in (0, *SENT) or rank in late or signal_of(code) == 6)
        }
        for rank, (code, root, _) in self.exits.items():
            told, signal = self.ranks[rank], signal_of(code)
            name = f" ({SIGNALS[signal]})" if signal in SIGNALS else ""
            at_once = len(alike) > 1 and rank in alike  # the launcher's clock does not say which was first
            symptom = rank in self.symptoms and (own - {rank} or not root)
            follows = told.calls or symptom or not (root or at_once)
            if signal in SENT or rank in late or (signal == 6 and gave_up) or (not signal and follows):
                told.ended = f"signal {signal}{name}" if signal else f"exit code {code}"
            elif code and not told.error:
                told.by_launcher, told.at_once = True, at_once
                told.error = f"it was ended by signal {signal}{name}" if signal else f"it ended with exit code {code}"
                told.error += ", the first failure that the launcher saw" if root and not at_once else ""
            told.first = root and bool(told.error) and not told.at_once

    def _status(self, rank: int, group: str, work: str | None, enqueued: int, completed: int) -> None:
        """Files a status line; a timeout's text that names no group is of the group whose status has its number."""
        mine = self.ranks[rank]
        mine.enqueued[group] = enqueued
        if 0 <= completed <= enqueued:  # -1, or memory that was never set in torch 2.3, where no work was completed
            mine.completed[group] = completed
        if work is not None and group != NO_GROUP:
            place = next((i for i, c in enumerate(mine.calls) if c.group == NO_GROUP and c.seq == int(work)), None)
            if place is None:
                mine.group_of[int(work)] = group
            else:
                mine.calls[place] = replace(mine.calls[place], group=group)

    def _unnamed(self) -> None:
        """Gives a call without a group that of calls with the same number or a near one, where that is one."""
        named = {
            (c.seq, c.group) for told in self.ranks.values() for c in told.calls if c.group not in (None, NO_GROUP)
        }
        for told in self.ranks.values():
            for i, call in enumerate(told.calls):
                if call.group == NO_GROUP and call.seq is not None:
                    here = {group for seq, group in named if seq == call.seq}
                    here = here or {group for seq, group in named if abs((seq or 0) - call.seq) <= NEAR}
                    if len(here) == 1:
                        told.calls[i] = replace(call, group=next(iter(here)))

    def _timeout(self, line: str, work: str, ran_ms: str | None) -> None:
        rank = _rank_of(line)
        if rank is None:
            return
        said = dict(part.split("=", 1) for part in re.split(r",\s*(?=\w+(?:\(ms\))?=)", work) if "=" in part)
        # -1, of coalesced messages, is printed as the largest number
        numbers = {name: int(v) for name, v in said.items() if v.strip().isdigit() and len(v) < 19}
        op = operation(said.get("OpType", ""))
        into = numbers.get("NumelIn", _elements(said.get("TensorShape", "")))
        out = numbers.get("NumelOut", into if op in ("all_reduce", "broadcast") else None)
        mine = self.ranks[rank]
        seq = numbers.get("SeqNum")
        group = _group_of(line)
        clock = _CLOCK.search(line)
        now = _seconds(clock) if clock else None
        fell = seq is not None and any(c.group == group and (c.seq or 0) > seq for c in mine.calls)
        if fell and now is not None and mine.told_s is not None and now > mine.told_s + APART_S:
            self.fell_at = self.lines
            mine = self.ranks[rank] = _Rank(attempt=mine.attempt + 1, world=mine.world)
        mine.told_s = now
        self._knows()
        if group == NO_GROUP and seq is not None:
            group = mine.group_of.pop(seq, group)
        torn = seq is None and op == "unknown" and mine.calls  # another process wrote into it
        if not torn and not any((c.seq, c.group, c.op, c.in_elements) == (seq, group, op, into) for c in mine.calls):
            mine.calls.append(
                Call(rank, op, group, seq=seq, in_elements=into, out_elements=out, state="started",
                     label=said.get("OpType", "")[:40])
            )  # fmt: skip
        if ran_ms:
            mine.waited_s = int(ran_ms) / 1000
        many, one = (out, into) if op == "all_gather" else (into, out) if op == "reduce_scatter" else (None, None)
        if many and one and many % one == 0:
            mine.world = many // one

    def _failures(self, line: str) -> None:
        """What launchers say of ends, and errors of ranks."""
        claimed = True
        if "Root Cause" in line or line.strip().endswith("Failures:"):
            self.root = "Root Cause" in line
        elif "watchdog thread terminated with exception" in line:
            self.aborted = True
            if (died := _DIED.search(line)) and (rank := _rank_of(line)) is not None:
                self._died(line, rank, died[1])
        elif "death signal" in line and (death := _DEATH.search(line)):
            self._knows()
            self.stopped = death[1].removeprefix("Signals.")
        elif "srun: error" in line and (task := _TASK.search(line)):
            self._knows()
            self.tasks.setdefault(task[1], task[2])
        elif "oom_kill event" in line or "oom-kill event" in line:
            self.out_of_memory = True
        elif "CANCELLED AT" in line and (cancelled := _CANCELLED.search(line)):
            self._knows()
            if cancelled[1] or not (self.out_of_memory or set(self.tasks.values()) - {"Terminated"}):
                self.stopped = f"Slurm: {(cancelled[1] or 'cancelled').lower()}"  # else the rest of a step that failed
        elif "async exception" in line and (was := _ASYNC.search(line)) and (rank := _rank_of(line)) is not None:
            self.in_async[rank] = f"call {was[1]}, {operation(was[2])}"
        elif "Heartbeat monitor timed out" in line and (rank := _rank_of(line)) is not None:
            mine = self.ranks[rank]
            mine.stuck_s = mine.stuck_s or 1e-3  # for how long, another line says
        elif "exitcode: " in line and (local := _FAILED_LOCAL.search(line)):
            self._knows()
            self.local_exits[int(local[2])] = int(local[1])
        else:
            claimed = self._of_a_block(line) or self._thrown(line)
        self.claimed |= claimed

    def _of_a_block(self, line: str) -> bool:
        """Files a line of torchrun's block on a rank that ended; a logger may have made one line of it."""
        if "time " in line and (found := _SECOND.search(line)):
            self.second = found[1]
        if "(local_rank: " in line and (exited := _EXIT.search(line)) and int(exited[1]) < MAX_RANKS:
            self.last_failed = int(exited[1])
        if self.last_failed is not None and (code := _EXITCODE.search(line)):
            self._knows()
            self.exits[self.last_failed] = (int(code[1][:8]), self.root, self.second)
            self.last_failed, self.second = None, ""
            return True
        return self.last_failed is not None or (
            ("FAILED" in line or bool(self.exits)) and _IN_BLOCK.match(line) is not None
        )

    def _thrown(self, line: str) -> bool:
        """Files an exception that a rank printed: its own failure, or one that follows from another rank's."""
        if "Error" not in line and "Exception" not in line:
            return False
        rank, found = rank_in_label(line), thrown(line)
        if rank is None or found is None or "Watchdog" in line:
            return False
        known = sign(line)
        follows = known is not None and (known[1] or known[0].kind in ("hang", "missing_rank"))
        if follows or "NCCL error" in line or found[0].endswith(_SYMPTOMS) or _has_one(line, _READ_ELSEWHERE):
            self.symptoms.add(rank)
            return "NCCL" in line and not follows
        mine = self.ranks[rank]
        self._knows()
        if not mine.error:
            mine.error, mine.line = f"{found[0]}: {found[1].strip()[:160]}".rstrip(": "), self.lines
        return True

    def _died(self, line: str, rank: int, text: str) -> None:
        """Files what ended a rank's watchdog, where that is the rank's own failure and no timeout."""
        group = _group_of(line)
        own = f"[rank{rank}]" in line or group == NO_GROUP or group.endswith("default_pg")
        mine = self.ranks[rank]
        if not mine.error:
            more = "" if own else f" (rank {rank} of group {group})"
            more += "; CUDA_LAUNCH_BLOCKING=1 shows which call it was" if "illegal memory" in text else ""
            mine.error = f"its watchdog ended with {shortened(text)}{more}"
            mine.line = self.lines

    def _info(self, line: str) -> None:
        told = line.partition("NCCL INFO ")[2].strip()
        if (found := re.match(r"(?:.*\s)?(\S+?):(\d+):\d+ \[", line)) and len(self.processes) < MAX_RANKS:
            self.processes.add((found[1], found[2]))
        if comm := _COMM.search(told):
            self.colls.begins(line)
            rank, size = int(comm[1]), int(comm[2])
            if rank < size <= MAX_RANKS:
                where = re.search(r"(\S+:\d+):\d+ (\[\d+\])", line)
                process = (where[1], where[2]) if where else (str(rank), "")
                self.comms.setdefault(process, {}).setdefault(size, set()).add(rank)
        if network := re.match(r"Using (?:internal N|n)etwork (.+)", told):
            self.networks[network[1].strip()[:40]] += 1
        elif "socket.cc:" in told and told.endswith(")"):  # an error in words, of a connection that NCCL only tells of
            self._warns(told)
        elif told.startswith(("NET/IB : No device", "NET/IB: No device")):
            self.missing_ib = True
        elif (found := re.match(r"NET(?:/(\w+))? ?: (?=Using |\[\d)(?:Using )?(.*)", told)) is not None:
            names = re.findall(r"\[\d+\] ?([\w.-]+)", found[2])
            if found[1] is None and (boot := re.match(r"interface ([\w.-]+):", found[2])):
                self.boot = boot[1]
            self.interfaces = list(dict.fromkeys([*self.interfaces, *(f"{n}" for n in names)]))[:16]
        elif via := _VIA.search(told):
            self.vias[re.sub(r"/\d+(?:\(\d+\))?(?=/|$)", "", via[1])] += 1
        elif ring := _RING.search(line):
            self.channels[int(ring[1])] = " ".join(ring[3].split())
            self.count = max(self.count, int(ring[2] or 0), int(ring[1]) + 1)
        elif "|" in told and (table := _TUNED.match(told)):
            self._tuner(table[1], table[2].split("|"))
        elif chosen := _CHOSEN.search(told):
            self.chosen[chosen[1], _named(chosen[3], _ALGORITHMS), _named(chosen[4], _PROTOCOLS)] += 1
        elif (found := re.match(r"(NCCL_\w+) set by environment to (.+?)\.?$", told)) is not None:
            self.settings[found[1]] = found[2][:80]
        elif "GPU Direct RDMA" in told and "isabled" in told:
            self.without_gdr[told] += 1
        elif counts := _CHANNELS.search(told):
            self.nvls_channels = int(counts[1]), int(counts[2])
        elif started := _TIMINGS.search(told):
            self.starts[int(started[1])] = float(started[2]), started[3]
        elif "NVLS multicast support is" in told:
            self.nvls = "NVLS is not available" if "not available" in told else "NVLS is available"
        elif found := re.search(r"NCCL version ([\w.+]+)", told):
            self.version = found[1]

    def _tuner(self, row: str, cells: list[str]) -> None:
        """Files a row of the tuner's table: its heads, or what it expects of an operation by each way."""
        names = [re.sub(r"\s+", "", cell) for cell in cells]
        if row == "Algorithm":
            self.algorithms = names
        elif row == "Protocol":
            each = max(1, len(names) // max(1, len(self.algorithms)))
            self.tuned_by = [
                f"{a}/{p}" for a, p in zip((a for a in self.algorithms for _ in range(each)), names, strict=False)
            ]
        elif row == "Latency/AlgBw":
            self.tuned_by = names
        else:
            found = zip(self.tuned_by, (_EXPECTED.match(cell) for cell in cells), strict=False)
            ways = [(way, float(pair[1]), float(pair[2])) for way, pair in found if pair and float(pair[2])]
            self.tuning.setdefault(operation(row), ways)

    def said(self) -> list[str]:
        """What NCCL told of its choices, in sentences."""
        words = [f"NCCL {self.version}"] if self.version else []
        if self.networks:
            network = ", ".join(self.networks)
            if not self.interfaces and self.boot and "Socket" in self.networks:
                self.interfaces = [self.boot]
            by = f" over {', '.join(self.interfaces)}" if self.interfaces else ""
            words.append(f"network: {network}{by}" + ("; no InfiniBand device was found" if self.missing_ib else ""))
        if self.channels:
            words.append(
                f"{counted(self.count, 'channel')}; "
                f"the ring of channel {min(self.channels)}: {self.channels[min(self.channels)]}"
            )
        elif self.nvls_channels:
            words.append(f"{counted(self.nvls_channels[0], 'channel')} for collectives")
        if self.nvls_channels and not self.nvls and not self.nvls_channels[1]:
            words.append("no channel uses NVLS")
        if self.starts:
            slowest, (took, parts) = max(self.starts.items(), key=lambda start: start[1][0])
            words.append(f"the slowest start of a communicator is rank {slowest}'s: {took:g} s ({parts})")
        words += [f"rank {rank} was in {call}, when its communicator failed" for rank, call in self.in_async.items()][
            :8
        ]
        if self.vias:
            words.append("connections: " + ", ".join(f"{count} by {via}" for via, count in self.vias.most_common(6)))
        if self.nvls:
            words.append(self.nvls)
        for (op, algorithm, protocol), count in self.chosen.most_common(6):
            words.append(f"{op} was done by {algorithm} with {protocol}, {counted(count, 'time')}")
        for op, ways in list(self.tuning.items())[:4]:
            if ways:
                first, most = min(ways, key=lambda way: way[1]), max(ways, key=lambda way: way[2])
                words.append(
                    f"the tuner expects of {op}: {first[1]:g} µs at least, by {first[0]}, and an algbw of {most[2]:g} "
                    f"GB/s "
                    f"at most, by {most[0]}"
                )
        if self.settings:
            words.append(
                "set by the environment: " + ", ".join(f"{n}={v}" for n, v in sorted(self.settings.items())[:12])
            )
        words += [
            f"NCCL warns{f' {n} times' if n > 1 else ''}: {shortened(w)}" for w, n in self.warnings.most_common(8)
        ]
        return words

    def _causes(self) -> list[Cause]:
        """What lines name by themselves, without a comparison of ranks."""
        readers = (self.xids, self.xla, self.hccl, self.horovod, self.verdicts)
        return [cause for reader in readers for cause in reader.causes()]

    def records(self, name: str) -> list[RankRecord]:
        """A record for each rank that the log names."""
        self._give_up()
        if self.failed_call and not self.warnings:
            self._warns(self.failed_call)
        self._of_communicators()
        attempts = self._last_attempt()
        self._unnamed()
        self._ends()
        said = [*self.said(), *said_of_calls(self.colls.calls), *self.xla.said()]
        said += self.errors.said(self.known_at is not None)
        if self.ras:
            size, status = max(self.ras)
            said.append(f"RAS knew {counted(size, 'rank')} of the largest communicator, and says of it: {status}")
            for told in self.ranks.values():
                told.world = max(size, told.world or 0)
        causes = self._causes()
        if self.spoke and not self.ranks:
            causes.append(_GAVE_UP)
        errors = self.errors.causes(self.known_at)
        later = tuple(cause for cause in errors if cause.kind == "no_times")
        causes += [cause for cause in errors if cause not in later]
        if self.broken:
            said.append(f"of watchdogs, texts that are cut in the middle and are not read: {self.broken}")
        if self.repeated:
            said.append(
                f"Ray printed one of {self.repeated + 1} such texts, so that other ranks waited too: RAY_DEDUP_LOGS=0 "
                f"prints them all"
            )
        if attempts > 1:
            said.append(f"the log is of {attempts} attempts of the job, of which the last one is judged")
        slow = (
            bool(self.networks)
            and all("Socket" in n for n in self.networks)
            and (
                len({host for host, _ in self.processes}) > 1
                or any("NET/" in v for v in self.vias)
                or ("lo" in self.interfaces and len(self.interfaces) > 1)
            )
        )
        facts: dict[str, Any] = {
            "said": tuple(said),
            "sockets": self.interfaces or ["sockets"] if slow else None,
            "missing_ib": self.missing_ib,
            "settings": self.settings,
            "warnings": tuple(self.warnings),
            "warned": dict(self.warned),
            "without_gdr": tuple(self.without_gdr),
            "repeated": self.repeated,
            "processes": len(self.processes),
            "local_exits": self.local_exits if not self.exits else {},
            "stopped": self.stopped,
            "tasks": self.tasks,
            "out_of_memory": self.out_of_memory,
            "enqueued_calls": self.colls.calls,
            "causes": tuple(causes),
            "later": later,
            "nccl_version": self.version.split("+")[0],
        }
        facts = {k: v for k, v in facts.items() if v}
        for rank, why in self.not_come.items():
            if rank < MAX_RANKS:
                self.ranks[rank].not_come = why
        world = max((r.world for r in self.ranks.values() if r.world), default=None)
        if self.broken and not any(r.calls for r in self.ranks.values()):
            raise ProfileError(
                counted(self.broken, "line of a watchdog's text is", "lines of a watchdog's text are")
                + " cut in the middle, as where it was copied from a terminal or a page that breaks lines: give the "
                "file that the job wrote"
            )
        if self.rows > 1 and len(said) < 2 and not (self.ranks or causes or self.warnings):
            raise ProfileError(TABLE)  # of a log that names only NCCL's version, the table is what was meant
        notes = (TABLE,) if self.rows > 1 else ()
        if not self.ranks and not self.not_come:
            ends = (self.local_exits, self.stopped, self.tasks, self.out_of_memory)
            if not said and not any((*ends, causes, later)):
                raise ProfileError(
                    "its format is not known: it is a text, and no line of it is of a kind that is read: an error, a "
                    "timeout of a watchdog, NCCL's network, rings, connections, choices, calls and warnings, XLA's "
                    "waits or HCCL's errors" + (f"; {self.errors.looks_so}" if self.errors.looks_so else "")
                )
            return [RankRecord(0, name, LOG, facts=facts, rank_from="unknown", notes=notes)]
        world = world if world and world > max(self.ranks) else None
        return [  # the job's own facts stand with its first rank
            self._record(rank, name, world, {} if at else facts, () if at else notes, bool(causes))
            for at, rank in enumerate(sorted(self.ranks))
        ]

    def _record(
        self, rank: int, name: str, world: int | None, facts: dict[str, Any], notes: tuple[str, ...], explained: bool
    ) -> RankRecord:
        """What the log says of one rank, with the job's facts."""
        told = self.ranks[rank]
        mine = {
            "backend": "nccl" if self.nccl else None,
            "timed_out": bool(told.calls) and not told.compared,
            "enqueued": told.enqueued,
            "completed": told.completed,
            "stuck_s": told.stuck_s,
            "waited_s": told.waited_s,
            "error": told.error,
            "first": told.first,
            "by_launcher": told.by_launcher,
            "at_once": told.at_once,
            "ended": told.ended,
            "not_come": told.not_come,
            "gave_up": told.gave_up,
            **facts,
        }
        calls = tuple(told.calls)
        speaks = (
            told.error or told.enqueued or told.stuck_s or told.ended or told.not_come or told.spoke or told.gave_up
        )
        return RankRecord(
            rank,
            name,
            WATCHDOG if calls or speaks or not (self.nccl or explained) else LOG,
            world_size=world,
            calls=calls,
            facts={k: v for k, v in mine.items() if v},
            notes=notes,
        )


def _moment(second: str) -> float:
    """The seconds of a launcher's clock; 0 where it says none."""
    try:
        return datetime.strptime(second, "%Y-%m-%d_%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0


def _of_docker(line: str) -> str:
    """What a program printed, out of a line of Docker's JSON; the line itself where that is torn."""
    try:
        return str(json.loads(line)["log"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return line


def _numbers(text: str) -> bool:
    """Whether a watchdog's text has come to its numbers; they stand last."""
    work = _WORK.search(text)
    if "Watchdog caught" in text:
        return work is not None and (work[2] is not None or text.endswith(")"))
    return _STATUS.search(text) is not None


def _has_one(line: str, words: Iterable[str]) -> bool:
    """Whether a line has one of these words in it: a loop, as `any` takes twice as long and a log has many lines."""
    for word in words:
        if word in line:
            return True
    return False


def _elements(shape: str) -> int | None:
    """The elements of a tensor whose shape is printed, as in "4, 128"; None where it has no sizes."""
    sizes = re.findall(r"\d+", shape)
    return math.prod(map(int, sizes)) if sizes else None


def _rank_of(line: str) -> int | None:
    found = _RANK.search(line)
    number = int(found[1]) if found and len(found[1]) < 8 else None
    return number if number is not None and number < MAX_RANKS else None


def _seconds(clock: re.Match[str]) -> float:
    """The moment of a line of glog within its year, in seconds."""
    month, day, hour, minute, second = map(int, clock.groups())
    return (((month * 31 + day) * 24 + hour) * 60 + minute) * 60 + second


def _group_of(line: str) -> str:
    """The process group as a flight recorder names it; of older texts, which name none, one name for all."""
    found = _PG.search(line)
    if found is None:
        return NO_GROUP
    number = found[2] or found[1]
    name = found[3] or found[4]
    return f"{number} {name}" if name and name != "undefined" else number


def _named(number: str, names: tuple[str, ...]) -> str:
    return names[int(number)] if number.isdigit() and int(number) < len(names) else number


def read_lines(name: str, lines: Iterable[str]) -> list[RankRecord]:
    """The records of a log. Raises ProfileError where it says nothing.

    >>> line = "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
    >>> line += "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600010 milliseconds"
    >>> [record] = read_lines("a.log", [line])
    >>> record.rank, record.calls[0].op, record.calls[0].seq, record.facts["waited_s"]
    (1, 'all_reduce', 7, 600.01)
    """
    log = _Log()
    near = 0  # so many lines are looked at, as one before them was of interest
    dull: set[str] = set()  # lines without their digits: a job prints few different ones, and each very often
    for line in lines:
        shape = line.translate(DIGITS)
        if shape not in dull:
            low = line.lower()
            if _has_one(low, _KNOWN):
                near = NEAR_LINES
            elif _has_one(low, _ERRORS):
                if log.take(_of_docker(line) if line.startswith(_DOCKER) else line):
                    near = NEAR_LINES
                    continue
                dull.add(shape)
                near -= near > 0
                continue
            elif len(dull) < MOST_SHAPES:
                dull.add(shape)
        if near or log.horovod.listing:
            near -= near > 0
            log.take(_of_docker(line) if line.startswith(_DOCKER) else line)
        else:
            log.skip(line)
    return log.records(name)


def _read(path: Path) -> list[RankRecord]:
    return read_lines(str(path), lines_of(path))


FORMAT = Format("logs of torch and NCCL", _looks, _read, {WATCHDOG: STANDS})
