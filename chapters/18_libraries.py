# %% [markdown] name="title"
# # Libraries
#
# **A training script uses NCCL on 64 GPUs. Its tests should run on a laptop, a partner has AMD GPUs, and the physics group next door speaks MPI. Which of
# its lines must change, and which of its results change although no line did?**
#
# 45 minutes · CPU ok, 2 or more GPUs better · before it: [Point to point](02_point_to_point.ipynb), [All-reduce](07_all_reduce.ipynb)

# %% name="start_world"
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from ipywidgets import FloatText, IntText, SelectMultiple

from allranks import World, ask, bench, check, cost, wire
from allranks.player import Player

world = World(ranks=4)
world

# %% [markdown] name="here"
# ## 1. One interface, many libraries
#
# `torch.distributed` moves no bytes. It hands each call to a **backend**, and the backend calls a library. **Predict**: which of these five can *this* machine's torch use? (Ctrl and click.)

# %% name="guess_here"
guess = SelectMultiple(options=["gloo", "mpi", "nccl", "ucc", "xccl"])
guess

# %% name="inspect"
for name, devices in sorted(dist.Backend.backend_capability.items()):
    if name != "fake":  # for tests: it moves nothing
        there = dist.is_backend_available(name)
        print(f"{name:6} for {'/'.join(devices):10} {'available' if there else 'not in this build of torch'}")
print(f"for tensors on the CPU torch takes {dist.Backend.default_device_backend_map['cpu']}, on cuda", end=" ")
print(f"{dist.Backend.default_device_backend_map['cuda']}; this world runs {world.backend}")

# %% [markdown] name="libraries"
# | library | moves data between | name in torch | choose it |
# |---|---|---|---|
# | **NCCL** | NVIDIA GPUs: NVLink, PCIe, InfiniBand, sockets | `nccl` | for NVIDIA GPUs |
# | **RCCL** | AMD GPUs: xGMI, PCIe, InfiniBand, sockets | `nccl` (same interface) | for AMD GPUs |
# | **oneCCL** | Intel GPUs and CPUs | `xccl` | for Intel GPUs |
# | **Gloo** | CPUs by TCP; GPU tensors for most operations | `gloo` | on CPUs; for tests; *beside* NCCL, for objects and `monitored_barrier` |
# | **MPI** | whatever its implementation supports: a standard (Open MPI, MPICH, ...) | `mpi`, if torch was built with it | where the program is an MPI program already |
# | **UCC** | CPUs and GPUs, by others: UCX, NCCL, RCCL, SHARP | `ucc`, if built with it | where it comes with MPI or with the network's software |
# | **NVSHMEM** | memory of NVIDIA GPUs, by `put` and `get` from *within* a kernel | no backend | to write kernels that communicate |
#
# A wheel from PyPI or pytorch.org has Gloo, and NCCL if it is one for CUDA. MPI needs a build from source. (torchcomms, with backends of its own, is a new interface that its README calls experimental. In torch 2.15 the name `nccl` stands for a rewritten backend, `nccl-legacy` for the one before.)
#
# The next program names no backend. We run it on this world's library and on the **wire**, this course's own backend, which is written in Python. **Predict**: the results agree ...

# %% name="guess_agree"
guess = ask("to the last bit", "up to rounding", "not at all")
guess


# %% name="two_backends"
def program():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    x = torch.randn(1000)
    dist.all_reduce(x)
    sending = dist.isend(x[:100], (rank + 1) % p)
    dist.recv(x[100:200], (rank - 1) % p)
    sending.wait()
    return dist.get_backend(), x.cpu()


# %% name="two_runs"
(live, live_trace), on_wire = world.trace(program), wire.run(program, ranks=world.ranks)
calls = [sorted((e.op, e.nbytes) for e in t if e.op != "wait") for t in (live_trace, on_wire.trace)]
one, other = live[0][1], on_wire.results[0][1]
print(f"{world.backend} and {on_wire.results[0][0]}: the same calls: {calls[0] == calls[1]},", end=" ")
print(f"results differ by at most {(one - other).abs().max():.0e}")
print(f"rank 0 and the last on {world.backend}: differ by {(one - live[-1][1]).abs().max():g}")
Player(live_trace)

