# %% [markdown] name="title"
# # Inside NCCL
#
# {{here}}
#
# **For a small message NCCL sends a flag of 4 bytes with every 4 bytes of data. Half of the wire carries no data. How can that be the fastest way?**
#
# {{picture}}
#
# One line of memory, 128 bytes, in two of NCCL's protocols. The faint cells are flags.

# %% name="first_picture"
from allranks import explore

explore.protocols(nbytes=1 << 14, machine="8 H100")

# %% [markdown] name="first_question"
# **Ask the picture.** Drag the size: where do the flags of LL cost more than the latency that they save? Does the place change on two machines?

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, check, cost, plots, predict, predictions, schedules

world = World(backend="gloo")  # memory of the CPU, on every machine
world

# %% [markdown] name="two_ways"
# ## 1. How does the receiver know?
#
# A GPU writes into another GPU's memory, as in [Without messages](44_without_messages.ipynb). The receiver must learn that the data is there. There are two ways:
#
# - **A separate flag.** Write the data; fence; write a flag somewhere else. The receiver looks at the flag, then reads the data. The fence waits until
#   all data has arrived, and the flag is one more trip.
# - **A flag beside the data.** Hardware stores 8 bytes in one piece: never half of them. So put 4 bytes of data and a 4-byte flag in one store. If the flag has
#   come, its data has come with it. No fence, and no second trip.
#
# NCCL calls the first protocol **Simple** and the second **LL**, low latency. Here are both, in memory that two processes share (`SharedMemory`). In it `put` writes into another rank's part, `fence` waits until what was written is there, and `signal` and `wait` are the separate flag.


# %% name="beside_defined"
# %%ranks
import os
import time

from allranks import SharedMemory

words = SharedMemory(2**16, torch.int64)  # 8 bytes: the flag in the upper half, the data in the lower half


def put_ll(peer, x, flag):
    data = x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    words.tensor(peer)[: x.numel()].copy_(data | flag << 32)


def get_ll(n, flag):
    while True:
        seen = words.tensor(rank)[:n].clone()
        if bool((seen >> 32 == flag).all()):
            return seen.to(torch.int32).view(torch.float32)
        os.sched_yield()  # there may be more ranks than cores


# %% name="beside"
# %%ranks
if rank == 0:
    put_ll(1, torch.tensor([1.5, -2.0, 3.25]), flag=1)
elif rank == 1:
    print(f"rank 1 reads {get_ll(3, flag=1).tolist()}, the first word is {words.tensor(1)[0].item():#018x}")

# %% [markdown] name="beside_explained"
# The word has two halves: `00000001` is the flag, `3fc00000` is 1.5 in float32. The receiver reads *all* words again until every flag is right. The flag is the number of the
# step, not just 1: the next message comes into the same place, and an old flag must not look like a new one.
#
# A third protocol, **LL128**, uses a line of 128 bytes, which on NVLink arrives as a whole, with one flag of 8 bytes. What is left for data?

# %% name="shares"
for name, data, flags in (("LL", 4, 4), ("LL128", 120, 8), ("Simple", 512 * 1024, 0)):
    print(f"{name:7} {data:7,} B of data with {flags} B of flags beside it: {100 * data / (data + flags):5.1f} %")

# %% [markdown] name="protocols"
# | | LL | LL128 | Simple |
# |---|---|---|---|
# | one store | 16 bytes: twice 4 data + 4 flag | 128 bytes by 8 threads: 120 data + 8 flag | a slice, up to 1 MiB |
# | ready when | both flags are the step | the line's flag is the step | a counter beside the buffer says so, behind a fence |
# | needs | 8 bytes in one piece: any link | all of a line visible at once: NVLink, some PCIe paths | nothing |
# | 8 slots (section 3) have | 512 KiB | 4,915,200 bytes | 4 MiB (`NCCL_BUFFSIZE`) |
# | bandwidth | at most half | at most 15/16 | all of it |
#
# NCCL switches LL128 on only where the hardware shows a line as a whole. **Do not force it with `NCCL_PROTO`**: on a path that shows half a line, the sums are
# wrong, and nothing is reported.
#
# ## 2. Both ways, measured
#
# Ranks 0 and 1 play ping-pong, with both protocols. The other ranks have nothing to do in this cell; the next cell is a barrier, in which all ranks meet again.

# %% name="guess_cpu"
faster = predict(
    "On your CPU, in one memory: 4 bytes of data. Which way is faster?",
    choices=["flag beside the data", "separate flag", "the same, within a factor of 2"],
    title="4 bytes on a CPU",
)
faster


