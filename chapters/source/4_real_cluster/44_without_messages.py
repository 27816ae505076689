# %% [markdown] name="title"
# # Without messages
#
# {{here}}
#
# **GPUs of one machine can write into each other's memory. So why does anybody send a message? What does a message do for you that a write does not?**
#
# {{picture}}
#
# Every rank can reach every other rank's memory. The line says which one rank 1 writes.

# %% name="first_picture"
from allranks import explore

explore.writes(looks=6, after="nothing")

# %% [markdown] name="first_question"
# **Ask the picture.** Drag the moment at which rank 1 looks: when does it read half of the words? Then let rank 0 write a flag: why does that not help, and what does
# the fence wait for?

# %% name="start_world"
import os
import statistics
import threading

import torch
import torch.distributed as dist

from allranks import SharedMemory, World, check, plots, predict, predictions, wire

world = World(backend="gloo")  # memory of the CPU, on every machine
world

# %% [markdown] name="put_intro"
# ## 1. Put, signal, wait
#
# `SharedMemory(n)` is real memory of this machine: each rank has a part of $n$ numbers, and every process can read and write all parts. On GPUs the same
# is called **symmetric memory**. A rank *puts* values into another rank's part, or *gets* them from there. The owner of the part does nothing, so this is
# called **one-sided** communication.

# %% name="memory_live"
# %%ranks
from allranks import SharedMemory

memory = SharedMemory(1024)
right, left = (rank + 1) % world_size, (rank - 1) % world_size
memory.put(right, 0, torch.full((2,), float(rank)))
memory.fence()
memory.signal(right)
memory.wait(left)
print(f"rank {left} wrote {memory.get(rank, 0, 2).tolist()} into my part")

# %% [markdown] name="put_explained"
# The owner notices nothing by itself. Three more calls do what a message did without being asked:
#
# | call | does | in a message |
# |---|---|---|
# | `fence()` | what I have put is in place before anything that I do next | the message arrives whole |
# | `signal(peer)` | gives the peer one signal | the receive is complete |
# | `wait(peer)` | waits for one signal of the peer, and uses it up | `wait()` of a receive |
#
# A message does one more thing. The receiver's buffer is the receiver's: nobody writes into it before the next receive is posted. In a shared memory
# **the writer must ask whether the reader is done**.
#
# ## 2. One number for all
#
# All ranks add to *one* number. Each adds 1, many times.

# %% name="guess_lost"
lost = predict(
    "All ranks together add 1 to the same number 200,000 times, without any order. What does it hold at the end?",
    choices=["200,000", "less than 200,000", "more than 200,000"],
    title="The number that all ranks add to",
)
lost

# %% name="race"
# %%ranks
counter, times = memory.tensor(0)[:1], 200_000 // world_size


def add_one():
    value = counter.item()
    counter.fill_(value + 1)


memory.barrier()
if rank == 0:
    counter.zero_()
memory.barrier()
for _ in range(times):
    add_one()
memory.barrier()
print(f"{times * world_size:,} additions, the number is {counter.item():,.0f}")

# %% name="reveal_lost" jupyter={"source_hidden": true}
# the answer: run this cell
lost.reveal(
    "less than 200,000",
    why="To add is to read, to add, and to write: two ranks read the same number, both write it plus one, and one addition is gone. How many are lost is chance; on a machine with one core it may be few.",
)

# %% [markdown] name="mend"
# This is a **race**: two ranks use the same place, one of them writes, and nothing says who comes first. Three repairs, the slowest first:
#
# 1. A **lock**: one rank at a time.
# 2. An **atomic** operation: the hardware reads, adds and writes in one piece (`atomicAdd` on a GPU). Python has none.
# 3. **No shared number**: each rank has its own, and one rank adds them at the end.

# %% name="mended"
# %%ranks
import time

memory.barrier()
if rank == 0:
    counter.zero_()
memory.barrier()
began = time.perf_counter()
for _ in range(1000):
    with memory.lock():
        add_one()
locked = time.perf_counter() - began
memory.barrier()
with_lock = counter.item()

mine, began = memory.tensor(rank)[8:9], time.perf_counter()
mine.zero_()
for _ in range(1000):
    mine.fill_(mine.item() + 1)
alone = time.perf_counter() - began
memory.barrier()
own = sum(memory.tensor(r)[8].item() for r in range(world_size))
print(
    f"lock: {with_lock:.0f}, {1e3 * locked:.1f} µs each; own numbers: {own:.0f}, {1e3 * alone:.1f} µs each",
)

