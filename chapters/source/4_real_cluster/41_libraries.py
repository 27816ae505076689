# %% [markdown] name="title"
# # Libraries
#
# {{here}}
#
# **A training step calls `torch.distributed` five times. It must run on eight H100s, on your laptop, on a partner's AMD GPUs and on the physics group's MPI cluster.
# Which library carries out each call there, how do you find out, and which of the five calls gives a different result?**
#
# {{picture}}
#
# *Above:* the program. *Below:* where it must run. This chapter is about the libraries between them.

# %% name="first_picture"
from allranks import explore

explore.flag(ranks=4, steps=8, library="NCCL")

# %% [markdown] name="first_question"
# **Ask the picture.** One of the five calls asks "did any rank's numbers overflow?" It sums a flag, and the flag is kept from step to step. What does
# it say with Gloo? With which numbers of ranks is it never False? And what does MPI do with the same line?
#
# <!-- Gloo: run below. NCCL: torch 2.13, ProcessGroupNCCL.cpp, getNcclReduceOp: for a bool a sum is ncclMax; RCCL has the same file. MPI: ProcessGroupMPI.cpp, mpiDatatype has no at::kBool -->

# %% name="start_world"
import psutil
import torch
import torch.distributed as dist

from allranks import Player, World, cost, predict, predictions, wire

world = World()
world

# %% [markdown] name="the_step"
# ## 1. The step
#
# The data loader's tokens from rank 0, activations to the next stage, the gradient, "did any rank overflow?", and the mean number of samples. No line names a library.


# %% name="step"
def step():
    rank, p = dist.get_rank(), dist.get_world_size()
    tokens = torch.full((4,), rank + 7, dtype=torch.int16)
    yield "tokens", tokens, lambda: dist.broadcast(tokens, src=0)
    mine, arriving = torch.full((4,), rank + 0.5), torch.empty(4)
    pair = [dist.P2POp(dist.isend, mine, (rank + 1) % p), dist.P2POp(dist.irecv, arriving, (rank - 1) % p)]
    yield "activations", arriving, lambda: [work.wait() for work in dist.batch_isend_irecv(pair)]
    torch.manual_seed(rank)
    gradient = torch.randn(1000)
    yield "gradient", gradient, lambda: dist.all_reduce(gradient)
    overflow = torch.ones(1, dtype=torch.bool)
    yield "overflow", overflow, lambda: dist.all_reduce(overflow)
    samples = torch.full((1,), 100, dtype=torch.int32)
    yield "samples", samples, lambda: dist.all_reduce(samples, op=dist.ReduceOp.AVG)


# %% name="guess_step"
guess_step = predict(
    "How many of the five calls does your library carry out?",
    low=0,
    high=5,
    title="Calls of five that your library carries out",
)
guess_step


# %% name="carry" jupyter={"source_hidden": true}
# a helper that makes the calls one after the other: run this cell
def carry(names):
    """What the tensors of these lines hold afterwards, and "ok" or what the library said."""
    found = {}
    for name, tensor, call in step():
        if name in names:
            try:
                call()
                found[name] = tensor.tolist(), "ok"
            except Exception as error:  # every library has its own
                found[name] = tensor.tolist(), f"refused: {error}".splitlines()[0]
    return found


# %% name="carry_run"
lines = ["tokens", "activations", "gradient", "overflow", "samples"]
live, trace = world.trace(carry, lines)
for name, (values, said) in live[-1].items():
    print(f"{name:12} {', '.join(f'{value:.4g}' for value in values[:4]):32} {said}")
carried = sum(said == "ok" for _, said in live[-1].values())
print(f"{carried} of 5 on {world.backend}")
Player(trace)

# %% name="reveal_step" jupyter={"source_hidden": true}
# the answer: run this cell
guess_step.reveal(
    carried,
    why="Each library has its own types and operations: some have no 16-bit integers, some no mean.",
)

# %% [markdown] name="step_explained"
# (The last rank's tensors.) A call that is not `ok` is correct, but this library refused it. Who decides which library is asked?
#
# ## 2. Which library carries out a call?
#
# `torch.distributed` moves no bytes. It takes the **backend** that the group has for the *device* of the tensor, and the backend calls a library. You choose it in `init_process_group`.

# %% name="inspect"
for name, devices in sorted(dist.Backend.backend_capability.items()):
    if name != "fake":  # for tests: it moves nothing
        there = "available" if dist.is_backend_available(name) else "not in this build of torch"
        print(f"{name:6} for {'/'.join(devices):10} {there}")
default = {device: name for device, name in dist.Backend.default_device_backend_map.items() if name != "fake"}
print("if you name none:", default)

