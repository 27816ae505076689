"""`read`: files and folders of a real job -> `Job`. The format of a file is found by looking into it, not by its
name."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock

from allranks.base.progress import Progress
from allranks.base.unpacked import PackedError
from allranks.jobs import devices, dumps, kineto, logs, nccl_files, topology, traces
from allranks.jobs.formats import Format
from allranks.jobs.job import Job, ProfileError, RankRecord, Skipped
from allranks.jobs.scan import head_of
from allranks.theory.cost.any_table import tables
from allranks.theory.cost.pair_tables import holds_pairs
from allranks.theory.cost.sweep_tables import FORMS as TABLES
from allranks.theory.cost.sweep_tables import is_row

__all__ = ["FORMATS", "read", "read_file", "sources"]

# the first that recognises a file reads it
FORMATS: tuple[Format, ...] = (
    traces.FORMAT,
    dumps.FORMAT,
    nccl_files.FORMAT,
    *devices.FORMATS,
    kineto.FORMAT,
    topology.FORMAT,
    logs.FORMAT,
)
PARALLEL_FROM = 20 << 20  # bytes in all; below, starting processes costs more than they save
Found = tuple[list[RankRecord], str]


def sources(*what: str) -> frozenset[str]:
    """The sources whose records say one of these: WORK, CALLS or STANDS of `formats`.

    >>> sorted(sources("stands"))
    ['flight recorder', 'watchdog']
    """
    return frozenset(source for form in FORMATS for source, says in form.says.items() if says in what)


def read(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Job:
    """What the files say of one job; a folder stands for the files in it. Of what can't be read, `skipped` says why.

    Several large files are read in as many processes as there are cores. Raises ProfileError if a path does not exist,
    or no file says anything of a job.

    >>> profiles.read("/nowhere")
    Traceback (most recent call last):
    allranks.jobs.job.ProfileError: there is no file /nowhere
    """
    files = _files([paths] if isinstance(paths, (str, os.PathLike)) else list(paths))
    records: list[RankRecord] = []
    skipped: list[Skipped] = []
    for path, (found, why) in zip(files, _read_all(files), strict=True):
        records += found
        if why:
            skipped.append(Skipped(str(path), why))
    if not records:
        words = "; ".join(f"{s.file}: {s.why}" for s in skipped[:5])
        raise ProfileError(f"no file says anything of a job ({words})" if skipped else "the folder holds no file")
    kept, others = _of_one_job(records)
    return Job(tuple(kept), (*skipped, *others))


def read_file(path: Path) -> Found:
    """The records of one file and "", or no record and why not.

    >>> read_file(Path("/nowhere"))
    ([], 'it can not be opened: No such file or directory')
    """
    try:
        if path.exists() and not path.is_file():
            return [], "it is no ordinary file: a pipe or a device can't be looked into"
        head = head_of(path)
        if not head:
            return [], "it is empty" if path.stat().st_size == 0 else "it is packed, and nothing of it can be unpacked"
        for form in FORMATS:
            if form.looks(path, head):
                try:
                    return list(form.read(path)), ""
                except ProfileError:
                    if form is logs.FORMAT and (other := _foreign(path, head)):
                        return [], other  # a table of another tool with lines of NCCL's between
                    raise
    except (ProfileError, PackedError) as error:
        return [], str(error)
    except OSError as error:
        return [], f"it can not be opened: {error.strerror or error}"
    except MemoryError:
        return [], "it does not fit in memory"
    except Exception as error:  # a reader's own fault must not lose the other files
        return [], f"its reader failed: {type(error).__name__}: {str(error)[:120]}"
    return [], _foreign(path, head) or f"its format is not known; {', '.join(form.name for form in FORMATS)} are"


# files of other tools: how the name ends, or what is in the first bytes, and the sentence; the first that fits is taken
_OTHERS = (
    (".xplane.pb", b"", "it is an XPlane file of JAX or XLA: give the .trace.json.gz beside it"),
    (
        "",
        rb"ROCm System Management Interface|AMDSMI|amd-smi",
        "it is the output of AMD's rocm-smi or amd-smi, which is not read",
    ),
    ("", rb"\bdcgmi diag\b|\| DCGM Version ", "it is the output of NVIDIA's dcgmi diag, which is not read"),
    ("", rb'"schema"\s*:\s*"1\.', "it is an execution trace of torch (ExecutionTraceObserver), which has no times"),
    ("", rb'"rocprofiler[-_]', "it is the output of AMD's rocprof; a profile of torch's has the same kernels"),
    (
        "",
        rb"(?s)\0.*(?:/host:CPU|/device:GPU:\d|Task Environment)",
        "it may be an XPlane file: give the .trace.json.gz beside it",
    ),
    ("", rb"device_traces|\bsegments\b", "it is a snapshot of torch's memory, which has no calls"),
    (
        "",
        rb"\| comm op: |Comm\. Op +Message Size",
        "it is the log of DeepSpeed's calls: a profile of torch's says who waited",
    ),
    (
        "",
        rb"\btime \(ms\) \| |\btimes? across ranks \(ms\):|\| elapsed[ _]time[ _]per[ _]iteration",
        "it is a log of Megatron's iterations and timers, which do not say who waited: a profile of torch's does",
    ),
    (
        "",
        rb"Time \(%\)(?: +|,)Total Time \(ns\)",
        "it is a table of nsys stats, without times of calls: nsys export -t sqlite, or nsys stats -r cuda_gpu_trace",
    ),
    (
        "",
        rb"GPU activities: +\d|==\d+== Profiling result",
        "it is a table of nvprof, without times of calls: record with nsys profile, then nsys export -t sqlite",
    ),
    (
        "",
        rb"Culprit rank \d+; Error type",
        "it is the text of torch's torchfrtrace: give the dumps that it read",
    ),
    (
        "",
        rb"Self CPU % +Self CPU",
        "it is a table of torch's profiler, without times of calls: give its export_chrome_trace",
    ),
    (".nsys-rep", rb"\ANSYS", "it is a report of Nsight Systems: export it with nsys export -t sqlite"),
    ("", rb"(?s)\A(?=.*nThread).*minBytes", "it is the output of nccl-tests: allranks fit reads it"),
    (
        "",
        rb'(?m)^(?:Current t|T)hread (?:0x)?\w+ \((?:(?:active|idle)(?:\+gil)?\)(?:: ".*")?$|most recent call first)',
        "it is what py-spy dump or Python's faulthandler prints, the stacks of one process, which are not read: a "
        "flight recorder's dumps of all ranks say who waits in which call",
    ),
    ("", rb"(?m)^#\d+ +(?:0x[0-9a-f]+ in )?\w+", "it is the stack that a debugger prints, which is not read"),
)


def _foreign(path: Path, head: bytes) -> str:
    """What a file of another tool is, in the end of a sentence; "" where that is not known."""
    text = head.decode("utf-8", "replace")
    if form := next((form for form in TABLES if form.head.search(text)), None):
        return f"it is a table of {form.tool}: allranks fit reads it"
    if sum(map(is_row, text.splitlines())) > 1:
        return "it has rows of nccl-tests: allranks fit reads them"
    if holds_pairs(text):
        return "it measures pairs of GPUs or of ranks: allranks fit reads it"
    if path.suffix not in (".py", ".json") and tables(text):
        return "it has a table of sizes with times or bandwidths: allranks fit reads it"
    for ending, pattern, words in _OTHERS:
        if (ending and path.name.endswith(ending)) or (pattern and re.search(pattern, head)):
            return words
    return ""


def _files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that the paths stand for, each once, in order."""
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise ProfileError(f"there is no file {given}")
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        found |= dict.fromkeys(p for p in inside if path == p or not _hidden(p, path))
    return list(found)


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _read_all(files: list[Path]) -> Iterable[Found]:
    """What each file holds, in the files' order; a bar shows how many are done."""
    workers = min(_cores(), len(files), 8)
    if workers < 2 or sys.platform == "emscripten" or sum(f.stat().st_size for f in files) < PARALLEL_FROM:
        return [read_file(path) for path in files]
    bar, lock = Progress(len(files), "files"), Lock()
    left = iter(enumerate(files))
    found: dict[int, Found] = {}

    def work() -> None:
        reader = _Reader()
        for number, path in left:  # a thread takes the next file when it is free; `next` of an enumerate is one step
            found[number] = reader.read(path)
            with lock:
                bar.step()
        reader.close()

    with ThreadPoolExecutor(workers) as pool:  # each thread only waits for its process
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    bar.close()
    return [found[number] for number in range(len(files))]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class _Reader:
    """A process that reads one file after the other; it neither forks this one nor imports its main module."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def read(self, path: Path) -> Found:
        """As `read_file`; a file that ends the process gets a sentence, and the next one a new process."""
        if self.process is None:
            code = f"import {__name__} as r; r.main()"
            self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.process.stdin.write(os.fsencode(path).hex().encode() + b"\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]
            found: Found = pickle.load(self.process.stdout)  # type: ignore[arg-type]  # our own process wrote it
        except (OSError, EOFError, pickle.UnpicklingError):
            ended, self.process = self.process, None
            ended.kill()
            return [], f"the process that read it ended with {ended.wait()}"
        return found

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.communicate()


def _of_one_job(records: list[RankRecord]) -> tuple[list[RankRecord], list[Skipped]]:
    """The records of the largest job, one a rank and source, in order of the ranks; the others with the reason."""
    skipped: list[Skipped] = []
    jobs: list[list[RankRecord]] = []
    for record in records:
        job = next((j for j in jobs if not any(_difference(record, other) for other in j)), None)
        if job is None:
            jobs.append([record])
        else:
            job.append(record)
    largest = max(jobs, key=len)
    for job in jobs:
        if job is not largest:
            skipped += [Skipped(r.file, f"it is of another job than {_at(largest)}: {_why(r, largest)}") for r in job]
    largest = _without_ranks_of_groups(largest)
    taken = {r.rank for r in largest if r.rank_from != "unknown"}
    free = (n for n in range(len(largest) + len(taken)) if n not in taken)
    numbered = [_renumbered(r, next(free)) if r.rank_from == "unknown" else r for r in largest]
    found: dict[tuple[int, str], RankRecord] = {}
    for record in numbered:
        first = found.setdefault((record.rank, record.source), record)
        if first is not record and (whole := _joined(first, record)):
            found[record.rank, record.source] = whole
        elif first is not record:
            skipped.append(Skipped(record.file, f"it is of rank {record.rank} too, of which {first.file} was read"))
    return [found[key] for key in sorted(found)], skipped


def _joined(one: RankRecord, other: RankRecord) -> RankRecord | None:
    """What two logs say of one rank, such as its own and another rank's or a launcher's; None where both tell its calls
    or its error, as logs of two attempts do."""
    if one.source not in (logs.LOG, logs.WATCHDOG) or (one.calls and other.calls):
        return None
    if one.facts.get("error") and other.facts.get("error"):
        return None
    facts = {**other.facts, **one.facts}
    for name in one.facts.keys() & other.facts.keys():
        if isinstance(one.facts[name], tuple):
            facts[name] = tuple(dict.fromkeys((*one.facts[name], *other.facts[name])))
        elif isinstance(one.facts[name], dict):
            facts[name] = {**other.facts[name], **one.facts[name]}
    speaker = one if one.calls or not other.calls else other
    world = one.world_size or other.world_size
    notes = tuple(dict.fromkeys((*one.notes, *other.notes)))
    return replace(speaker, calls=one.calls or other.calls, facts=facts, notes=notes, world_size=world)


def _without_ranks_of_groups(records: list[RankRecord]) -> list[RankRecord]:
    """The records; those of NCCL's logs without their ranks, where these are of small groups: two files name one."""
    mine = [r for r in records if r.source == logs.LOG and r.rank_from != "unknown"]
    files = {r.file for r in records if r.source == logs.LOG}
    worlds = {r.world_size for r in mine if r.world_size}
    if len({r.rank for r in mine}) == len(mine) and not any(len(files) > world for world in worlds):
        return records
    return [replace(r, rank_from="unknown", world_size=None) if r in mine else r for r in records]


