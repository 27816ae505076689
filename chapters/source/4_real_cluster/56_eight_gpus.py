# %% [markdown] name="title"
# # Eight GPUs
#
# {{here}}
#
# **You have a node with eight GPUs for one hour. Which eight measurements tell you what it can do, and whether it does it?**
#
# {{picture}}
#
# Eight GPUs, and the switch that joins them. Every arrow has a counter.
#
# **Read this first.** The authors had no node with eight GPUs: *no cell of this page has run on a GPU.* Where you have GPUs, each cell measures them. Elsewhere it runs on your CPU's ranks what can run there, and for the rest it *computes* (from NCCL's tables) or shows what others *recorded*, with the source. Each line of output begins with **measured**, **computed** or **recorded**.

# %% name="start_world"
import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

import torch
import torch.distributed as dist

from allranks import SharedMemory, World, bench, cost, plots, predict, predictions, profiles

folder = Path(tempfile.mkdtemp())
world = World()
gpus = world.ranks if world.backend == "nccl" else 0
world

# %% [markdown] name="topology"
# ## 1. Who is joined to whom
#
# `nvidia-smi topo -m` prints for each pair *how* they are joined: NV18 are 18 NVLinks, PIX is one PCIe bridge, NODE the same socket, SYS from socket to socket. A table of letters is hard to read, so draw it. (Reading and placing is folded: run the cells, and click on one to read it.)
#
# <!-- Legend: nvidia-smi topo -m. Recorded rows: github.com/sgl-project/sglang/issues/13973, where the table ends after GPU5 -->

# %% name="topo_code" jupyter={"source_hidden": true}
# the table of nvidia-smi as pairs: run this cell
CLOSENESS = {"X": 6, "NV": 5, "PIX": 4, "PXB": 3, "PHB": 2, "NODE": 1, "SYS": 0}


