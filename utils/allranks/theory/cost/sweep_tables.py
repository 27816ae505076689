"""The tables of sizes and times that are known: how each one's head and rows look, and what its figures stand for.

A tool is one `Form`; `nccl_tests` reads them all in one way. nccl-tests' own definition holds for every size: one rank's
input of all_reduce, broadcast, reduce and all_to_all, all ranks' parts together of all_gather, reduce_scatter, gather and scatter.

Sources: nccl-tests 2.0 to 2.18 (src/common.cu), OSU Micro-Benchmarks 3.7 to 7.5 (c/util/osu_util_mpi.c, c/mpi/collective, c/xccl),
Intel MPI Benchmarks 2021 (src_c), CANN's hccl_test (opbase_test, common), NVSHMEM 3.4 (perftest/common/utils.cu).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from allranks.theory.cost.any_table import Column, collective_named

__all__ = ["FORMS", "NCCL_TESTS", "Form", "collective_of", "is_row", "launched", "launched_nodes", "started"]

PARTS = frozenset(("all_gather", "all_to_all", "gather", "scatter"))


@dataclass(frozen=True)
class Form:
    """A tool's table. `head` finds its head in a line; without `columns`, the head names them itself.

    `seconds` is what 1 of its times is, `means` what its columns hold that their names do not tell. `of_parts` are the
    collectives whose size is one rank's part, `unsure` those of whose size nothing is certain, and `why`. Tables that differ in
    the words `apart` are of different settings.

    >>> [form.tool for form in FORMS if form.head.search("# Size       Avg Latency(us)")]
    ['OSU Micro-Benchmarks']
    """

    tool: str
    head: re.Pattern[str]
    columns: tuple[str, ...] = ()
    seconds: float = 1e-6
    means: dict[str, Column] = field(default_factory=dict)
    of_parts: frozenset[str] = frozenset()
    apart: tuple[str, ...] = ()
    unsure: frozenset[str] = frozenset()
    why: str = ""
    general: bool = False  # whether `any_table` reads it

    @property
    def unit(self) -> str:
        """Of its times."""
        return "ms" if self.seconds == 1e-3 else "µs"

    def columns_in(self, head: re.Match[str]) -> list[str]:
        """The names of its columns, of which the head has some or all."""
        if self.columns:
            middle = (head[1] or "").replace("op", "redop").split() if head.re.groups else []
            return [name for column in self.columns for name in (middle if column == "*" else [column])]
        names = re.sub(r"\([\w/]+\)", "", head[0]).split()  # AWS Neuron's nccom-test puts the unit behind the name
        return ["time" if name.startswith(("time", "latency")) else name for name in names]


# size, count and a type, with what stands after them; MSCCL++'s tests print no type
_TYPE = r"(?:u?int(?:8|16|32|64)?|u?long(?:long)?|half|float(?:16|32|64|8\w*)?|double|b?fp?(?:8|16|32|64)\w*|bfloat16|f8\w*|(?:32|64)-bit)"
_BEGINS = r"(?<![\w.,/:+-])"
TYPED = re.compile(rf"{_BEGINS}(\d+)\s+(\d+)\s+({_TYPE}(?![a-z]).*)")
UNTYPED = re.compile(rf"{_BEGINS}(\d+)\s+(\d+)\s+(\d[\d.]*\s+\d.*)")

UNKNOWN = Form("", re.compile(r"$^"), general=True)
NCCL_TESTS = Form(
    "nccl-tests",
    re.compile(r"\bsize(?:\(B\))?\s+count(?:\(elems\))?\s.*\b(?:cpu)?time\b.*"),
)
FORMS = (
    Form(
        "NVSHMEM's perftest",
        re.compile(r"\bsize\(B\)\s+count\s+type\s.*\blatency\(us\).*\bbusbw\b.*"),
        apart=("type", "redop", "label"),
        unsure=frozenset(("all_gather", "all_to_all", "reduce_scatter")),
        why="its size is that of one part or of all, by the version of NVSHMEM, which the table does not say",
        general=True,
    ),
    NCCL_TESTS,
    Form(
        "nccl-tests of 2019",
        re.compile(r"\bbytes\s+N\s+type\s+(op|root|op\s+root)\s+time\s+algbw\s"),
        ("size", "count", "type", "*", *("time", "algbw", "busbw", "error") * 2),
        seconds=1e-3,
    ),
    Form(
        "IBM's pytorch-communication-benchmarks",
        re.compile(r"size\(MB\)\s+tavg\(usec\)"),
        means={"size": Column("size", 1e6, binary=False), "bw": Column("busbw", 1e9)},
        general=True,
    ),
    Form(
        "OSU Micro-Benchmarks",
        re.compile(r"\bSize\s+Avg Latency\(us\)"),
        of_parts=PARTS,
        general=True,
    ),
    Form(
        "Intel MPI Benchmarks",
        re.compile(r"#bytes\s+#repetitions\s+t_min\[usec\]\s+t_max\[usec\]\s+t_avg\[usec\]"),
        of_parts=PARTS,
        general=True,
        unsure=frozenset(("reduce_scatter",)),
        why="its size is that of all parts or of one, by how the benchmark was built, which the table does not say",
    ),
    Form(
        "CANN's hccl_test",
        re.compile(
            r"data_size\(Bytes\):?\s*\|\s*ave?g_time\(us\):?\s*\|\s*alg_bandwidth\(GB/s\):?\s*\|\s*check_result"
        ),
        general=True,
    ),
)

_FIGURES = re.compile(r"(?:\s\d+\.\d+){3}(?=\s|$)")


def is_row(line: str) -> bool:
    """Whether a line is a row of nccl-tests, also one without its head: size, count, type, and a time with two bandwidths.

    >>> is_row("  134217728  33554432  float  sum  -1  631.9  212.41  0.00  0"), is_row("8 2 float sum")
    (True, False)
    """
    row = TYPED.search(line)
    return row is not None and _FIGURES.search(re.sub(r"\s+", " ", row[3])) is not None


# what names the test that runs: a line of the tool's, a command line, a script's underlined title
_STARTED = (
    re.compile(r"[Cc]ollective test starting:\s*(?:\S*/)?(\w+)"),
    re.compile(
        r"(?:^|[\s/])(\w+?_perf\w*(?=\s+-)|osu_\w+|(?:all_?gather|all_?reduce|all_?to_?all\w*|broadcast|reduce|reduce_scatter|scatter)_test)(?=\s|$)"
    ),
    re.compile(r"^\W*=+\s*(\w+?_perf\w*)"),
    re.compile(r"\b(OSU (?:MPI|NCCL|RCCL|OpenSHMEM)\S* .+? Test)\b"),
    re.compile(r"# Benchmarking (\w+)"),
    re.compile(
        r"^\W*#\s*((?:reduction|broadcast|alltoall|fcollect|reducescatter)_on_stream|device_reduc\w+|(?:bcast|alltoall|fcollect)_device|shmem_\w+)\s*$"
    ),
)
_OSU = re.compile(r"OSU (?:MPI|NCCL|RCCL|OpenSHMEM)(?:-\w+)?(?: MANAGED)? (.+?) Latency Test")
_AROUND = re.compile(
    r"^[nr]ccl_|^osu_(?:xccl_)?|_(?:perf|test)(?:_\w+)?$|_on_stream$|_device$|^device_| Personalized Exchange$"
)
_PROCESSES = re.compile(r"\s(?:-np|-n|--np|--ntasks)[\s=]*(\d{1,6})\b")
_NODES = re.compile(r"\s(?:-N|--nodes)[\s=]*(\d{1,6})\b"), re.compile(r"\s--ntasks-per-node[\s=]+(\d{1,6})\b")
_PER_NODE = re.compile(r"\s(?:--?npernode|--?ppn|--ntasks-per-node|--map-by\s+ppr:)[\s=]*(\d{1,6})\b")
_HOSTS = re.compile(r"\s(?:-H|--?host)[\s=]+(\S+)")
_ALONE = re.compile(r"(?:\S*[$#%>] ?)?(?:[A-Z][A-Z0-9_]*=\S* )*(?:\S*/)?")  # before a test that no launcher starts
_EACH = re.compile(r"\s-[tg]\s*(\d{1,3})\b")


def started(line: str) -> str:
    """The name of the test that a line says begins, as the tool writes it; "" for other lines.

    >>> started("mpirun -np 8 ./all_reduce_perf -b 8"), started("# Benchmarking Bcast"), started("8 2 float")
    ('all_reduce_perf', 'Bcast', '')
    """
    return next((found[1] for pattern in _STARTED if (found := pattern.search(line))), "")


def collective_of(test: str) -> str | None:
    """Our name of the collective that a test runs; None for a test of another kind, such as alltoallv, sendrecv and osu_bw.

    >>> collective_of("alltoall_perf"), collective_of("OSU MPI-CUDA Allreduce Latency Test"), collective_of("sendrecv_perf")
    ('all_to_all', 'all_reduce', None)
    """
    osu = _OSU.fullmatch(test)
    return collective_named(_AROUND.sub("", _AROUND.sub("", osu[1] if osu else test)))


def launched(line: str, test: str) -> int | None:
    """How many ranks a command line of this test starts: its processes, times the threads and GPUs of each.

    >>> launched("mpirun -np 4 ./all_reduce_perf -g 2", "all_reduce_perf"), launched("./osu_bcast -n 4", "osu_bcast")
    (8, None)
    >>> launched("srun -n64 -N2 osu_allgather", "osu_allgather"), launched("$ ./all_reduce_perf -g 8", "all_reduce_perf")
    (64, 8)
    """
    before, _, after = line.partition(test)
    nodes, per_node = (found[1] if (found := pattern.search(before)) else None for pattern in _NODES)
    if processes := _PROCESSES.search(before):
        count = int(processes[1])
    elif nodes and per_node:
        count = int(nodes) * int(per_node)
    elif "_perf" in test and _ALONE.fullmatch(before) and (each := math.prod(map(int, _EACH.findall(after)))) > 1:
        return each  # one process with several GPUs
    else:
        return None
    return count * math.prod(map(int, _EACH.findall(after))) if "_perf" in test else count


def launched_nodes(line: str, test: str) -> int | None:
    """On how many nodes a command line starts this test; None where it does not say.

    >>> line = "mpirun -n 256 -npernode 16 -hostfile hosts ./all_reduce_perf -g 1"
    >>> launched_nodes(line, "all_reduce_perf"), launched_nodes("srun -N 4 ./all_reduce_perf -b 8", "all_reduce_perf")
    (16, 4)
    >>> launched_nodes("mpirun -np 16 -H a:8,b:8,c:8 all_reduce_perf -b 8", "all_reduce_perf")
    2
    """
    before = line.partition(test)[0]
    by_srun = re.search(r"\bsrun\s", before) is not None
    nodes = _NODES[0].search(before)
    if by_srun:
        return int(nodes[1]) if nodes else None
    found = _PROCESSES.search(before)
    processes = int(found[1]) if found else 0
    each = _PER_NODE.search(before) or nodes  # mpirun's -N is the number of a node
    if processes and each and int(each[1]) and processes % int(each[1]) == 0:
        return processes // int(each[1])
    if processes and (hosts := _HOSTS.search(before)):
        slots = [int(host.rpartition(":")[2]) if re.search(r":\d+$", host) else 1 for host in hosts[1].split(",")]
        used = sum(sum(slots[:place]) < processes for place in range(len(slots)))
        return used or None
    return None