def _why(record: RankRecord, job: list[RankRecord]) -> str:
    return next(words for other in job if (words := _difference(record, other)))


def _at(job: list[RankRecord]) -> str:
    return job[0].file if len(job) == 1 else f"the other {len(job)}"


def _difference(one: RankRecord, other: RankRecord) -> str:
    """Why the two can't be of one job; "" if they can. What one of them does not say is no difference."""
    pairs = [("a world of {} ranks", one.world_size, other.world_size)]
    pairs += [(words, one.facts.get(name), other.facts.get(name)) for words, name in _SAME]
    for words, here, there in pairs:
        if None not in (here, there) and here != there:
            return f"{words.format(here)}, not {words.format(there)}"
    if one.span and other.span and ("base_ns" in one.facts) == ("base_ns" in other.facts):
        apart = abs(_moment(one) - _moment(other))
        if apart > FAR_APART_S:
            return f"it was recorded {apart / 3600:,.0f} hours earlier or later"
    return ""


_SAME = (("backend {}", "backend"), ("NCCL {}", "nccl_version"), ("a GPU called {}", "device"))
FAR_APART_S = 2 * 3600.0  # clocks of one job's hosts differ by seconds


def _moment(record: RankRecord) -> float:
    """Seconds at which the record starts: since 1970 if the file says its base."""
    start = record.span[0] if record.span else 0.0
    return float(record.facts.get("base_ns", 0)) / 1e9 + start / 1e6


def _renumbered(record: RankRecord, rank: int) -> RankRecord:
    return replace(record, rank=rank, calls=tuple(replace(c, rank=rank) for c in record.calls))


def main() -> None:
    """Reads the files whose names come on standard input, and writes what each holds to standard output, pickled."""
    for line in sys.stdin.buffer:
        pickle.dump(read_file(Path(os.fsdecode(bytes.fromhex(line.decode())))), sys.stdout.buffer)
        sys.stdout.buffer.flush()