# %% [markdown] name="order"
# ## 3. In which order?
#
# The second danger is the order. Rank 0 writes data, then a flag. Does rank 1 see them in this order? The *wire* has a memory that takes, of all orders
# that a machine may take, the worst one each time.

# %% name="guess_order"
order = predict(
    "Rank 0 puts two ones and signals, without a fence. Rank 1 waits for the signal and reads. With the worst order, what does it read?",
    choices=["two ones", "what was there before", "nothing: it waits forever"],
    title="Behind a signal without a fence, rank 1 reads",
)
order


# %% name="overtaken"
def hand_over(fenced):
    memory = wire.memory()
    if memory.rank == 0:
        memory.put(1, 0, torch.ones(2))
        if fenced:
            memory.fence()
        memory.signal(1)
    elif memory.rank == 1:
        memory.wait(0)
        return memory.get(1, 0, 2).tolist()


for fenced in (False, True):
    outcome = wire.run(hand_over, ranks=2, args=(fenced,), memory=wire.Memory(2))
    print(f"fence: {fenced!s:5}  rank 1 reads {outcome.results[1]}, races found: {len(outcome.races)}")

# %% name="reveal_order" jupyter={"source_hidden": true}
# the answer: run this cell
order.reveal(
    "what was there before",
    why="A signal says that the sender has come to this line, and not that what it wrote has arrived; the writer's fence says so.",
)

# %% [markdown] name="acquire_intro"
# That is the writer's half, and it is called **release**: all that I wrote before is visible to whoever sees the flag. The reader has a half too. A machine may also begin a *read* early, before the
# wait in the line above has ended. The reader's half is **acquire**: nothing that I read after the wait may be read before it. Our `wait` acquires. So to see what happens without, write the early read down:


# %% name="read_early"
def hand_over_early():
    memory = wire.memory()
    if memory.rank == 0:
        memory.put(1, 0, torch.ones(2))
        memory.fence()
        memory.signal(1)
    elif memory.rank == 1:
        early = memory.get(1, 0, 2).tolist()  # as a machine may do whose wait does not acquire
        memory.wait(0)
        return early


outcome = wire.run(hand_over_early, ranks=2, memory=wire.Memory(2))
print(f"rank 1 read {outcome.results[1]}, races found: {len(outcome.races)}")

# %% [markdown] name="races_found"
# The fence was there, and yet there is a race: a hand-over needs both halves. In NCCL's kernels you find both as `cuda::memory_order_release` and `cuda::memory_order_acquire` (`all_reduce.cuh`).
#
# The strange number is what the memory held before: the wire shows a put to others only behind a fence, and a signal at once. A processor of Intel or AMD keeps
# the order. ARM and a GPU do **not**: the machine may show the flag first. This is called *weak* memory order, and a program that forgets about it is wrong only rarely, which is
# hard to find.
#
# And the wire finds the race *without* luck: it keeps for each number who put it, who read it, and what each signal
# told (a **vector clock**). Two uses of one number, at least one of them a put, are a race if no chain of fence, signal and wait orders them, even if the result happens to be right. The lab is judged so.
#
# ## 4. An all-reduce in one shot
#
# Each rank puts its vector into its own part. A barrier. Then every rank reads *all* vectors and adds them, all in the same order, so that all ranks have the
# same bits. A second barrier: nobody may overwrite a part that somebody still reads.


# %% name="one_shot"
# %%ranks
def one_shot(x, memory):
    n = x.numel()
    memory.tensor(rank)[:n].copy_(x)
    memory.barrier()
    x.copy_(memory.tensor(0)[:n])
    for peer in range(1, world_size):
        x.add_(memory.tensor(peer)[:n])
    memory.barrier()


x = torch.full((8,), float(rank))
one_shot(x, memory)
print(x.tolist())

# %% [markdown] name="one_shot_explained"
# Two barriers, and no step that waits for the step before. A ring has $2(p-1)$ such steps, so for small vectors this must win. But each rank reads $(p-1)n$ numbers
# and adds them all. The cure is known: a [reduce-scatter](../2_collectives/14_reduce_scatter.ipynb), then an [all-gather](../2_collectives/13_all_gather.ipynb). Here they are **two shots**:
# each rank adds *its chunk* of all vectors, a barrier, then each rank reads the finished chunks.


# %% name="two_shot"
# %%ranks
def two_shot(x, memory):
    n = x.numel()
    memory.tensor(rank)[:n].copy_(x)
    memory.barrier()
    chunks = [memory.tensor(peer)[:n].tensor_split(world_size) for peer in range(world_size)]
    total = chunks[0][rank].clone()
    for peer in range(1, world_size):
        total.add_(chunks[peer][rank])
    chunks[rank][rank].copy_(total)
    memory.barrier()
    for peer, piece in enumerate(x.tensor_split(world_size)):
        piece.copy_(chunks[peer][peer])
    memory.barrier()