# %% [markdown] name="agree_explained"
# The calls are those in the picture; what messages an all-reduce is made of is the library's affair. It adds in its own order, so results agree up to rounding (with two ranks there is only one order). Between the ranks of *one* run nothing differs. So: **no line changes but the name of the backend, and tests that compare bits with another library are wrong.**
#
# ## 2. What each can do
#
# | (torch's documentation) | Gloo, CPU | Gloo, GPU | NCCL, GPU | MPI, CPU |
# |---|---|---|---|---|
# | send, recv | yes | no | yes | yes |
# | broadcast, all_reduce, reduce, all_gather, gather, scatter, all_to_all | yes | yes | yes | yes |
# | reduce_scatter | yes | yes | yes | **no** |
# | barrier | yes | no | yes | yes |
#
# So "Gloo is for CPUs" is half true, and NCCL takes no CPU tensors at all. The table is silent about dtypes. **Predict**: which of these can your backend not even *broadcast*?

# %% name="guess_dtype"
guess = SelectMultiple(options=["float16", "bfloat16", "float8_e5m2", "int16", "bool", "complex64"])
guess


# %% name="try_dtypes"
def attempt(dtype, op):
    x = torch.ones(3).to(getattr(torch, dtype))
    try:
        dist.broadcast(x, 0) if op == "broadcast" else dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
    except (RuntimeError, ValueError, TypeError):
        return "no"
    right = dist.get_world_size() if op == "SUM" and dtype != "bool" else 1
    return "yes" if (x.float() if dtype.startswith("float8") else x).eq(right).all() else "wrong"


def attempts(dtypes, ops):
    return {dtype: [attempt(dtype, op) for op in ops] for dtype in dtypes}


dtypes = ["float32", "float16", "bfloat16", "float8_e5m2", "int64", "int16", "uint8", "bool", "complex64"]
ops = ["broadcast", "SUM", "AVG", "MAX", "BAND"]
print(f"{world.backend:12}" + "".join(f"{op:>11}" for op in ops))
for dtype, row in world.run(attempts, dtypes, ops)[0].items():
    print(f"{dtype:12}" + "".join(f"{word:>11}" for word in row))

# %% [markdown] name="dtypes_explained"
# A broadcast does no arithmetic, and yet Gloo (torch 2.13) refuses `int16` and float8: it has no name for them. NCCL knows both kinds of float8, but no 16-bit integers either. To *move* such a tensor,
# show it as bytes: `x.view(torch.uint8)`. Complex numbers torch hands on as pairs of reals, so they can be added, not compared.
#
# `AVG` of integers is refused. **Predict** what is in the tensor after the refusal, if each rank brings 100.

# %% name="guess_avg"
guess = IntText(description="value:")
guess

# %% name="refused_avg"
# %%ranks
x = torch.full((1,), 100, dtype=torch.int32)
try:
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
except RuntimeError as error:
    print(error)
print("now", x.item())

# %% [markdown] name="refused_explained"
# If yours is the sum, the backend added first and failed at the division: an error *after* the damage. Who catches it and goes on has a wrong number.
#
# And `bool`? "Did any rank see a NaN?" is often asked by a `SUM` of flags. All flags below are `True`, and the call is repeated on its own result. **Predict** what it says after eight times.

# %% name="guess_bool"
guess = ask("True", "False", "8")
guess

# %% name="bool_sum"
# %%ranks
flag, seen = torch.ones(1, dtype=torch.bool), []
for _ in range(8):
    dist.all_reduce(flag)
    seen.append(f"{flag.item()} ({flag.view(torch.uint8).item()})")
print("\n".join(seen))

# %% [markdown] name="bool_explained"
# In brackets is the byte underneath. Gloo adds bytes: with four ranks 4, 16, 64, and then 256, for which a byte has no room. On 256 ranks the *first* sum would say `False`. (With an odd number of ranks it never happens.) NCCL's
# backend turns the sum of flags into a `MAX` for this reason (`ProcessGroupNCCL.cpp`). The same line, two libraries, two answers. **Ask for what you mean**: `MAX` for any, `MIN` for all.