# %% name="turns"
# %%ranks
plain = SharedMemory(2**16)


def turn_ll(x, flag, mine):
    put_ll(1 - rank, x, flag) if mine else get_ll(x.numel(), flag)


def turn_simple(x, flag, mine):
    if mine:
        plain.put(1 - rank, 0, x)
        plain.fence()
        plain.signal(1 - rank)
    else:
        plain.wait(1 - rank)
        plain.get(rank, 0, x.numel())


# %% name="ping_pong"
# %%ranks
flag, took = 1, {}
for n in (1, 2**6, 2**10, 2**14, 2**16) if rank < 2 else ():
    for name, turn in (("beside", turn_ll), ("separate", turn_simple)):
        x, turns = torch.ones(n), []
        for _ in range(60):
            began, flag = time.perf_counter(), flag + 2
            turn(x, flag, mine=rank == 0)
            turn(x, flag + 1, mine=rank == 1)
            turns.append((time.perf_counter() - began) / 2)
        took[name, n] = min(turns)

# %% name="wait_for_the_two"
# %%ranks
dist.barrier()

# %% name="ping_pong_curve"
took = world["took"][0]
figure, axes = plots.chart("bytes of data", "µs one way, shortest of 60")
for name in ("beside", "separate"):
    across, up = zip(*[(4 * n, 1e6 * s) for (way, n), s in took.items() if way == name], strict=True)
    axes.loglog(across, up, marker="o", label=f"flag {name}")
    print(f"{name:9}", "  ".join(f"{b:7,} B {us:8.1f}" for b, us in zip(across, up, strict=True)))
axes.legend()
figure

# %% name="reveal_cpu" jupyter={"source_hidden": true}
# the answer: run this cell
quotient = took["beside", 1] / took["separate", 1]
faster.reveal(
    "flag beside the data" if quotient < 0.5 else "separate flag" if quotient > 2 else "the same, within a factor of 2",
    why="A fence costs a CPU almost nothing, since its caches already agree, and here Python's packing costs more than a second trip. On a GPU a fence waits for all stores to reach the other GPU, which is why NCCL has LL.",
)

# %% [markdown] name="measured_explained"
# So a CPU shows neither the *reason* for LL nor its *price*: what you see at the right end is mostly the time that Python takes to pack data and flags into words. On a GPU the price is
# half of the bandwidth. On H100s NCCL's own tuner
# counts, for each hop of a ring over NVLink, 0.6 µs with LL, 1.9 µs with LL128 and 3.4 µs with Simple, and for a call 6.6, 14 and 8.4 µs.
#
# ## 3. Slots
#
# A ring cannot give every message a buffer of its own. Between two neighbours NCCL has a buffer of **8 slots** (`NCCL_STEPS`), a **FIFO**. The sender fills a slot and
# moves on; it may be at most 8 slots ahead of the receiver. Two counters say so: `tail` (filled) and `head` (free again).

# %% name="guess_slots"
slots = predict(
    "A slot takes 10 µs to fill, and its way, the reading and the answer take 30 µs more. How many slots keep the sender busy all the time?",
    choices=["1", "2", "4", "8"],
    title="Slots that keep the sender busy",
)
slots


# %% name="slots_model"
def fifo_us(pieces, slots, fill=10.0, answer=30.0):
    """The sender fills one slot after the other; a slot is free again when its answer has come."""
    free, now = [0.0] * slots, 0.0
    for piece in range(pieces):
        now = max(now, free[piece % slots]) + fill
        free[piece % slots] = now + answer
    return now


for count in (1, 2, 4, 8):
    us = fifo_us(64, count)
    print(
        f"{count} slots: 64 pieces in {us:6.0f} µs, the sender is busy {100 * 640 / us:3.0f} % of the time",
    )

# %% name="reveal_slots" jupyter={"source_hidden": true}
# the answer: run this cell
slots.reveal(
    "4",
    why="A slot comes back after 40 µs, and in this time the sender fills four. (Answers are not always punctual, so NCCL has eight.)",
)

# %% [markdown] name="chunks"
# A ring all-reduce with Simple cuts a vector like this: the vector is divided among **channels**; each channel runs its own ring, in its own
# block of threads, and on links of its own if GPUs are joined directly (behind an NVSwitch the channels share the links). A channel's part is cut in *loops* of $p$ chunks, a chunk has at most 4 slots (2 MiB), and a chunk travels in two *slices*, so that
# the second is under way while the first is added.