# %% [markdown] name="libraries"
# | name in torch | library | moves data between |
# |---|---|---|
# | `nccl` | **NCCL**; on AMD's GPUs **RCCL**, with the same interface | GPUs |
# | `gloo` | **Gloo** | CPUs by TCP; GPU tensors for most calls |
# | `mpi` | **MPI**, if torch was built with it | what its implementation supports |
# | `ucc` | **UCC**, if built with it | CPUs and GPUs, through UCX, NCCL or SHARP |
# | `xccl` | **oneCCL** | Intel GPUs |
#
# So: gloo on the laptop, nccl on both kinds of GPUs, `mpi` or `gloo` on the cluster. Two cases are left:
#
# 1. On the MPI cluster, [ZeRO](../3_one_model/22_sharded_training.ipynb) will call `reduce_scatter` next month.
# 2. On the H100s, where the group has only NCCL, a metric is a tensor on the CPU, and the script calls `all_reduce` with it.
#
# What happens in each case?

# %% [markdown] name="fails_explained"
# <details><summary><b>Answer</b></summary>
#
# 1. In [torch's table of backends](https://docs.pytorch.org/docs/stable/distributed.html#backends) MPI has no reduce-scatter: take Gloo there, or try it ([the source of 2.13 declares one](https://github.com/pytorch/pytorch/pull/150162)).
# 2. It fails, because NCCL takes no CPU tensors. Name one library for each device: `init_process_group("cpu:gloo,cuda:nccl")`.
# </details>
#
# ## 3. How do you find out?
#
# Ask the ranks: the operating system counts every byte that a process writes to a socket. The next cells count those of one all-reduce of 20 MB; Gloo carries it as a ring ([All-reduce](../1_first_hours/04_all_reduce.ipynb)).

# %% name="guess_written"
guess_written = predict(
    "An all-reduce of 20 MB, carried by your library: how many MB does a rank write to sockets?",
    low=0.01,
    high=1000,
    unit="MB",
    log=True,
    title="MB that a rank writes to sockets",
)
guess_written