# %% [markdown] name="promises"
# ## 3. What each promises
#
# | | MPI | NCCL | Gloo |
# |---|---|---|---|
# | a blocking call returns when | the buffer is yours again | the work is *queued* on a stream | the work is done |
# | a blocking `send` | may wait for the receiver, or not | waits, on the GPU | waits |
# | tags | yes | no | yes |
# | in place | if asked: `MPI_IN_PLACE` | if both buffers are the same | torch's `all_reduce`: always |
# | messages of one pair | don't overtake each other | in the order of the calls | in order, for each tag |
# | collectives of one group | same order on all ranks | same order on all ranks | same order on all ranks |
#
# **When does it return?** The last rank comes half a second late. **Predict** when rank 0 has its handle, and when `wait()` lets it go on.

# %% name="guess_return"
handle, waited = FloatText(description="handle, s:"), FloatText(description="wait, s:")
display(handle, waited)

# %% name="when_returns"
# %%ranks
import time

x = torch.ones(4)
dist.barrier()
time.sleep(0.5 if rank == world_size - 1 else 0)
start = time.perf_counter()
work = dist.all_reduce(x, async_op=True)
print(f"handle  {time.perf_counter() - start:.1f} s")
print(f"complete: {work.is_completed()}")
work.wait()
print(f"waited  {time.perf_counter() - start:.1f} s")

# %% [markdown] name="returns_explained"
# With Gloo `wait()` means done. With NCCL it returns at once as well: it makes the *stream* wait, and only `torch.cuda.synchronize()`, or a look at a value, makes the CPU wait. Who
# times NCCL calls without that measures how fast they are *queued*.
#
# **May I count on buffers?** Each rank sends to the right, then receives from the left. MPI's standard allows a `send` to copy the message and return, or to wait. The wire can play both. **Predict** the two outcomes.

# %% name="guess_buffers"
guess = ask("both come to an end", "only with buffers", "neither")
guess


# %% name="both_promises"
def send_first():
    rank, p = dist.get_rank(), dist.get_world_size()
    x, arriving = torch.tensor([float(rank)]), torch.empty(1)
    dist.send(x, (rank + 1) % p)
    dist.recv(arriving, (rank - 1) % p)
    return arriving.item()


for delivery in ("buffered", "rendezvous"):
    outcome = wire.run(send_first, ranks=4, delivery=delivery)
    print(f"{delivery:12}", "deadlock" if outcome.deadlock else outcome.results)

# %% [markdown] name="buffers_explained"
# A correct program is correct under *every* promise that the standard leaves open. This one runs for years, until messages grow or the library is changed. (The cheapest test: `MPI_Ssend`, a send that always waits.)
#
# **Yours.** The physics group's program: a grid is cut into strips, one a rank, and each step needs the edges of both neighbours on the ring, a **halo exchange**. Return the left neighbour's edge and the right neighbour's. Below is the version
# that hangs; make it right for any library.


# %% name="halo_mine"
def halo_exchange(edge):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    from_left, from_right = torch.empty_like(edge), torch.empty_like(edge)
    dist.send(edge, left)  # your turn, from here
    dist.recv(from_right, right)
    dist.send(edge, right)
    dist.recv(from_left, left)
    return from_left, from_right


check(halo_exchange)

# %% [markdown] name="halo_answer"
# <details><summary><b>A hint</b></summary>
#
# Start everything, then wait: `dist.batch_isend_irecv` is right on Gloo and NCCL alike. With one rank you are your own neighbour. An edge may be a view with gaps.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def halo_exchange(edge):
#     rank, p = dist.get_rank(), dist.get_world_size()
#     left, right = (rank - 1) % p, (rank + 1) % p
#     edge = edge.contiguous()
#     if p == 1:
#         return edge.clone(), edge.clone()
#     from_left, from_right = torch.empty_like(edge), torch.empty_like(edge)
#     pairs = [(dist.isend, edge, left), (dist.irecv, from_right, right)]
#     pairs += [(dist.isend, edge, right), (dist.irecv, from_left, left)]
#     for work in dist.batch_isend_irecv([dist.P2POp(*pair) for pair in pairs]):
#         work.wait()
#     return from_left, from_right
# ```
# </details>
#
# MPI has the pair of them as one call, `MPI_Sendrecv`, which can't deadlock. NCCL's user guide says the same in its own words: fuse what must progress together in one group.