x = torch.full((8,), float(rank))
two_shot(x, memory)
print(x.tolist())

# %% [markdown] name="prices"
# | all-reduce | barriers | read from others, each rank | added, each rank |
# |---|---|---|---|
# | one shot | 2 | $(p-1)\,n$ | $(p-1)\,n$ |
# | two shots | 3 | $2\,\frac{p-1}{p}\,n$ | $\frac{p-1}{p}\,n$ |
# | ring of messages | $2(p-1)$ steps | $2\,\frac{p-1}{p}\,n$ | $\frac{p-1}{p}\,n$ |
#
# A second region of memory saves the third barrier: the lab asks you why.

# %% [markdown] name="shots_mine_task"
# ### Your turn
#
# Two shots again, with `put` and `get` and without a ready barrier. **Write the barrier** from `fence`, `signal` and `wait`. The check's memory is as weak as a real one: a put is seen late, and out of order. A ring of signals is too
# slow: [Barrier and groups](../2_collectives/16_barrier_and_groups.ipynb) has a barrier of $\lceil \lg p \rceil$ rounds.


# %% name="shots_mine"
def two_shot_all_reduce(tensor, memory):
    rank, p, n = memory.rank, memory.ranks, tensor.numel()

    def barrier():
        """Nobody goes on until all are here, and what they wrote can be seen."""
        # your turn: fence, signal(peer), wait(peer)

    sizes = [chunk.numel() for chunk in tensor.reshape(-1).tensor_split(p)]
    starts = [sum(sizes[:r]) for r in range(p)]
    memory.put(rank, 0, tensor.reshape(-1))
    barrier()
    total = sum(memory.get(peer, starts[rank], sizes[rank]) for peer in range(p))
    memory.put(rank, n + starts[rank], total)  # a second region: the first may still be read
    barrier()
    chunks = [memory.get(peer, n + starts[peer], sizes[peer]) for peer in range(p)]
    tensor.copy_(torch.cat(chunks).view(tensor.shape))


check(two_shot_all_reduce)

# %% [markdown] name="shots_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def two_shot_all_reduce(tensor, memory):
#     rank, p, n = memory.rank, memory.ranks, tensor.numel()
#
#     def barrier():
#         """Nobody goes on until all are here, and what they wrote can be seen."""
#         memory.fence()
#         distance = 1
#         while distance < p:
#             memory.signal((rank + distance) % p)
#             memory.wait((rank - distance) % p)
#             distance *= 2
#
#     sizes = [chunk.numel() for chunk in tensor.reshape(-1).tensor_split(p)]
#     starts = [sum(sizes[:r]) for r in range(p)]
#     memory.put(rank, 0, tensor.reshape(-1))
#     barrier()
#     total = sum(memory.get(peer, starts[rank], sizes[rank]) for peer in range(p))
#     memory.put(rank, n + starts[rank], total)  # a second region: the first may still be read
#     barrier()
#     chunks = [memory.get(peer, n + starts[peer], sizes[peer]) for peer in range(p)]
#     tensor.copy_(torch.cat(chunks).view(tensor.shape))
# ```
# </details>

# %% [markdown] name="cross_intro"
# ## 5. Where they cross, measured
#
# The three ways are timed after your guess, with six sizes, in turns, for about eight seconds: the quieter your machine, the more rounds.

# %% name="guess_cross"
cross = predict(
    "An all-reduce of 1 KiB on your ranks: how many times as long as one shot does gloo's all_reduce take?",
    low=0.1,
    high=10_000,
    unit="times",
    log=True,
    title="gloo against one shot, 1 KiB",
)
cross

# %% name="measure"
# %%ranks
big = SharedMemory(2**20)
sizes = [2**k for k in (8, 11, 14, 16, 18, 20)]  # numbers, of 4 bytes
ways = {
    "one shot": lambda x: one_shot(x, big),
    "two shots": lambda x: two_shot(x, big),
    "gloo": dist.all_reduce,
}
took = {(name, n): [] for n in sizes for name in ways}
start, spent = time.perf_counter(), torch.zeros(1)
while spent < 8:
    for name, n in took:  # in turns: what else runs disturbs all alike
        x = torch.zeros(n)
        big.barrier()
        began = time.perf_counter()
        for _ in range(3):
            ways[name](x)
        took[name, n].append((time.perf_counter() - began) / 3)
    spent[0] = time.perf_counter() - start
    dist.all_reduce(spent, op=dist.ReduceOp.MAX)  # so that all ranks end in the same round