# %% name="cut"
for nbytes in (2**17, 2**26, 2**30):
    choice = next(o for o in cost.nccl_options("all_reduce", nbytes) if (o.algorithm, o.protocol) == ("ring", "Simple"))
    part = left = nbytes / choice.channels
    chunks = []  # of each loop, in KiB: 2 MiB, but the last loop has what is left
    while left > 0:
        chunks.append(round(min(left / 8, 2**21) / 1024))
        left -= 8 * 2**21
    print(
        f"{nbytes >> 10:9,} KiB on 8 H100: {choice.channels:2} channels of {part / 2**20:5.2f} MiB, chunks of {chunks} KiB, one for each loop"
    )

# %% [markdown] name="chunks_explained"
# Few bytes get few channels: NCCL takes channels and threads away until each has enough to do. That is why many small calls leave most of a GPU to your kernels, and why a large all-reduce on one machine takes 24 of an H100's 132 multiprocessors in a ring, and 16 with NVLS
# (`NCCL_MAX_CTAS` limits it; before 2.17 it was `NCCL_MAX_NCHANNELS`). Step through one channel's ring:

# %% name="watch"
Player(schedules.ring_all_reduce(ranks=4))

# %% [markdown] name="slots_mine_task"
# ### Your turn
#
# A tensor goes to the right neighbour, piece by piece, through `slots` slots of its memory. The code below fills a slot again while its reader may still read it: `tail` is there (channel 0), `head` is missing (channel 1). **Add it.**
# And leave no signal behind: the next call begins with all slots free.


# %% name="slots_mine"
def shift_through_slots(tensor, memory, slots):
    rank, p, filled = memory.rank, memory.ranks, 0  # a channel of signals: this slot is full
    if p == 1 or tensor.numel() == 0:
        return tensor.clone()
    right, left, size = (rank + 1) % p, (rank - 1) % p, memory.numel // slots
    pieces, received = tensor.reshape(-1).split(size), []
    for i, piece in enumerate(pieces):
        place = i % slots * size
        memory.put(right, place, piece)  # your turn: may this slot be filled again?
        memory.fence()
        memory.signal(right, filled)
        memory.wait(left, filled)
        received.append(memory.get(rank, place, piece.numel()))
    return torch.cat(received).view(tensor.shape)


check(shift_through_slots)

# %% [markdown] name="slots_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def shift_through_slots(tensor, memory, slots):
#     rank, p, filled, free = memory.rank, memory.ranks, 0, 1  # two channels of signals
#     if p == 1 or tensor.numel() == 0:
#         return tensor.clone()
#     right, left, size = (rank + 1) % p, (rank - 1) % p, memory.numel // slots
#     pieces, received = tensor.reshape(-1).split(size), []
#     for i, piece in enumerate(pieces):
#         place = i % slots * size
#         if i >= slots:
#             memory.wait(right, free)
#         memory.put(right, place, piece)
#         memory.fence()
#         memory.signal(right, filled)
#         memory.wait(left, filled)
#         received.append(memory.get(rank, place, piece.numel()))
#         memory.signal(left, free)
#     for _ in pieces[-slots:]:  # the next call must find all slots free
#         memory.wait(right, free)
#     return torch.cat(received).view(tensor.shape)
# ```
# </details>

# %% [markdown] name="tuner"
# ## 4. What the tuner chooses
#
# For each call NCCL's **tuner** estimates a time for every algorithm with every protocol, $\text{latency} + \text{bytes} / \text{bandwidth}$, and takes the least. `allranks` has the tables
# of NCCL 2.30.7 (`src/graph/tuning.cc`); they agree with NCCL's own search and tuner, run on a CPU. They are estimates: for large sizes on one machine they are within about a
# quarter of what was measured; for small sizes the real time is often one and a half times as long, or more.

# %% name="guess_switch"
switch = predict(
    "All-reduce on 8 H100s with NVSwitch: from how many bytes on does NCCL let the switch add (NVLS)?",
    low=1e3,
    high=1e9,
    unit="bytes",
    log=True,
    title="NVLS on 8 H100s from",
)
switch

# %% name="options"
sizes = [2**k for k in range(8, 32)]
curves = {}
for nbytes in sizes:
    for option in cost.nccl_options("all_reduce", nbytes, "dgx-h100"):
        if option.algorithm != "tree":  # never the fastest on one machine
            curves.setdefault(f"{option.algorithm} {option.protocol}", []).append(option.us)