# %% [markdown] name="tuner"
# ## 4. How NCCL chooses
#
# NCCL's calls name no algorithm. Its **tuner** ([All-reduce algorithms](08_all_reduce_algorithms.ipynb)) predicts, for every pair of algorithm and *protocol*, latency + bytes / bandwidth, and takes the smallest. A protocol is how a chunk is handed over:
#
# - **LL**: 8 bytes at a time, 4 of data and 4 of flag. No separate signal, but half the bandwidth.
# - **LL128**: 128 bytes, 120 of data. Nearly full bandwidth, on hardware that supports it.
# - **Simple**: large pieces and a signal after each. Full bandwidth, slow to start.
#
# For a ring on one machine the tuner's latency is base + $2(p-1)$ × hop. Its constants (2.30.7, `tuning.cc`): LL 6.6 and 0.6 µs, Simple 8.4 and 3.4 µs. **Calculate** both for 8 GPUs.

# %% name="guess_tuner"
low, simple = FloatText(description="LL, µs:"), FloatText(description="Simple, µs:")
display(low, simple)

# %% name="tuner_table"
bus = cost.NCCL_NVLINK_GB_PER_S["H100"]
pairs = [(algorithm, protocol) for algorithm in ("ring", "tree") for protocol in ("LL", "LL128", "Simple")]
print(f"{'µs, 8 H100s':>14}" + "".join(f"{' '.join(pair):>13}" for pair in pairs) + "   choice")
for nbytes in (4, 2**16, 2**20, 2**24, 2**30):
    times = [cost.nccl_time_us(*pair, 8, nbytes, bus) for pair in pairs]
    print(f"{nbytes:14,}" + "".join(f"{t:13.1f}" for t in times), "  " + " ".join(pairs[times.index(min(times))]))

# %% [markdown] name="tuner_explained"
# The formula gives 15 and 56 µs, and so does the first row. The choice goes from LL to LL128 to Simple as bytes begin to count, as $\alpha$ and $\beta$ would have it. (This is the core of the model: NCCL also corrects trees by size, caps LL, and has CollNet, PAT and, on 8 H100s with an
# NVSwitch, NVLS; on several machines it looks different, as that chapter showed.)
#
# **A pitfall to calculate.** To make runs alike, somebody sets `NCCL_PROTO=Simple` for good. **Predict**: how many times slower are the 4-byte all-reduces of a loss?

# %% name="guess_forced"
guess = FloatText(description="times:")
guess

# %% name="forced"
for nbytes in (4, 2**20, 2**30):
    best, forced = cost.nccl_choice(8, nbytes, bus)[2], cost.nccl_time_us("ring", "Simple", 8, nbytes, bus)
    print(f"{nbytes:14,} bytes: {forced / best:.2f} times as long as the tuner's choice")

# %% [markdown] name="measure_intro"
# ### Measured here
#
# And your backend? `bench.sweep` times its all-reduce on your ranks, best of twelve. All sizes but 256 KiB go into the fit of $\alpha$ and $\beta$; 256 KiB is the test of the ring model.

# %% name="timings"
sizes = [4, 2**10, 2**14, 2**18, 2**20, 2**22]
call = bench.Call("all_reduce")
measured = bench.sweep(world, call, sizes, iterations=12, passes=3, warmups=2, budget_s=1.0)