# %% name="crossover"
took, sizes = world["took"][0], world["sizes"][0]
timed = {key: min(times) for key, times in took.items()}
names = ("one shot", "two shots", "gloo")
figure, axes = plots.chart("bytes of the vector", f"µs, least of {len(took['gloo', 256])} rounds on rank 0")
for name in names:
    axes.loglog([4 * n for n in sizes], [1e6 * timed[name, n] for n in sizes], marker="o", label=name)
print("      KiB", *(f"{name:>10}" for name in names))
for n in sizes:
    print(f"{n // 256:9,}", *(f"{1e6 * timed[name, n]:10,.0f}" for name in names))
busy = sorted(statistics.median(times) / timed[key] for key, times in took.items())
print(f"The median round takes {busy[0]:.1f} to {busy[-1]:.0f} times the least.")
axes.legend()
figure

# %% name="reveal_cross" jupyter={"source_hidden": true}
# the answer: run this cell
cross.reveal(
    timed["gloo", 256] / timed["one shot", 256],
    why="gloo sends through sockets of the kernel, and each of its steps wakes a process; one shot only writes and looks, so it is faster where each rank has a core. Where ranks share cores, a look waits for its turn, and the lead shrinks or is gone.",
)

# %% [markdown] name="measured_explained"
# It is the *least* of all rounds, since other processes may have your cores at any moment, and a rank that spins then waits for a rank that sleeps. Where the median is many times the least, your cores were busy: run the cell again when they are not. Read your own curves from left to right. With a few ranks one shot and two shots are close for small vectors, and then two shots win, because each rank reads
# and adds less. A measurement of ours, 4 ranks on 2 cores: 13 to 19 µs for one shot of 1 KiB, 3.8 ms for gloo; from 16 KiB on two shots
# were faster. On GPUs the borders are larger: torch's own code chose one shot up to 256 KiB and two shots up to 10 MiB. vLLM takes one shot
# below 512 KiB on four GPUs, below 256 KiB on eight.
#
# ## 6. A switch that adds
#
# One more process can take the additions from all ranks. On NVLink and InfiniBand it is the *switch*: **NVLS** (from NVLink 4 on) and **SHARP**. Here it is this
# notebook's own process. It *attaches* to the memory as a guest, waits for a signal of every rank, adds all parts, and puts the sum into every part.

# %% name="switch_memory"
# %%ranks
switched = SharedMemory(4096, guests=1)
handle = switched.handle()


# %% name="switch"
def add_as_a_switch(handle, rounds=20):
    memory = SharedMemory.attach(handle, wait_s=600)
    gpus = range(handle.ranks)
    for _ in range(rounds):
        for rank in gpus:
            memory.wait(rank)
        total = sum(memory.tensor(rank) for rank in gpus)
        for rank in gpus:
            memory.tensor(rank).copy_(total)
        memory.fence()
        for rank in gpus:
            memory.signal(rank)


threading.Thread(target=add_as_a_switch, args=(world["handle"][0],)).start()
print(f"process {os.getpid()} waits for the ranks")

# %% name="switch_live"
# %%ranks
import os

switch = world_size  # the guest has the next number
for _ in range(20):
    switched.tensor(rank).fill_(float(rank))
    switched.fence()
    switched.signal(switch)
    switched.wait(switch)
print(f"process {os.getpid()} added nothing and holds {switched.tensor(rank)[:4].tolist()}")

# %% [markdown] name="switch_explained"
# No rank added anything.

# %% name="guess_link"
link = predict(
    "Eight GPUs, all-reduce of n. Two shots bring 1.75 n into each GPU. How much comes into each GPU if the switch adds?",
    choices=["n / 8", "about n", "1.75 n", "7 n"],
    title="Into each GPU, with a switch that adds",
)
link

# %% name="links"
print("p     one shot   two shots   only the sum   NVLS     (times n, into each rank)")
for p in (2, 4, 8, 72):
    print(f"{p:2} {p - 1:10.2f} {2 * (p - 1) / p:11.2f} {1:14.2f} {1 + 1 / p:6.2f}")

# %% name="reveal_link" jupyter={"source_hidden": true}
# the answer: run this cell
link.reveal(
    "about n",
    why="The sum has n numbers, and more need not come. NVLS needs n + n/p: each GPU asks for the sum of its own chunk, and hands it back to be copied to all. So on 8 GPUs the bytes into a GPU are 1.56 times fewer, and on many GPUs almost 2 times.",
)