figure, axes = plots.chart("bytes", "µs, by the tuner, 8 H100")
for name, up in curves.items():
    axes.loglog(sizes, up, label=name)
axes.legend(fontsize=8)
figure


# %% name="choices"
def choices(machine, nodes, collective="all_reduce"):
    """Where the choice changes: (bytes, algorithm and protocol, channels)."""
    found = []
    for quarter in range(4 * 8, 4 * 33):
        nbytes = round(2 ** (quarter / 4))
        best = cost.nccl_choice(collective, nbytes, machine, nodes=nodes)
        if not found or found[-1][1] != f"{best.algorithm} {best.protocol}":
            found.append((nbytes, f"{best.algorithm} {best.protocol}", best.channels))
    return found


for machine, nodes in (("dgx-a100", 1), ("dgx-h100", 1), ("dgx-h100", 2), ("dgx-h100", 32)):
    print(
        f"{nodes:2} x {machine}:",
        "  ".join(f"{name} from {n:,}" for n, name, _ in choices(machine, nodes)),
    )
print(" 2 x dgx-a100:", "  ".join(f"{name} from {n:,}" for n, name, _ in choices("dgx-a100", 2)))

# %% name="reveal_switch" jupyter={"source_hidden": true}
# the answer: run this cell
switch.reveal(
    next(n for n, name, _ in choices("dgx-h100", 1) if name.startswith("nvls")),
    why="NVLS costs 25 µs before the first byte and a ring with LL 15 µs, so small vectors go round the ring with flags beside the data, although half of its bytes are flags.",
)

# %% [markdown] name="tuner_explained"
# In each line the protocol goes from LL to LL128 to Simple, whatever the algorithm does:
#
# - **Small** vectors need the least latency: LL, in a ring or chain on one machine, in a tree on several.
# - **Middle** ones take LL128, which has nearly all of the bandwidth and still no separate flag. (One machine of H100s has no middle: it goes from LL to the switch.)
# - **Large** ones take Simple, or the switch that adds.
#
# Most borders are where two straight lines cross, as $\alpha$ and $\beta$ say; the tree's line is bent by a table of corrections.
#
# The tuner knows your machine only by its tables, and they have surprises. On several nodes the limit for LL is taken from a row that depends on the maker of the *CPU*. And on two
# A100 nodes (the last line) the choice changes three times between 3 and 15 MB: ring, tree, and ring again. So a step in a measured curve need not be noise: look up the choice there.
#
# ```
# allranks simulate --algorithm nccl --topology dgx-h100 --nodes 2 --collective all_reduce --bytes 1MiB
# ```
#
# ## 5. One GPU a node: PAT
#
# On 256 nodes with one GPU each, a ring all-gather has 255 steps. How does NCCL do it in eight? From 2.23 on it has **PAT** (parallel aggregated trees), a variation of Bruck's algorithm, for one GPU a node:
#
# | all-gather | rounds | first partner | data in the last round | order in memory |
# |---|---|---|---|---|
# | ring | $p-1$ | neighbour | 1 chunk | in place |
# | Bruck | $\lceil\lg p\rceil$ | nearest | $p/2$ chunks, to the farthest rank | turned, one copy at the end |
# | PAT | $\lceil\lg p\rceil$ for small chunks | farthest, with 1 chunk | $p/2$ chunks, to the nearest rank | in place |
#
# PAT turns Bruck's order round: long ways carry one chunk, short ways carry many. And it sends at most what fits into a slot, so large chunks become more messages. Its time in the tuner has
# a part that grows with $p$: $\lg p$ trips, plus 2.8 µs for each rank. Here is Bruck; in PAT the arrows come in the opposite order.

# %% name="watch_bruck"
Player(schedules.bruck_all_gather(ranks=8))

# %% name="pat"
print("nodes  ring LL  ring Simple   PAT    (µs, all-gather of 64 KiB a rank, one GPU a node)")
for nodes in (8, 64, 256):
    options = cost.nccl_options("all_gather", nodes * 2**16, "dgx-h100", nodes=nodes, ranks=nodes)
    us = {(o.algorithm, o.protocol): o.us for o in options}
    print(f"{nodes:5} {us['ring', 'LL']:8.0f} {us['ring', 'Simple']:12.0f} {us['pat', 'Simple']:6.0f}")