# %% name="follow_bytes"
def written_by_an_all_reduce(nbytes):
    x, me = torch.ones(nbytes // 4), psutil.Process()
    dist.all_reduce(x)  # the first call also makes connections
    dist.barrier()
    before = me.io_counters().write_chars
    dist.all_reduce(x)
    x[0].item()  # on a GPU, waits until it is done
    return dist.get_backend_config(), (me.io_counters().write_chars - before) / 1e6


found = world.run(written_by_an_all_reduce, 20_000_000)
for rank, (config, megabytes) in enumerate(found):
    print(f"rank {rank}: {config}; wrote {megabytes:.2f} MB")
p = world.ranks
print(f"a ring: 2 (p-1)/p n = {2 * (p - 1) / p * 20:.2f} MB")

# %% name="reveal_written" jupyter={"source_hidden": true}
# the answer: run this cell
guess_written.reveal(
    found[0][1],
    why="With Gloo's ring each chunk of the 20 MB goes round twice, 2 (p-1)/p of the vector; NCCL's GPUs of one machine write to no socket at all.",
)

# %% [markdown] name="follow_explained"
# GPUs of one machine write to no socket, so ask the library: `NCCL_DEBUG=INFO` prints its
# network (`NET/IB` or `NET/Socket`) and every ring. **If it says `NET/Socket` on an InfiniBand cluster, the job is much too slow.** `NCCL_SOCKET_IFNAME`, `NCCL_IB_HCA` and `GLOO_SOCKET_IFNAME` choose the interface; a name from another cluster is a common mistake.

# %% [markdown] name="interface_explained"
# ## 4. Which of the five give different results?
#
# A second library carries out the same step: the **wire**, this course's own backend, written in Python. The next cell compares their results.

# %% name="two_libraries"
for name, (values, said) in live[-1].items():
    on_wire = wire.run(carry, ranks=world.ranks, args=([name],))
    print(f"{name:12} {world.backend}: {said[:8]:9}", end="")
    if on_wire.failure:
        print("wire: refused:", on_wire.failure.message)
    else:
        other, other_said = on_wire.results[-1][name]
        apart = max(abs(a - b) for a, b in zip(values, other, strict=True))
        print(f"wire: {other_said:9}", f"they differ by at most {apart:.1e}" if said == "ok" else "")

# %% [markdown] name="same_explained"
# - **activations** are copied, not calculated: the same with both.
# - **gradient** is the same up to rounding, because each library adds in its own order. A test must not compare bits with another library's.
# - **tokens**: Gloo and NCCL both refuse, because neither has a name for 16-bit integers, not even to copy them.
# - **samples**: look at the *value*. Each rank contributed 100. If yours holds the sum, the backend added first and failed at the division: the error came *after* the tensor was changed.
# - **overflow** looks harmless. But a flag that is kept ("has *any* step overflowed?") is summed again and again, as in the first picture. Here are its eight steps on your ranks:

# %% name="bool_sum"
# %%ranks
flag, seen = torch.ones(1, dtype=torch.bool), []
for _ in range(8):
    dist.all_reduce(flag)
    seen.append(f"{flag.item()} ({flag.view(torch.uint8).item()})")
print("\n".join(seen))

# %% [markdown] name="bool_explained"
# In brackets is the byte that stores the flag. Gloo adds bytes: after $k$ steps $p^k$, with four ranks 4, 16, 64, and then 256, which becomes 0; only odd numbers of ranks never come to 0. NCCL's backend takes the maximum, and MPI's has no type for a flag: an error. **One line, three libraries: right, wrong without an error, refused.**
#
# ### Your turn: a step for any library
#
# **Fix the three lines**, in place, so that both libraries agree. The next cell judges them on your backend and on the wire.


# %% name="portable"
def portable(tokens, overflow, samples):
    dist.broadcast(tokens, src=0)  # your turn, from here
    dist.all_reduce(overflow)
    dist.all_reduce(samples, op=dist.ReduceOp.AVG)


# %% name="judge"
def judge():
    rank, p, overflow = dist.get_rank(), dist.get_world_size(), torch.ones(1, dtype=torch.bool)
    for _ in range(8):  # eight steps; the flag is kept
        tokens = torch.full((4,), rank + 7, dtype=torch.int16)
        samples = torch.full((1,), 100 + 2 * rank, dtype=torch.int32)
        try:
            portable(tokens, overflow, samples)
        except Exception as error:
            return f"refused: {error}".splitlines()[0]
    right = {
        "tokens": (tokens == 7).all(),
        "overflow": overflow.item(),
        "samples": samples.item() == 100 + p - 1,
    }
    return ", ".join(f"{name} {'right' if good else 'wrong'}" for name, good in right.items())


# %% name="judge_run"
on_wire = wire.run(judge, ranks=world.ranks)
print(f"{world.backend}:", *set(world.run(judge)))
print("wire:", on_wire.failure.message if on_wire.failure else set(on_wire.results).pop())

# %% [markdown] name="portable_answer"
# <details><summary><b>A hint</b></summary>
#
# Send the tokens as bytes, `view(torch.uint8)`. Which operation means "any"? The mean of whole numbers is a sum, then *your* division.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def portable(tokens, overflow, samples):
#     dist.broadcast(tokens.view(torch.uint8), src=0)
#     dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
#     dist.all_reduce(samples)
#     samples //= dist.get_world_size()
# ```
# </details>

# %% [markdown] name="mesh_intro"
# ## 5. Eight MI300X: a mesh and no switch
#
# The program stays as it is, its speed does not. In a node with eight MI300X each pair of GPUs has an xGMI link of its own, and there is no switch: no NVLS, and RCCL runs seven rings at once, one for each link of a GPU. Seven rings that never share a link are not easy to find, so RCCL has them in a table.
#
# <!-- ROCm/rocm-systems, projects/rccl/docs at 5c5541b: conceptual/hardware-specific-optimizations.rst (mesh, 64 GB/s raw, 46 to 48 effective, seven non-colliding rings, Rome models), conceptual/collective-algorithms.rst (ring, tree, DDA). All of it is of eight MI300X or MI350; RCCL for ROCm 7.13 already has gfx1250 (MI450) and fabrics of several nodes.
# DDA's default: 0 in some versions of src/rccl_wrap.cc and in that page, 1 at 006a440, up to 128 MiB; CHANGELOG.md at 0005e8e, RCCL 2.30.7: "both default on". NVLS in RCCL: projects/rccl at 03a8914 (2026), src/transport/nvls.cc 20: compiled for CUDA only, as in ROCm/rccl 0cbce2a (2024). H100: 371, NCCL's topo.h. MSCCL and MSCCL++ removed: rocm.docs.amd.com/projects/rccl/en/docs-7.14.0/how-to/rccl-usage-tips.html. Looked up 2026-11 -->

# %% name="guess_mesh"
guess_mesh = predict(
    "1 GB from one GPU to one other: how many times as long on the mesh as between two H100s?",
    low=0.5,
    high=16.0,
    title="One GPU to one other: mesh against switch",
)
guess_mesh

# %% name="mesh"
n, gpus, alone = 1e9, 8, {}
for name, pair, rings in (("8 H100, NVSwitch", 371e9, 1), ("8 MI300X, mesh", 46e9, 7)):
    alone[name], ring = n / pair, 2 * (gpus - 1) / gpus * n / (rings * pair)
    print(f"{name:17} 1 GB to one GPU {1e3 * alone[name]:4.1f} ms, all-reduce by rings {1e3 * ring:.1f} ms")
print(f"8 H100 with NVLS, by NCCL's tuner: {cost.nccl_choice('all_reduce', n, 'dgx-h100').us / 1e3:.1f} ms")

# %% name="reveal_mesh" jupyter={"source_hidden": true}
# the answer: run this cell
guess_mesh.reveal(
    alone["8 MI300X, mesh"] / alone["8 H100, NVSwitch"],
    why="On the mesh a pair has one link of 46 GB/s, a seventh of what a GPU has; behind the switch each pair can use all of a GPU's 371 GB/s.",
)

# %% [markdown] name="mesh_explained"
# (Computed, with what each library says of its links.) With rings, which use all seven links, the two nodes are nearly alike. So on such a node a pipeline's `send` between two
# stages, or a tensor parallel group of two, uses a seventh of what a GPU has. Make tensor parallel groups whole nodes there. (RCCL can also read the peers' memory directly, by default in some versions: `RCCL_DDA_ENABLE=0` or `1` decides. From ROCm 7.13 on
# it has no MSCCL and MSCCL++, for [your own algorithms](../extras/63_can_a_machine_find_it.ipynb).)

# %% [markdown] name="where"
# ## 6. Find it in torch
#
# **Your task.** Open `torch/distributed/distributed_c10d.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_get_object_coll_device`. A Python object is on no device: which library carries `all_gather_object`, if the group has `cpu:gloo,cuda:nccl`, and which if it has only `nccl`?
#
# <details><summary><b>Answer</b></summary>
#
# Gloo, because torch prefers `cpu` if it is among several pairs. With `nccl` alone torch copies the pickled bytes to the GPU, and NCCL carries them.
# </details>
#
# ## 7. Check yourself
#
# <details><summary>1. The script for NVIDIA GPUs goes to AMD's. What do you change, and what do you measure again?</summary>
#
# You change no line: torch for ROCm calls RCCL under the name `nccl`. You measure all times again, first those between two GPUs.
# </details>
#
# <details><summary>2. Tests pass with Gloo on CPU tensors. Name three things that can still go wrong with NCCL.</summary>
#
# Tags and `recv` from any source, which NCCL does not have; CPU tensors; views with gaps; and timing, or reading on another stream, before the work is done.
# </details>
#
# <details><summary>3. Under <code>mpiexec</code> a script takes <code>os.environ.get("RANK", 0)</code>. What happens?</summary>
#
# A launcher tells each process its rank and its local rank by environment variables. Open MPI's are `OMPI_COMM_WORLD_RANK` and `OMPI_COMM_WORLD_LOCAL_RANK`, torchrun's `RANK` and `LOCAL_RANK`. So each process believes that it is rank 0 of 1, and the same training runs many times, without an error. Never use default values.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# The tensor's device selects the library, among those that you named when the group was made: `nccl` for NVIDIA's and AMD's GPUs, `gloo` for CPUs, `cpu:gloo,cuda:nccl` for both. Copies are the same with all libraries, sums are the same up to
# rounding, and libraries differ in the dtypes that they accept. **Write the operation that you mean, in a dtype that every library has, and ask each machine which library carries it out.**
#
# **Now you:** the halo exchange of [Lab 1](../../labs/lab01_point_to_point/point_to_point.ipynb), the physics group's main loop, must be right with *every*
# kind of `send` that the interface allows.
#
# **Next question:** what if not all ranks make the same call, whichever library carries it out? [When it hangs](45_when_it_hangs.ipynb)
#
# **Sources.** [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) (backends; which to use) ·
# [PyTorch, ProcessGroupNCCL.cpp](https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp) ·
# [NVIDIA, NCCL environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) ·
# [AMD, What is RCCL?](https://rocm.docs.amd.com/projects/rccl/en/latest/what-is-rccl.html) ·
# [AMD, RCCL, hardware-specific optimizations](https://github.com/ROCm/rocm-systems/blob/develop/projects/rccl/docs/conceptual/hardware-specific-optimizations.rst) (the mesh) ·
# [AMD, RCCL's usage tips](https://rocm.docs.amd.com/projects/rccl/en/docs-7.14.0/how-to/rccl-usage-tips.html) ·
# [Intel, oneCCL](https://oneapi-src.github.io/oneCCL/) · [Gloo](https://github.com/pytorch/gloo) ·
# [Open MPI, environment variables](https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("41")