# %% [markdown] name="where"
# With NVLS one instruction, `multimem.ld_reduce`, reads *one* address and gets the sum of all GPUs; `multimem.st` writes one address and all GPUs have it.
# For bfloat16 the switch adds in float32, if it is asked to. NCCL asks from 2.27.3 on.
#
# ## 7. Find it in torch
#
# **Your task.** Open `torch/_inductor/comm_lowering.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_should_lower_as_one_shot_all_reduce`. torch's compiler may replace an all-reduce by one shot. Up to which size? (`one_shot_all_reduce_threshold_bytes` in `torch/_inductor/config.py`)
#
# <details><summary><b>Answer</b></summary>
#
# Up to 128 KiB, if its tensor is in symmetric memory. Above that each rank would read too much.
# </details>
#
# | here | torch 2.13, `torch.distributed._symmetric_memory` | NCCL |
# |---|---|---|
# | `SharedMemory(n)` | `empty(n, device="cuda")`, then `rendezvous(t, group)` | `ncclMemAlloc`, `ncclCommWindowRegister` (2.27) |
# | `tensor(peer)` | `handle.get_buffer(peer, sizes, dtype)` | device API: `ncclGetLsaPointer` (2.28) |
# | `put`, `fence`, `signal(peer)` in one | | `ncclPutSignal` (2.29) |
# | `signal(peer, channel)` | `handle.put_signal(peer, channel)` | `ncclSignal` (2.29); its signal index must be 0 |
# | `wait(peer, channel)` | `handle.wait_signal(peer, channel)` | `ncclWaitSignal` (2.29); waits for a *number* of signals of each peer |
# | `barrier()` | `handle.barrier(channel)` | barriers of the device API |
# | `one_shot` | `torch.ops.symm_mem.one_shot_all_reduce(t, "sum", name)` | none; the kernel AGxLL_R is near: each rank *puts* its vector to all, with flags beside the data (LL), and needs no barrier |
# | `two_shot` | `torch.ops.symm_mem.two_shot_all_reduce_(t, "sum", name)` | RSxLD_AGxST |
# | the switch | `multimem_all_reduce_` | RSxLDMC_AGxSTMC |
#
# torch refuses CPU tensors there (*SymmetricMemory does not support device type cpu*), so this chapter has a memory of its own. A signal of torch is 0 or 1: the
# next one waits until the last is used up; NCCL counts them. NCCL's symmetric kernels choose by themselves if all buffers are registered; NVIDIA [claims](https://developer.nvidia.com/blog/enabling-fast-inference-and-resilient-training-with-nccl-2-27) up to 9 times
# lower latency for small sizes. From 2.28 on your own kernel can do this (**device API**), over the network too (GIN, 2.28.7).
# [Inside NCCL](43_inside_nccl.ipynb) shows what NCCL does when buffers are *not* registered.
#
# ## 8. Check yourself
#
# <details><summary>1. Why does one shot need the second barrier?</summary>
#
# A fast rank would begin the next all-reduce and overwrite its part, while a slow rank still reads the old vector.
# </details>
#
# <details><summary>2. The result is right in a million runs. Can there be a race?</summary>
#
# Yes. A race says that nothing orders two uses. Which one comes first is chance, and differs on another or a busier machine.
# </details>
#
# <details><summary>3. With two shots all ranks have the same bits, and with one shot only if they add in the same order. Why?</summary>
#
# In two shots one rank adds each chunk, and all others copy it. In one shot each rank adds for itself, and floating point sums depend on the order.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# **A message carries data, says that it has come, and guards the buffer. A write only carries data.** So memory that is shared needs a fence and a signal before each read of
# another rank's data, and a signal back before the place is written again. In return no rank has to post a receive, and few steps wait for the one before: one shot for
# small vectors, two shots for larger ones, and a switch that adds where there is one.
#
# **Now you:** [Lab 20](../../labs/lab20_without_messages/without_messages.ipynb): a two-shot all-reduce with signals of your own, and a tensor that goes through a few slots.
#
# **Next question:** the core goes on: what if a job stops, without an error? [When it hangs](45_when_it_hangs.ipynb)
#
# **Sources.** L. Lamport, *Time, clocks, and the ordering of events*, CACM 1978 · C. Flanagan and S. N. Freund, *FastTrack*, PLDI 2009 ·
# [NVIDIA, NCCL user guide](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html) ·
# [PyTorch, symmetric memory](https://docs.pytorch.org/docs/stable/symmetric_memory.html) ·
# R. Graham et al., *Scalable hierarchical aggregation protocol (SHARP)*, COMHPC 2016 ·
# [vLLM, custom all-reduce](https://github.com/vllm-project/vllm)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("44")