# %% [markdown] name="rack"
# ## 6. One rack, 72 GPUs
#
# What is a "node"? For the tuner, not a computer: all GPUs that reach each other over NVLink are one **NVLink domain**, and it counts domains. In a GB200 NVL72, 18 computers with four GPUs each share
# one NVLink network. For NCCL that is *one* node with 72 ranks, and the operating systems between them don't matter.
# <!-- NCCL 2.30.7 src/graph/tuning.cc (nNodes counts NVLink domains); 18 x 4: docs.nvidia.com/dgx/dgxgb200-user-guide; MNNVL since 2.21: env.rst 1718 -->
#
# A GPU maps the memory of a GPU in another computer. Three things must agree:
#
# - **IMEX**, a service on each of the 18 computers, hands the permission over. A process also needs a channel, `/dev/nvidia-caps-imex-channels`, and a container often lacks it.
# - The **fabric manager** gives each GPU a cluster UUID and a **clique** ID. By default only GPUs with both equal are one domain; `NCCL_MNNVL_CLIQUE_ID` cuts a rack into smaller ones.
# - NCCL looks for all this by itself (`NCCL_MNNVL_ENABLE=2`, the default). Without a fabric it goes on over network cards, and only the log says so. But if the fabric is there and IMEX does not work, the communicator is not made:
#   an error, until IMEX works or you set `NCCL_MNNVL_ENABLE=0`.
# <!-- 2.30.7 src/mnnvl.cc 14-100: all ranks' fabric state complete, UUID and clique equal, a fabric handle exported and imported through IMEX, else the warning that names
# /dev/nvidia-caps-imex-channels or nvidia-imex-ctl -N, and ncclSystemError; init.cc 1072 makes the same check with 1 and 2, so the source does not do what env.rst 1718-1750 says of 2 ("will not fail"). Cliques since 2.25; -2 takes the rack's serial number, since 2.28.3 -->
#
# NVLS then adds over all 72 GPUs at once. The same 64 Blackwell GPUs in one rack, and in eight computers with eight each and a 400 Gb/s card for each GPU:

# %% name="guess_rack"
rack = predict(
    "All-reduce of 1 GiB on 64 Blackwell GPUs: one rack is how many times as fast as eight computers?",
    low=0.5,
    high=20.0,
    title="64 GPUs, one rack against eight computers",
)
rack

# %% name="rack_priced"
ratios = []
for nbytes in (2**16, 2**24, 2**30):
    inside = cost.nccl_choice("all_reduce", nbytes, "gb200-nvl72", nodes=1, ranks=64)
    across = cost.nccl_choice("all_reduce", nbytes, "dgx-b200", nodes=8)
    ratios.append(across.us / inside.us)
    print(f"{nbytes / 2**20:8.2f} MiB: one rack {inside.us:6.0f} µs ({inside.algorithm}),", end=" ")
    print(f"eight computers {across.us:6.0f} µs ({across.algorithm}): x {ratios[-1]:.1f}")

# %% name="reveal_rack" jupyter={"source_hidden": true}
# the answer: run this cell
rack.reveal(
    ratios[-1],
    why="Inside the rack the switch adds and every byte stays on NVLink; outside, each GPU's share must pass a card with a fraction of NVLink's bandwidth.",
)

# %% [markdown] name="rack_explained"
# (Estimates of NCCL's tuner.) Eight computers use all 64 cards, and still the rack is ahead. So the question "does tensor parallelism stay inside the node?" gets another answer: up to 72. But
# one service that fails, IMEX for example, now stops 72 GPUs. `nvidia-smi -q` shows state, UUID and clique under *Fabric*; `NCCL_DEBUG=INFO` prints `MNNVL 1 cliqueId ... cliqueSize ...`.
# If the log says `MNNVL ... is available but not working`, look at IMEX before anything else (`nvidia-imex-ctl -N`).
# <!-- the two log lines: 2.30.7 src/mnnvl.cc 66-97 -->