def joined(text):
    """(row, column) -> how they are joined, of what `nvidia-smi topo -m` prints."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)  # nvidia-smi underlines the head
    head, *rows = [line.split() for line in plain.splitlines() if re.match(r"\s*GPU\d", line)]
    names = [name for name in head if re.fullmatch(r"(GPU|NIC)\d+", name)]
    return {(row[0], name): kind for row in rows for name, kind in zip(names, row[1:], strict=False)}


def closeness(kind):
    return CLOSENESS["NV"] if kind.startswith("NV") else CLOSENESS.get(kind, 0)


# %% name="topo_read"
if gpus > 1:
    text, label = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True).stdout, "measured"
else:
    text, label = Path("../scripts/topo_8_gpus.txt").read_text(), "recorded (sglang issue 13973, six of eight rows)"
links = joined(text)
rows, names = sorted({row for row, _ in links}), list(dict.fromkeys(name for _, name in links))


# %% name="place" jupyter={"source_hidden": true}
# where each box is drawn: run this cell
def place(name):
    """GPUs on a circle, network cards on a wider one."""
    alike = {one for one in [*rows, *names] if one[:3] == name[:3]}
    turn, far = 2 * math.pi * int(name[3:]) / len(alike), 1 if name.startswith("GPU") else 1.7
    return far * math.sin(turn), far * math.cos(turn)


# %% name="topo"
figure, axes = plots.chart("", "", size=(6.4, 4.6))
near = {"color": plots.WIRE, "linewidth": 3, "label": "behind the same PCIe switch"}
LOOKS = {5: {"color": plots.INK, "linewidth": 2, "label": "NVLink"}, 4: near, 3: near}
far = {"color": plots.SOFT, "linewidth": 0.8, "label": "on the same socket"}
for (a, b), kind in links.items():
    if 0 < closeness(kind) < CLOSENESS["X"]:  # from socket to socket: no line
        look = LOOKS.get(closeness(kind), far)
        axes.plot(*zip(place(a), place(b), strict=True), "-", **{**look, "label": None})
for look in (LOOKS[5], near, far):
    axes.plot([], [], "-", **look)
box = {"boxstyle": "round", "fc": "w", "ec": plots.SOFT}
for name in dict.fromkeys([*rows, *names]):
    axes.text(*place(name), name, ha="center", va="center", fontsize=9, bbox=box, clip_on=True)
axes.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal")
axes.axis("off")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
figure

# %% name="cards"
for row in rows:
    near = [name for name in names if name.startswith("NIC") and links[row, name] in ("PIX", "PXB")]
    print(f"{label}: {row} has {', '.join(near) or 'no card'} behind its own PCIe switch")

# %% [markdown] name="topo_explained"
# No line means from socket to socket. Inside the circle all lines must be alike: on one NVSwitch every GPU is as near as any other. Outside, each GPU should have a card of its own behind its PCIe switch; a GPU without one sends over another's (PXN), or through the CPU.
#
# ## 2. Each pair
#
# Now the bandwidth of each pair, on *your* ranks: one sends, the other receives, all others are still.


# %% name="pairs"
def pair_gb_per_s(numbers):
    rank, p = dist.get_rank(), dist.get_world_size()
    tensor, row = torch.zeros(numbers), [0.0] * p
    for a in range(p):
        for b in range(p):

            def once(a=a, b=b):
                if rank == a != b:
                    dist.send(tensor, b)
                elif rank == b != a:
                    dist.recv(tensor, a)

            [took] = bench.seconds_of(once, iterations=3)
            if rank == a != b:
                row[b] = 4 * numbers / took / 1e9
    return row


# %% name="matrix"
matrix = world.run(pair_gb_per_s, 2**26 if gpus > 1 else 2**20, deadline=120)
away = [x for a, row in enumerate(matrix) for b, x in enumerate(row) if a != b]
print(f"measured on your ranks: {min(away):.2f} to {max(away):.2f} GB/s from rank to rank")
plots.matrix(matrix, "to rank (GB/s)", "from rank")

# %% [markdown] name="pairs_explained"
# On one NVSwitch all pairs are alike, and a row or column that is lower is a GPU with a broken link: `nvidia-smi nvlink -s` says which. (On CPU ranks the differences come from the machine's other work.)
#
# ## 3. Up to 4 GiB, under the roof
#
# An all-reduce has a **roof**: the link's bandwidth, as NCCL counts it. Measure far beyond the sizes of your model, since only there the curve is flat.
#
# <!-- Published rows: utils/allranks/theory/cost/static/nccl_tests.csv (Azure/AI-benchmarking-guide, ND_H100_v5_results.md). Roof: NVIDIA/nccl v2.30.7-1 src/graph/topo.h, SM90_NVLINK_BW 20.6 x 18 -->


# %% name="published_code" jupyter={"source_hidden": true}
# what others published: run this cell
def published(hardware="H100-8"):
    """Bytes and busbw (GB/s) of an all-reduce on one machine, from the measurements that the course's package holds."""
    with (resources.files("allranks") / "theory/cost/static/nccl_tests.csv").open() as file:
        rows = [
            row for row in csv.DictReader(file) if row["hardware"] == hardware and row["collective"] == "all_reduce"
        ]
    rows = [row for row in rows if row["nodes"] == "1" and row["gpus"] == "8" and "Azure" in row["source"]]
    return [(int(row["bytes"]), float(row["busbw_GBps"])) for row in rows if row["busbw_GBps"]]