# %% name="table"
rows = list(measured.rows)
middle = rows.pop(sizes.index(2**18))
fitted = measured.fit(rows)
alpha, beta = fitted.alpha_s.value, fitted.beta_s_per_byte.value
print(f"{world.backend}: alpha {1e6 * alpha:.1f} µs a message, 1/beta {1e-9 / max(beta, 1e-15):.2f} GB/s")
print(f"NCCL's tuner, ring LL on NVLink: {cost.NCCL_HOP_US['NVLink']['ring', 'LL']} µs a hop")
print(f"256 KiB: measured {middle.best_us / 1e3:.2f} ms, model {1e3 * fitted.seconds(2**18):.2f} ms")

# %% [markdown] name="measure_explained"
# On a CPU your $\alpha$ is a system call, a trip through the kernel's TCP and the waking of a process; NCCL's is a flag in a neighbour's memory that a running kernel polls. That, more than bandwidth, is what the libraries differ in. (NCCL keeps GPU
# cores busy for it.) If 256 KiB is far above the model, ranks take turns on your cores.
#
# ## 5. Knobs
#
# Libraries are configured by environment variables, read when a group is made: changing them later does nothing to it. What has this course set on your ranks?

# %% name="environment"
# %%ranks
import os

for name in sorted(os.environ):
    if name.startswith(("NCCL_", "GLOO_", "TORCH_", "RANK", "LOCAL_", "WORLD_", "MASTER_", "OMP_")):
        print(f"{name}={os.environ[name]}")

# %% [markdown] name="knobs"
# | variable | what for |
# |---|---|
# | `NCCL_DEBUG=INFO` | **first** when something is wrong: version, network, rings; with `NCCL_DEBUG_SUBSYS=TUNING` the table of section 4 |
# | `NCCL_SOCKET_IFNAME`, `GLOO_SOCKET_IFNAME` | which network interface: look here first when ranks don't find each other |
# | `NCCL_IB_HCA`, `NCCL_IB_DISABLE` | which InfiniBand cards; or none |
# | `NCCL_P2P_DISABLE`, `NCCL_SHM_DISABLE` | to find out whether one of these paths is broken |
# | `NCCL_ALGO`, `NCCL_PROTO` | to *test* a suspicion; then unset. Forcing LL128 where it is unsupported can corrupt data |
# | `NCCL_TOPO_DUMP_FILE` | what NCCL believes the machine to be |
# | `TORCH_DISTRIBUTED_DEBUG=DETAIL` | compares every call between ranks; slow |
#
# **The classic.** A job file from another cluster names an interface that this machine lacks:

# %% tags=["raises-exception"] name="wrong_interface"
# %%ranks --deadline 20
mine = os.environ.get("GLOO_SOCKET_IFNAME")
os.environ["GLOO_SOCKET_IFNAME"] = "ib7"
try:
    dist.new_group(backend="gloo")
finally:
    os.environ.pop("GLOO_SOCKET_IFNAME") if mine is None else os.environ.update(GLOO_SOCKET_IFNAME=mine)

# %% [markdown] name="launchers"
# ## 6. Launchers
#
# Who starts the ranks? A **launcher** does two things: it starts processes, and it tells each its place by environment variables. **Predict**: which of its six or so variables does `init_process_group` need at the least?

# %% name="guess_variables"
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
guess = SelectMultiple(options=names, rows=6)
guess

# %% name="torchrun"
text = """import os, sys
sys.stdout.write(" ".join(f"{name}={os.environ[name]}" for name in sys.argv[1:]) + "\\n")
"""
with tempfile.TemporaryDirectory() as folder:
    script = Path(folder) / "where.py"
    script.write_text(text)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    torchrun += ["--log-dir", folder]  # else it leaves a directory in /tmp
    print(subprocess.run([*torchrun, script, *names], capture_output=True, text=True, timeout=100).stdout)
print("on this machine:", {name: shutil.which(name) is not None for name in ("mpiexec", "srun")})

# %% tags=["raises-exception"] name="no_launcher"
dist.init_process_group("gloo")  # in this notebook, which nobody launched as a rank