# %% [markdown] name="where"
# ## 7. See it in your own job
#
# | you set | you see or get |
# |---|---|
# | `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING` | the table of all estimates, and for each call the choice |
# | `NCCL_ALGO=allreduce:tree`, `NCCL_PROTO=LL` | a forced choice, for experiments only; since 2.24 NCCL fails where it can't obey |
# | `NCCL_MAX_CTAS` | fewer multiprocessors for NCCL, more for your kernels |
# | `NCCL_NVLS_ENABLE=0` | no switch that adds (other bits too: NVLS adds bfloat16 in float32 from 2.27.3 on, a ring in bfloat16) |
#
# Between nodes a thread of the CPU, the **proxy**, watches the FIFOs and gives filled slots to the network card. If that thread gets no core, every collective is slow, and
# no profile of the GPU says why.
#
# ## 8. Run it
#
# A GPU of a running job fails, or one call is slow. What does NCCL have for it?
#
# <details><summary><b>By version</b></summary>
#
# | since | for operation |
# |---|---|
# | 2.24 | **RAS**: a thread in each process knows all others. `ncclras` on any of the job's nodes (localhost, port 28028) asks who is alive, and at which call each communicator's ranks are; without the program: `echo verbose status \| nc localhost 28028` |
# | 2.27 | `ncclCommShrink`: a communicator without some ranks, called by those that stay; with `NCCL_SHRINK_ABORT` it ends what is under way |
# | 2.28.3 | the **Inspector** (a profiler plugin) writes time and bandwidth of each call |
# | 2.28.7 | `ncclCommRevoke` stops what is under way and keeps the resources, until shrink, split or destroy |
# | 2.29.2 | `ncclCommGrow` adds ranks |
# | 2.29.7 | `ncclCommSuspend` and `ncclCommResume` give a communicator's GPU memory back for a while; failover to another port |
# | 2.31.2 | algorithm and CTAs for *one call* (`ncclCollConfig_t`), and a tag that profilers see |
# </details>
# <!-- git tags of NVIDIA/nccl up to v2.30.7-1, their messages for 2.28.3 to 2.29.3; nccl pulls 2023 (2.29.5a2: suspend, failover), 2339 (2.31.2-1), issue 2337 (suspend
# since 2.29.7); docs.nvidia.com/deeplearning/nccl/release-notes rel_2-31-2. RAS: docs/userguide/source/troubleshooting/ras.rst; shrink,
# revoke, suspend: api/comms.rst 112, 171, 310. Looked up 2026-11 -->
#
# In this order after a failure: *revoke* on every survivor, agree who is left ([Survive](46_survive.ipynb)), *shrink*, train on, and *grow* when the replacement has come. Shrink closes the gap in the ranks' numbers; grow gives new ranks the *last* numbers, so the replacement of rank 3 is not rank 3.
# <!-- numbers: 2.30.7 docs/userguide/source/api/comms.rst 112-175 -->
#
# **Plugins** are libraries that NCCL loads: `NCCL_NET_PLUGIN` carries the bytes (EFA, Slingshot: [The network](49_the_network.ipynb)), `NCCL_TUNER_PLUGIN` chooses algorithm, protocol and channels, `NCCL_PROFILER_PLUGIN` hears of
# each call, kernel and network operation (the Inspector is one: `NCCL_INSPECTOR_ENABLE=1`).
# <!-- env.rst 451-497; plugins/tuner/example/README.md (2.30.7); plugins/profiler/inspector/README.md 63-90; tag message of v2.28.7-1 -->

# %% [markdown] name="recap"
# ## Recap
#
# A receiver must know that data has come. A flag beside the data saves a fence and a trip, and costs half of the bandwidth (LL) or a sixteenth (LL128); a separate flag costs latency only (Simple).
# **Small messages use LL: it starts fast, but half of its bytes are flags. Large messages use Simple: it starts slowly, and all its bytes are data.** Slots let the sender run ahead, channels keep all links busy, and a table of latencies and
# bandwidths chooses.
#
# **Now you:** [Lab 20](../../labs/lab20_without_messages/without_messages.ipynb) has a FIFO of a few slots to write.
#
# **Next question:** what if ranks share their memory and send nothing? [Without messages](44_without_messages.ipynb). The core goes on with [When it hangs](45_when_it_hangs.ipynb).
#
# **Sources.** [NVIDIA/nccl](https://github.com/NVIDIA/nccl) 2.30.7: `src/graph/tuning.cc`, `src/include/device.h`, `src/device/prims_simple.h`, `prims_ll.h`, `prims_ll128.h`, `collectives.h` ·
# Z. Hu et al., *Demystifying NCCL*, [arXiv:2507.04786](https://arxiv.org/abs/2507.04786) ·
# S. Jeaugey, *PAT: a new algorithm for all-gather and reduce-scatter*, [arXiv:2506.20252](https://arxiv.org/abs/2506.20252) ·
# J. Bruck et al., *Efficient algorithms for all-to-all communications*, IEEE TPDS 1997

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("43")