# %% name="swept_sizes"
most = 2**22
if gpus > 1:  # the vector, the right sum and what is compared must fit beside each other
    most = min(2**32, *(free // 5 for free, _ in world.run(torch.cuda.mem_get_info)))
found = bench.sweep(
    world, bench.Call("all_reduce"), [4**k for k in range(5, 17) if 4**k <= most], iterations=4, warmups=1
)

sizes = [2**k for k in range(10, 33)]
tuner = [7 / 4 * n / cost.nccl_choice("all_reduce", n, "dgx-h100").us / 1e3 for n in sizes]

# %% name="roof_figure"
figure, axes = plots.chart("bytes", "busbw, GB/s", size=(8, 4.2))
axes.set_xscale("log", base=2)
axes.plot(sizes, tuner, label="computed, NCCL's tuner for 8 H100")
if rows := published():
    axes.plot(*zip(*rows, strict=True), "s", markersize=5, label="recorded, 8 H100 (Azure)")
own = [(row.size, row.busbw_gb_per_s) for row in found.rows]
you = {"color": plots.INK, "markerfacecolor": plots.THEME["you"][0], "markersize": 8, "clip_on": False}
axes.plot(*zip(*own, strict=True), "o", label="measured, your ranks", **you)
axes.axhline(370.8, linestyle="--", color=plots.SOFT)
axes.text(sizes[0], 378, "roof of a ring over 18 NVLinks: 371", fontsize=9.5)
ticks = {2**10: "1 KiB", 2**15: "32 KiB", 2**20: "1 MiB", 2**25: "32 MiB", 2**30: "1 GiB", 2**33: "8 GiB"}
axes.set(ylim=(0, None), xticks=list(ticks), xticklabels=list(ticks.values()))
axes.legend(loc="center left", frameon=False)
figure

# %% name="ends"
print(
    f"measured: {found.rows[-1].busbw_gb_per_s:.2f} GB/s at {found.rows[-1].size:,} bytes; "
    f"computed: {tuner[-1]:.0f} GB/s at 4 GiB; recorded: {rows[-1][1] if rows else 'the file is not here'} GB/s at 8 GiB"
)

# %% [markdown] name="roof_explained"
# At the end the tuner's line and the recorded points are a quarter *above* the ring's roof: with NVLS the switch adds, a GPU sends fewer bytes, and busbw counts a ring's. So busbw above 371 is no error of the measurement; it shows that NVLS ran. (Ranks on a CPU lie at the bottom.)
#
# ## 4. Take the choice away
#
# `NCCL_ALGO`, `NCCL_PROTO`, `NCCL_NVLS_ENABLE` and `NCCL_MAX_CTAS` take choices away, one at a time. They are read when a communicator is made, so each needs new processes: a script under torchrun. With `NCCL_DEBUG=INFO` and `NCCL_DEBUG_SUBSYS=TUNING` NCCL writes what it chose.
#
# <!-- NVIDIA/nccl 5067397 (2026-06-11): src/enqueue.cc:822 (the line of the choice), src/init.cc:1725 (MAX_CTAS), src/transport/nvls.cc:159 (NVLS_ENABLE, 2 by default), docs/userguide/source/env.rst -->

# %% name="guess_ring"
ring_guess = predict(
    "Eight H100s, an all-reduce of 1 GiB. Without NVLS NCCL takes the ring. How much longer does it take, by NCCL's own estimate?",
    choices=["as long", "a third longer", "twice as long"],
    title="1 GiB without NVLS",
)
ring_guess

# %% name="sweep_code" jupyter={"source_hidden": true}
# the settings, and NCCL's line about its choice: run this cell
CHOSEN = re.compile(
    r"AllReduce: (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}",
)
SETTINGS = [
    {},
    {"NCCL_ALGO": "Ring"},
    {"NCCL_ALGO": "Tree"},
    {"NCCL_PROTO": "LL"},
    {"NCCL_NVLS_ENABLE": "0"},
    {"NCCL_MAX_CTAS": "4"},
]


# %% name="swept" jupyter={"source_hidden": true}
# starts the script under torchrun: run this cell
def swept(setting, sizes, *options):
    """Microseconds of each size under these variables, and what NCCL says that it chose."""
    ranks = min(gpus, 8) or 2
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    program += ["../scripts/sweep_collective.py", *options, *map(str, sizes)]
    seen = dict.fromkeys(world.run(os.getenv, "CUDA_VISIBLE_DEVICES"))  # the GPUs of your ranks, or none
    told = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "TUNING",
        "CUDA_VISIBLE_DEVICES": ",".join(seen),
        **setting,
    }
    done = subprocess.run(program, env={**os.environ, **told}, capture_output=True, text=True, timeout=170)
    times = {int(n): float(us) for n, us in re.findall(r"^(\d+) ([\d.]+)$", done.stdout, flags=re.M)}
    chosen = {int(n): (algo, proto, int(hi) - int(lo) + 1) for n, algo, proto, lo, hi in CHOSEN.findall(done.stdout)}
    if not times:
        said = [line for line in done.stderr.splitlines() if "Error" in line]
        print("measured: nothing, for the program failed.", *said[-1:])
    return times, chosen, done.stdout


# %% name="expected"
def expected(setting, nbytes):
    """What NCCL's tuner would choose on 8 H100s: computed, without the limit of channels."""
    options = cost.nccl_options("all_reduce", nbytes, "dgx-h100", nvls=setting.get("NCCL_NVLS_ENABLE") != "0")
    algo, proto = setting.get("NCCL_ALGO", "").lower(), setting.get("NCCL_PROTO", "")
    return next(o for o in options if algo in ("", o.algorithm) and proto in ("", o.protocol))


# %% name="sweeps"
sizes = [2**10, 2**20, 2**30]
for setting in SETTINGS:
    name = " ".join(f"{k}={v}" for k, v in setting.items()) or "nothing set"
    if gpus > 1:
        times, chosen, _ = swept(setting, sizes)
        print(
            "measured:",
            f"{name:20}",
            "  ".join(f"{n:,}: {us:.0f} µs {chosen.get(n, '')}" for n, us in times.items()),
        )
    elif "NCCL_MAX_CTAS" not in setting:
        best = {n: expected(setting, n) for n in sizes}
        print(
            "computed:",
            f"{name:20}",
            "  ".join(f"{n:,}: {o.us:.0f} µs {o.algorithm} {o.protocol}" for n, o in best.items()),
        )

# %% [markdown] name="script_intro"
# The same script runs without GPUs, too: here on two new processes, so wait 10 to 25 seconds.

# %% name="script"
if gpus < 2:
    times, *_ = swept({}, [2**10, 2**20])
    print(
        "measured: the same script on two CPU ranks, Gloo:",
        "  ".join(f"{n:,}: {us:.0f} µs" for n, us in times.items()),
    )

# %% name="reveal_ring" jupyter={"source_hidden": true}
# the answer: run this cell
ring_guess.reveal(
    "a third longer",
    why="NVLS sends n + n/p bytes of a GPU instead of a ring's 1.75 n, but it can use less of the link, so only a third is gained.",
)

# %% [markdown] name="sweeps_explained"
# Three things to look for on your node: does `nothing set` win everywhere (else the tuner errs on your machine, and a tuner plugin can mend it)? Does the log's choice agree with the table? And does a protocol forced on large sizes cost as much as here? Never leave these variables in a job: the next version's choice may be better.
#
# ## 5. Count the bytes
#
# NVLink has counters of what went out and came in. Read them before and after *one* call, and they tell which algorithm ran: in a ring of $p$ GPUs each sends $2\frac{p-1}{p}\,n$ bytes, with NVLS $n + n/p$.
#
# <!-- NVML: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX (138), in KiB, scope UINT_MAX for all links: nvml.h. Bytes of NVLS: NVIDIA/nccl src/device/all_reduce.h; chapter on shared memory, section 6 -->


# %% name="counters"
def sent_bytes(numbers):
    """What this GPU's NVLinks sent in one all-reduce, by their counters; None if it has none."""
    import pynvml

    pynvml.nvmlInit()
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    gpu, field = (
        pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode()),
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    )

    def read():
        torch.cuda.synchronize()
        [counter] = pynvml.nvmlDeviceGetFieldValues(gpu, [(field, 2**32 - 1)])
        return None if counter.nvmlReturn else 1024 * counter.value.ullVal

    tensor = torch.zeros(numbers)
    dist.all_reduce(tensor)  # connects
    before = read()
    dist.all_reduce(tensor)
    after = read()
    return None if before is None or after is None else after - before