# %% [markdown] name="launchers_explained"
# Four: who am I (`RANK`), how many (`WORLD_SIZE`), and where does rank 0 listen (`MASTER_ADDR`, `MASTER_PORT`). `LOCAL_RANK` is for *you*: `torch.cuda.set_device(local_rank)`. Forget it, and all ranks of a machine sit on GPU 0.
#
# | launcher | rank | local rank | for |
# |---|---|---|---|
# | `torchrun` | `RANK` | `LOCAL_RANK` | torch; starts a failed job again |
# | Open MPI's `mpiexec` | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_LOCAL_RANK` | MPI programs |
# | Slurm's `srun` | `SLURM_PROCID` | `SLURM_LOCALID` | clusters with Slurm |
#
# Launcher and backend are independent: `mpiexec` can start a program that uses NCCL, if somebody copies its names into torch's. A usual job is `srun` with one `torchrun` a machine.
#
# This world was launched by none of them: the course forks its ranks from a process that has torch loaded already, and they find each other by a file, which is why section 5 showed no `MASTER_ADDR`.

# %% [markdown] name="quiz"
# ## 7. Check yourself: which library?
#
# <details><summary>1. Eight NVIDIA GPUs, data parallel; and ranks exchange a Python dictionary once an epoch. Which backend?</summary>
#
# NCCL for tensors on GPUs. For objects a second group with Gloo, or `init_process_group("cpu:gloo,cuda:nccl")`, where the tensor's device decides: objects need not go through GPU memory then.
# </details>
#
# <details><summary>2. The same script on AMD GPUs: what do you change?</summary>
#
# Nothing: torch for ROCm calls RCCL under the name `nccl`. Measure anew, though: on an MI300X every pair has a link of its own, where NVSwitch gives any pair the full bandwidth.
# </details>
#
# <details><summary>3. You start 8 processes with <code>mpiexec</code>, and every one prints "rank 0 of 1". Why?</summary>
#
# The program was told its place by a launcher that it doesn't listen to: another MPI's `mpiexec`, or a script that reads `RANK` and takes 0 and 1 where there is none. Eight worlds of one, eight times the same training, and nothing fails but the bill.
# </details>
#
# <details><summary>4. Tests pass with Gloo on CPU tensors. What can still go wrong with NCCL?</summary>
#
# Tags and `recv` from any source, which it lacks; CPU tensors; reading a value before the stream is done; views with gaps; sends and receives that must go in one batch; and timing without synchronisation.
# </details>
#
# <details><summary>5. Is Gloo slow?</summary>
#
# On GPU tensors, against NCCL, yes. On CPUs it is what torch recommends. Ask what it is compared with.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# `torch.distributed` is an interface, and a program that names no library runs on each of them. What they leave open differs: the order of additions, dtypes, when a call returns, whether a send waits; so code must be right
# under every promise, and tests must allow rounding. NCCL chooses algorithm and protocol by a model of latency and bandwidth. **Change the library by its name, and read what it promises before you do.**
#
# **Now you:** [Lab 1](../labs/lab01_point_to_point/point_to_point.ipynb) has the halo exchange for marks.
#
# **Next question:** the library knows the machine. Do you? [Topology](19_topology.ipynb)
#
# **Sources.** [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) (backends; which to use) ·
# [NVIDIA, NCCL user guide](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html) (point-to-point; environment variables) ·
# [NCCL, tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc) ·
# Z. Hu et al., *Demystifying NCCL*, [arXiv:2507.04786](https://arxiv.org/abs/2507.04786) (protocols) ·
# [AMD, What is RCCL?](https://rocm.docs.amd.com/projects/rccl/en/latest/what-is-rccl.html) ·
# [Intel, oneCCL](https://oneapi-src.github.io/oneCCL/) · [Gloo](https://github.com/pytorch/gloo) · [UCC](https://github.com/openucx/ucc) ·
# [NVIDIA, NVSHMEM](https://docs.nvidia.com/nvshmem/api/latest/) · [torchcomms](https://github.com/meta-pytorch/torchcomms) ·
# [MPI report, communication modes](https://netlib.org/mpi/mpi-report/node40.html) and [order](https://netlib.org/mpi/mpi-report-1.0/node40.html) ·
# [Open MPI, environment variables](https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html) ·
# [PyTorch, torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html)

# %% name="stop_world"
world.stop()