# %% name="ring_by_hand"
def ring_by_hand(numbers):
    """A ring of sends and receives: reduce-scatter, then all-gather."""
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = list(torch.ones(numbers).chunk(p))
    for step in range(2 * (p - 1)):
        out, into = (rank - step) % p, (rank - step - 1) % p
        coming = torch.empty_like(parts[into])
        ops = [
            dist.P2POp(dist.isend, parts[out].contiguous(), (rank + 1) % p),
            dist.P2POp(dist.irecv, coming, (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        parts[into] = parts[into] + coming if step < p - 1 else coming
    return torch.cat(parts).sum().item()


# %% name="guess_two"
two_guess = predict(
    "The same all-reduce on two GPUs only. With which of the two does a GPU send fewer bytes?",
    choices=["the ring", "NVLS", "both alike"],
    title="On two GPUs fewer bytes with",
)
two_guess

# %% name="ring_counted"
p, numbers = world.ranks, 2**20 // world.ranks * world.ranks
if gpus > 1:
    sent = world.run(sent_bytes, numbers)
    counted = "none on these GPUs" if None in sent else [round(s / (4 * numbers), 3) for s in sent]
    print("measured: NVLink's counters, of n:", counted)
results, trace = world.trace(ring_by_hand, numbers)
sent = sum(e.nbytes for e in trace if e.rank == 0 and "send" in e.op)
print(
    f"measured: rank 0 of the ring by hand sent {sent / (4 * numbers):.3f} n; every sum is right: {set(results) == {float(p * numbers)}}"
)

# %% name="bytes_computed"
for ranks in sorted({2, 3, p, 8}):
    print(f"computed, {ranks} ranks: a ring sends {2 * (ranks - 1) / ranks:.3f} n, NVLS {1 + 1 / ranks:.3f} n")

# %% name="reveal_two" jupyter={"source_hidden": true}
# the answer: run this cell
two_guess.reveal(
    "the ring",
    why="A ring of two sends n, and with NVLS each GPU sends its n to the switch and the half that it stores for both on top; from four GPUs on NVLS sends less.",
)

# %% [markdown] name="ran_task"
# The counters see *all* traffic of the GPU, so nothing else may run.
#
# ### Your turn
#
# Name the algorithm by what one GPU sent. A count may be a few percent too high.


# %% name="ran_mine"
def what_ran(sent, n, p):
    """ "ring" or "NVLS", by the bytes that one of p GPUs sent in an all-reduce of n bytes."""
    return "ring"  # your turn


# %% name="judge_ran"
for ranks, of_n, ran in ((8, 1.78, "ring"), (8, 1.15, "NVLS"), (4, 1.27, "NVLS"), (2, 1.53, "NVLS"), (2, 1.02, "ring")):
    said = what_ran(of_n * 2**30, 2**30, ranks)
    print(f"computed: {ranks} GPUs, one sent {of_n} n:", "right" if said == ran else f"yours says {said}")

# %% [markdown] name="ran_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def what_ran(sent, n, p):
#     counts = {"ring": 2 * (p - 1) / p * n, "NVLS": (1 + 1 / p) * n}
#     return min(counts, key=lambda name: abs(counts[name] - sent))
# ```
# </details>

# %% [markdown] name="counted_explained"
# ## 6. Before and after bucketing
#
# Which calls lie over computing, and which are alone? The same step in torch's profiler, with a bucket for each layer and with buckets of 25 MiB (about 5 s).


# %% name="profiled"
def profiled(folder, bucket_mb):
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    on_gpu, width = torch.get_default_device().type == "cuda", 4096 if torch.cuda.is_available() else 512
    layers = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(8)))
    model, batch = DistributedDataParallel(layers, bucket_cap_mb=bucket_mb), torch.randn(256, width)
    for _ in range(3):
        model(batch).square().mean().backward()
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
    with profile(activities=kinds) as seen:
        model(batch).square().mean().backward()
        if on_gpu:
            torch.cuda.synchronize()
    folder.mkdir(exist_ok=True)
    seen.export_chrome_trace(f"{folder}/rank{dist.get_rank()}.json")


# %% name="before_after"
for bucket_mb in (0.1, 25):
    world.run(profiled, folder / str(bucket_mb), bucket_mb, deadline=120)
    job = profiles.explain(profiles.read(folder / str(bucket_mb)))
    times = job.ranks[0]
    print(
        f"measured: buckets of {bucket_mb:4} MB: {times.communication_us / 1e3:7.2f} ms of communication, "
        f"{times.exposed_us / 1e3:7.2f} ms exposed, {times.compute_us / 1e3:7.2f} ms of compute"
    )

# %% [markdown] name="before_after_explained"
# On GPUs open the two files in [Perfetto](https://ui.perfetto.dev): NCCL's kernels are a row of their own, above or beside the products. On CPU ranks communication and computing share the cores, so little can be hidden there.
#
# ## 7. A product beside a collective
#
# NCCL's channels run on multiprocessors that your products want too. By the share of multiprocessors alone, a product on 132 of them (H100) takes $132/(132 - c)$ times as long beside $c$ channels.


# %% name="beside"
def beside(numbers=2**28, width=8192):
    """Milliseconds of products alone, and beside an all-reduce."""
    a, tensor = torch.randn(width, width, dtype=torch.bfloat16), torch.zeros(numbers)
    side = torch.cuda.Stream()

    def products():
        for _ in range(10):
            a @ a

    def both():
        # else it begins before the products, and before the clock
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work = dist.all_reduce(tensor, async_op=True)
        products()
        work.wait()

    alone, together = bench.seconds_of(products, both, iterations=5)
    return 1e3 * alone, 1e3 * together


# %% name="beside_run"
if gpus > 1:
    alone, together = world.run(beside, deadline=120)[0]
    print(f"measured: ten products {alone:.2f} ms alone, {together:.2f} ms beside an all-reduce of 1 GiB")
for channels in (4, 16, 24, 32):
    print(f"computed: beside {channels:2} channels of 132 multiprocessors {132 / (132 - channels):.2f} times as long")

# %% [markdown] name="beside_explained"
# The measured factor is usually not the computed one: both also share memory's bandwidth, and the clock falls if power runs out. Try it again in a session started with `NCCL_MAX_CTAS=4`.
#
# ## 8. Symmetric memory
#
# [Without messages](44_without_messages.ipynb) wrote a one-shot all-reduce: each rank reads all others' buffers and adds them. On GPUs these are the same lines, on memory that NVLink maps. torch also has it as one call, and one that lets the switch add (`multimem`).
#
# <!-- torch 2.13: distributed/_symmetric_memory/__init__.py (empty, rendezvous), _C/_distributed_c10d.pyi (get_buffer, barrier), torch.ops.symm_mem.{one_shot_all_reduce, multimem_all_reduce_}. Copy engines: NVIDIA/nccl docs/userguide, NCCL_CTA_POLICY_ZERO (2.28) -->


# %% name="one_shot"
def one_shot(numbers=4096):
    """A one-shot all-reduce: how far its sum is from all_reduce's."""
    rank, p, device = dist.get_rank(), dist.get_world_size(), torch.get_default_device()
    if device.type == "cuda":
        from torch.distributed import _symmetric_memory as symmetric

        mine = symmetric.empty(numbers, dtype=torch.float32, device=device)
        handle = symmetric.rendezvous(mine, dist.group.WORLD)
        peers = [handle.get_buffer(r, (numbers,), torch.float32) for r in range(p)]
        barrier = handle.barrier
    else:
        memory = SharedMemory(numbers)
        mine, peers, barrier = memory.tensor(rank), [memory.tensor(r) for r in range(p)], memory.barrier
    mine.copy_(torch.arange(numbers) + rank)
    barrier()  # all have written
    total = sum(peers[1:], peers[0].clone())  # the same order on every rank, so the same bits
    barrier()  # all have read
    wanted = mine.to(device, copy=True)
    dist.all_reduce(wanted)
    return (total.to(device) - wanted).abs().max().item()


# %% name="one_shot_run"
def reaches_all():
    """Whether this rank's GPU can map the memory of all others: by NVLink, or by PCIe where the driver lets it."""
    mine, count = torch.cuda.current_device(), torch.cuda.device_count()
    return all(torch.cuda.can_device_access_peer(mine, other) for other in range(count) if other != mine)


mapped = gpus > 1 and all(world.run(reaches_all))
if gpus > 1 and not mapped:
    print("measured: nothing, for these GPUs can't map each other's memory")
else:
    how = "mapped memory of the GPUs" if mapped else "shared memory of this machine"
    print(f"measured: one-shot through {how} is off by", max(world.run(one_shot)))


# %% name="kernels" jupyter={"source_hidden": true}
# which kernels a call runs on a GPU: run this cell
def kernels_of(name):
    """The GPU kernels that a call of torch's symmetric memory runs, and microseconds; none where the switch can't add."""
    from torch.distributed import _symmetric_memory as symmetric

    mine = symmetric.empty(2**16, dtype=torch.bfloat16, device=torch.get_default_device())
    handle = symmetric.rendezvous(mine, dist.group.WORLD)
    if name.startswith("multimem") and not handle.multicast_ptr:
        return [], 0.0
    call = getattr(torch.ops.symm_mem, name)
    group = dist.group.WORLD.group_name
    [took] = bench.seconds_of(lambda: call(mine, "sum", group), iterations=11)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        call(mine, "sum", group)
        torch.cuda.synchronize()
    # the profiler also has the calls of CUDA's library
    return [event.key for event in seen.key_averages() if event.device_type.name == "CUDA"], 1e6 * took


# %% name="bytes_of"
def bytes_in(nbytes, p=8):
    """Bytes that come into a GPU: one-shot, two-shot, and with a switch that adds."""
    return {"one-shot": (p - 1) * nbytes, "two-shot": 2 * (p - 1) / p * nbytes, "multimem": (1 + 1 / p) * nbytes}


# %% name="guess_shot"
shot_guess = predict(
    "128 KiB on eight GPUs: in one shot, in two shots (reduce-scatter, then all-gather), or added by the switch. Which moves the most bytes into each GPU?",
    choices=["one shot", "two shots", "the switch"],
    title="Most bytes into each GPU",
)
shot_guess

# %% name="kernels_run"
for name in ("one_shot_all_reduce", "two_shot_all_reduce_", "multimem_all_reduce_"):
    if mapped:
        kernels, took = world.run(kernels_of, name)[0]
        ran = f"took {took:.1f} µs, in {kernels}" if kernels else "can't run: no switch here adds"
        print(f"measured: {name} of 128 KiB {ran}")

# %% name="bytes_in_computed"
for name, nbytes in bytes_in(2**17).items():
    print(f"computed: {name:9} moves {nbytes / 1024:5.0f} KiB into each of 8 GPUs for 128 KiB")

# %% name="reveal_shot" jupyter={"source_hidden": true}
# the answer: run this cell
shot_guess.reveal(
    "one shot",
    why="Each GPU reads seven whole buffers. But nobody waits for a second step, so it is made for small sizes.",
)

# %% [markdown] name="symmetric_explained"
# NCCL has such kernels too, for buffers that all ranks registered as a **window**: memory of NCCL's own allocator, in a pool of torch. The log then says `[Symmetric]` and the kernel's name. With `NCCL_CTA_POLICY=ZERO` an all-gather of windows is moved by the GPU's copy engines and takes no multiprocessor: the log says `[Copy Engine]`. (On CPUs the next cell only starts the script again: 10 to 25 s.)
#
# <!-- torch 2.13: ProcessGroupNCCL.hpp:1021 registerMemPool(pool, symm). Megatron-LM d98e8a6: core/nccl_allocator.py:171. NVIDIA/nccl 5067397: src/scheduler/symmetric_sched.cc:356, src/ce_coll.cc:1435, docs/userguide/source/env.rst:688 (NCCL_CTA_POLICY, since 2.29) -->

# %% name="windows"
for setting, options in (({}, ["--window"]), ({"NCCL_CTA_POLICY": "ZERO"}, ["--window", "--all-gather"])):
    if gpus > 1:
        times, _, log = swept(setting, [2**16, 2**24], *options)
        kinds = sorted(
            set(re.findall(r"\[Symmetric\].*Kernel \w+|\[Copy Engine\].*|-> Algo \w+ proto \w+", log)),
        )
        print("measured:", *options, setting, times, kinds)
if gpus < 2:
    times, *_ = swept({}, [2**16, 2**20], "--all-gather")
    print("measured: no window without GPUs; all_gather on two CPU ranks, Gloo:", times)

# %% [markdown] name="conditions_intro"
# ## 9. Keep the conditions
#
# A figure without its conditions is worth nothing a month later. GPUs lower their clocks when they are hot or at their limit of power. The next cell prints the sweep of section 3 with its conditions in one line: save the notebook, or copy the line.

# %% name="record"
record = {
    "torch": torch.__version__,
    "ranks": world.ranks,
    "backend": world.backend,
    "when": time.strftime("%Y-%m-%d"),
}
if gpus:
    query = "name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu"
    for why in ("event", "throttle"):  # before driver 535 it had the second name
        program = [
            "nvidia-smi",
            f"--query-gpu={query},clocks_{why}_reasons.active",
            "--format=csv,noheader",
        ]
        done = subprocess.run(program, capture_output=True, text=True)
        if done.returncode == 0:
            break
    record["gpus"] = done.stdout.splitlines()
    record["nccl"] = trace.meta["nccl"]  # what the ranks used; torch.cuda.nccl.version() is what torch was built for
record["all_reduce"] = [[row.size, round(row.time_us, 1)] for row in found.rows]  # bytes, µs
print("measured:", json.dumps(record))

# %% [markdown] name="check_yourself"
# ## 10. Check yourself
#
# <details><summary>1. busbw is 460 GB/s on links of 371 GB/s. Is the clock wrong?</summary>
#
# No. busbw counts the bytes of a ring. NVLS sends fewer, so the number exceeds the link; only NVLink's own counters tell what the link carried.
# </details>
#
# <details><summary>2. One row of the pairs' matrix is lower, its column too. What is it?</summary>
#
# One GPU, or its links. If only one pair is lower, in both directions, it is the pair's path; on one NVSwitch that can't be.
# </details>
#
# <details><summary>3. A product takes longer beside a collective than alone. Which two limits would you look at before you reduce channels?</summary>
#
# Memory's bandwidth and the clock: compare clocks and power in the record of both runs.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Eight measurements: the topology as a picture, each pair, sweeps to 4 GiB under the roof, choices taken away one at a time, bytes counted by the links, profiles before and after, a product beside a collective, and symmetric memory. Keep the conditions with them. **Write down what you expect before each one: where the measurement is different, you learn something about the node or about your model of it.**
#
# **On your own cluster.** Run this page on each new node, keep the line of section 9, and compare nodes with each other: the odd one out is the one to repair.
#
# **Next question:** the node is known. What does your job wait for? [Your own job](48_your_own_job.ipynb)
#
# **Sources.** [NVIDIA, NCCL](https://github.com/NVIDIA/nccl) 2.30.7 ·
# [NVIDIA, nccl-tests: performance](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) ·
# [NVIDIA, NVML](https://docs.nvidia.com/deploy/nvml-api/index.html) ·
# [Azure, AI benchmarking guide](https://github.com/Azure/AI-benchmarking-guide) (recorded rows) ·
# [PyTorch, symmetric memory](https://docs.pytorch.org/docs/stable/symmetric_memory.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
shutil.rmtree(folder)
world.stop()

# %% name="done"
from allranks import done

done("56")
