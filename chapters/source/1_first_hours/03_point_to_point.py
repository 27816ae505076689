# %% [markdown] name="title"
# # Point to point
#
# {{here}}
#
# **The ranks form a circle, and each sends one number to its right-hand neighbour. The program has two lines, and both look right. Why does it never
# end? And how long does one message take in a program that works?**
#
# If your ranks are on GPUs, *On NCCL* at the end says what is different there.
#
# {{picture}}
#
# *Above:* each rank has one number. *Below:* it has its left-hand neighbour's.

# %% [markdown] name="my_model_needs"
# **My model** will stand on several GPUs in a row, each with some of its layers. Then a GPU sends 34 MB to the next one for every sequence,
# and the next one must be ready to receive.

# %% name="start_world"
import time

import torch
import torch.distributed as dist

from allranks import Player, World, check, plots, predict, predictions
from allranks.wire import run


world = World()
world

# %% [markdown] name="pair"
# ## 1. One sends, one receives
#
# `dist.send(tensor, dst)` and `dist.recv(tensor, src)` are the smallest operations; all others are built from them.

# %% name="guess_pair"
guess_pair = predict(
    "Rank 0 sends [10, 20] to rank 1. What do the ranks print?",
    choices=[
        "rank 1: [10, 20], others: [10, 20]",
        "rank 1: [10, 20], others: [0, 0]",
        "they wait for ever",
    ],
    title="Rank 0 sends to rank 1: they print",
)
guess_pair

# %% name="first_message"
# %%ranks
x = torch.zeros(2)
if rank == 0:
    dist.send(torch.tensor([10.0, 20.0]), dst=1)
if rank == 1:
    dist.recv(x, src=0)
print(x.tolist())

# %% name="reveal_pair" jupyter={"source_hidden": true}
# the answer: run this cell
guess_pair.reveal(
    "rank 1: [10, 20], others: [0, 0]",
    why="A send and a receive concern two ranks only; the others go on, with their zeros.",
)

# %% [markdown] name="pair_explained"
# The message carries only bytes: no shape, no dtype. So the receiver must know both beforehand and must provide a tensor for the bytes. Messages
# from one rank to another arrive in the order in which they were sent.

# %% [markdown] name="send_waits"
# ## 2. How long does a send take?
#
# Rank 0 sends one number, 4 bytes. Rank 1 sleeps for 0.3 seconds before it receives.

# %% name="guess_send"
guess_send = predict(
    "Rank 0 sends 4 bytes; rank 1 sleeps for 0.3 s before it receives. How many ms does rank 0 spend in `send`?",
    low=0.01,
    high=1000,
    unit="ms",
    log=True,
    title="Time that rank 0 spends in `send`",
)
guess_send

# %% name="send_takes"
# %%ranks
import time

x = torch.zeros(1)
dist.barrier()  # no rank goes on before all have come
if device.type == "cuda":
    torch.cuda.synchronize()  # the barrier waits on the CPU, but not for other streams
start = time.perf_counter()
if rank == 0:
    dist.send(x, dst=1)
if rank == 1:
    time.sleep(0.3)
    dist.recv(x, src=0)
took_ms = 1e3 * (time.perf_counter() - start)

# %% name="reveal_send" jupyter={"source_hidden": true}
# the answer: run this cell
spent_ms = world["took_ms"][0]
print(f"rank 0 spent {spent_ms:.0f} ms in send")
guess_send.reveal(
    spent_ms,
    why="Nothing promises a buffer: Gloo's `send` returns only when the receiver has called `recv`. (NCCL's returns early.)",
)

# %% [markdown] name="send_waits_explained"
# With Gloo, `send` does not return before the receiver has called `recv`, however short the message is. Sender and receiver wait for each other: this
# is called a **rendezvous**.
#
# MPI allows more: a library may copy a small message into its own buffer and return. Programs that rely on this buffer work until a message is larger
# than the buffer. **Write as if every send waited.**

# %% [markdown] name="circle"
# ## 3. The circle
#
# Now the opening question. Each rank sends to the right, then receives from the left. Each rank alone does nothing wrong. What happens when all ranks do this together?


# %% name="send_first"
def around():
    """My number, room for the neighbour's, and both neighbours."""
    rank, p = dist.get_rank(), dist.get_world_size()
    return torch.tensor([float(rank)]), torch.empty(1), (rank - 1) % p, (rank + 1) % p


def send_first():
    x, arriving, left, right = around()
    dist.send(x, right)
    dist.recv(arriving, left)
    return arriving.item()


# %% name="guess_arrows"
guess_arrows = predict(
    "Four ranks each send to the right before they receive. Draw an arrow from each rank to the rank that it waits for. "
    "How many arrows do you draw?",
    low=0,
    high=12,
    title="Arrows between four ranks",
)
guess_arrows

# %% tags=["raises-exception"] name="live_deadlock"
world.reset()  # new ranks: no two of them have a connection yet
world.run(send_first, deadline=3)

# %% [markdown] name="live_deadlock_explained"
# Every rank waits in its `send`. Each waits until its right-hand neighbour receives, but that neighbour can't receive before its own `send` ends.
# After 3 seconds the deadline ended the cell; PyTorch alone would have waited for half an hour.
#
# A deadline can't tell a deadlock from a slow rank. A program that sees all messages can. The **wire** runs your code, unchanged, on a second set of
# ranks, here four, and one router carries every message between them. As soon as no rank can continue, the router knows it.

# %% name="wire_deadlock"
results, trace, deadlock = run(send_first, ranks=4)
deadlock

# %% name="reveal_arrows" jupyter={"source_hidden": true}
# the answer: run this cell
guess_arrows.reveal(
    4,
    why="Every rank waits for the next one, and the last one for the first: a circle has as many arrows as ranks.",
)

# %% [markdown] name="wire_deadlock_explained"
# The arrows form a circle. **A deadlock is a circle of ranks that wait for each other.** To fix it, remove one arrow. (A program
# can also hang without a circle, if a rank waits for one that has finished or died.)

# %% [markdown] name="mend"
# ### Three ways out
#
# 1. **One rank receives first.** The circle is cut at rank 0.
# 2. **The odd ranks receive first.** The circle is cut in many places.
# 3. **`isend`.** It starts the send and returns a handle at once; the handle's `wait()` waits until the send is done. (This one runs on the wire.)


# %% name="three_ways"
def in_order(receive_first):
    x, arriving, left, right = around()
    if receive_first:
        dist.recv(arriving, left)
    dist.send(x, right)
    if not receive_first:
        dist.recv(arriving, left)
    return arriving.item()


def one_receives_first():
    return in_order(dist.get_rank() == 0)


def odd_receive_first():
    return in_order(dist.get_rank() % 2 == 1)


def start_sending():
    x, arriving, left, right = around()
    sending = dist.isend(x, right)
    dist.recv(arriving, left)
    sending.wait()
    return arriving.item()


# %% name="three_live"
ways = (one_receives_first, odd_receive_first, start_sending)
for way in ways[:2]:
    print(f"{way.__name__:20}", world.run(way, deadline=5))
print(f"{'start_sending (wire)':20}", run(start_sending, ranks=world.ranks).results)

# %% [markdown] name="rounds"
# All three are right. Are they equally good? Call the time of one message a **round**. The wire has a virtual clock: on it a message takes `alpha`
# seconds, and `beta` seconds more for each of its bytes. Here we set `alpha` to 1 and `beta` to 0, so that seconds on this clock are rounds.

# %% name="guess_rounds"
first_way = predict(
    "One rank receives first, 8 ranks: how many rounds?",
    low=0,
    high=24,
    title="Rounds if one rank receives first",
)
second_way = predict(
    "The odd ranks receive first, 8 ranks: how many rounds?",
    low=0,
    high=24,
    title="Rounds if the odd ranks receive first",
)
display(first_way, second_way)

# %% name="count_rounds"
print(f"{'ranks':20}" + "".join(f"{p:4}" for p in (2, 3, 4, 5, 8)))
for way in ways:
    rounds = [run(way, ranks=p, alpha=1, beta=0).seconds for p in (2, 3, 4, 5, 8)]
    print(f"{way.__name__:20}" + "".join(f"{r:4g}" for r in rounds))

# %% name="reveal_rounds" jupyter={"source_hidden": true}
# the answer: run this cell
display(
    first_way.reveal(
        8,
        why="Only the left neighbour of rank 0 can send at once, then the one left of it, and so on, one after the other.",
    ),
    second_way.reveal(
        2,
        why="The even ranks send in the first round and the odd ranks in the second.",
    ),
)

# %% name="watch_ways"
first, second = (run(way, ranks=4).trace for way in (one_receives_first, start_sending))
Player(first, second, titles=("One receives first", "isend"))

# %% [markdown] name="rounds_explained"
# If only rank 0 receives first, it also sends last. If the odd ranks receive first and $p$ is odd, the neighbours 0 and $p-1$ are both even, and it takes
# three rounds. With `isend` all ranks send and receive at once, in one round, because a link carries both directions at the same time.
#
# A program without deadlock can still be slow, and no error tells you so. There is a fourth way, `dist.batch_isend_irecv`: give it the list of all
# sends and receives, and it starts them together. It is right with every library, so this course uses it in every circle.

# %% name="batch"
# %%ranks
x, arriving = torch.tensor([float(rank)]), torch.empty(1)
sending = dist.P2POp(dist.isend, x, (rank + 1) % world_size)
receiving = dist.P2POp(dist.irecv, arriving, (rank - 1) % world_size)
for work in dist.batch_isend_irecv([sending, receiving]):
    work.wait()
print(arriving.item())

# %% [markdown] name="buffers"
# ## 4. When may you change the buffer?
#
# Rank 0 starts to send ones. Then, before `wait()`, it writes 7 into the tensor, to be ready for the next step. Rank 1 receives a little later.
# (`new_group(backend="gloo")` makes a second group of all ranks, with Gloo and tensors on the CPU. This course tries mistakes there, because NCCL leaves
# many of them undefined: so you see the same on any machine.)

# %% name="guess_buffer"
guess_buffer = predict(
    "Rank 0 starts to send ones, then writes 7 into the tensor before `wait()`. What does rank 1 get?",
    choices=["ones: the send began before", "sevens", "an error on rank 0"],
    title="The buffer is overwritten before `wait()`: rank 1 gets",
)
guess_buffer


# %% name="too_early"
def overwrite_too_early(group=None):
    x = torch.ones(3, device="cpu")
    if dist.get_rank() == 0:
        sending = dist.isend(x, 1, group)
        x.fill_(7.0)
        sending.wait()
    if dist.get_rank() == 1:
        time.sleep(0.2)
        dist.recv(x, 0, group)
    return x.tolist()


world.run(lambda: overwrite_too_early(dist.new_group(backend="gloo")))[1]

# %% name="reveal_buffer" jupyter={"source_hidden": true}
# the answer: run this cell
guess_buffer.reveal(
    "sevens",
    why="`isend` does not copy: it stores the address, and Gloo reads what is there when the receiver calls `recv`.",
)

# %% [markdown] name="too_early_explained"
# (If rank 1 had been earlier, it might have got ones.) Between `isend` and `wait()`
# the tensor belongs to the backend. The same holds for `irecv`: before `wait()` its buffer may hold anything. Live ranks report nothing; the wire compares the tensor before and after:

# %% name="wire_too_early"
run(overwrite_too_early, ranks=2).failure

# %% [markdown] name="yours"
# ## 5. Your turn: shift by k
#
# `ring_shift(tensor, k)` returns the tensor of the rank $k$ places to the left. This version hangs. `check` runs your function on ranks of its own and says
# what is wrong with it. **Run it, look at the picture, and fix it.**


# %% name="ring_shift"
def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    mine = tensor.contiguous()
    arriving = torch.empty_like(mine)
    dist.send(mine, (rank + k) % p)
    dist.recv(arriving, (rank - k) % p)
    return arriving


check(ring_shift)

# %% [markdown] name="shift_answer"
# <details><summary><b>A hint</b></summary>
#
# Give both to `dist.batch_isend_irecv`, then wait for both.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def ring_shift(tensor, k):
#     rank, p = dist.get_rank(), dist.get_world_size()
#     if k % p == 0:
#         return tensor.clone()
#     mine = tensor.contiguous()
#     arriving = torch.empty_like(mine)
#     both = [dist.P2POp(dist.isend, mine, (rank + k) % p), dist.P2POp(dist.irecv, arriving, (rank - k) % p)]
#     for work in dist.batch_isend_irecv(both):
#         work.wait()
#     return arriving
# ```
# </details>
#
# **The short way to a ring of your own** goes on in [All-reduce](04_all_reduce.ipynb). Sections 6 to 8 here say what a message
# carries and costs; you need that from section 4 there on.

# %% [markdown] name="mismatch"
# ## 6. Only bytes
#
# Rank 0 sends the float 1.0, and rank 1 receives into an int32. What does it read?

# %% tags=["raises-exception"] name="mismatch_run"
# %%ranks --deadline 5
gloo = dist.new_group(backend="gloo")
with torch.device("cpu"):
    x = torch.tensor([1.0]) if rank == 0 else torch.zeros(1, dtype=torch.int32)
    four, room = torch.arange(4.0), torch.full((6,), -1.0)
if rank == 0:
    dist.send(x, dst=1, group=gloo)
    dist.send(four, dst=1, group=gloo)
if rank == 1:
    dist.recv(x, src=0, group=gloo)
    dist.recv(room, src=0, group=gloo)
    print(x.item(), room.tolist())

# %% [markdown] name="mismatch_explained"
# Four bytes came, and rank 1 read them as an integer: 1065353216 is `0x3F800000`, the bits of 1.0. The second message was shorter than its buffer,
# and the rest of the buffer stayed as it was. Neither message gave an error with Gloo (torch 2.13); a message *longer* than its buffer ends the
# receiver's process. So agree on shape and dtype beforehand, or send them first.
#
# ### From anybody
#
# With Gloo you may leave out `src`. Then `recv` takes the first message from any rank, and returns the rank that sent it.

# %% name="any_source"
# %%ranks
gloo = dist.new_group(backend="gloo")
x = torch.tensor([float(rank)], device="cpu")
if rank == 0:
    print([dist.recv(x, group=gloo) for _ in range(world_size - 1)])
else:
    dist.send(x, dst=0, group=gloo)

# %% [markdown] name="any_source_explained"
# With three or more ranks, run it a few times and the order may change. Code that adds floats in the order of arrival can get different bits on every run.

# %% [markdown] name="ping_pong"
# ## 7. What a message costs: ping-pong
#
# A message of $m$ bytes takes $T(m) = \alpha + m\beta$ seconds: the `alpha` and `beta` of section 3. To measure this, rank 0 sends and waits for the answer. One message takes half of the
# time for both directions. In this way only one clock is read; the clocks of two ranks would not agree.
#
# Times vary. Other work of the machine can only make a try slower, so the **best** of many tries is nearest to what the link can do: it gives
# $\alpha$ and $\beta$. The **median** is the middle one: half of the tries are slower. It is what a program usually sees, so it compares two ways. Here we keep the best of 50.
# In later chapters the course's `bench` times the calls (`bench.sweep` gives both, `bench.seconds_of` the median): all ranks begin together, the clock waits for a GPU, and a call takes as long
# as its slowest rank.
#
# Which $\alpha$ and which rate $1/\beta$ do you expect here?

# %% name="ping_pong_run"
# %%ranks
import time  # the ranks of section 2 imported it too, but they ended with the deadlock of section 3


def ping_pong(nbytes, times=50):
    """Seconds of one message between ranks 0 and 1, the best of so many."""
    ball, seconds = torch.zeros(nbytes // 4), []
    for _ in range(times):
        start = time.perf_counter()
        if rank == 0:
            dist.send(ball, 1)
            dist.recv(ball, 1)
        else:
            dist.recv(ball, 0)
            dist.send(ball, 0)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / 2)
    return min(seconds)


sizes = [4 * 8**k for k in range(8)]
points = [(nbytes, ping_pong(nbytes)) for nbytes in sizes] if rank < 2 else []

# %% name="fit_link"
points = world["points"][0]
alpha = sorted(t for _, t in points[:3])[1]  # the middle one of the three smallest
beta = (points[-1][1] - alpha) / points[-1][0]
print(f"alpha = {1e6 * alpha:.0f} µs, 1/beta = {1e-9 / beta:.2f} GB/s, equal at {alpha / beta / 1e3:.0f} KB\n")
print(f"{'bytes':>9}{'measured µs':>13}{'model µs':>10}{'ratio':>7}{'GB/s':>8}")
for nbytes, t in points:
    predicted = alpha + beta * nbytes
    print(f"{nbytes:9}{1e6 * t:13.1f}{1e6 * predicted:10.1f}{t / predicted:7.2f}{nbytes / t / 1e9:8.3f}")

# %% name="plot_link"
plots.fit(points, alpha, beta)

# %% [markdown] name="link_explained"
# $\alpha$ is the middle time of the three smallest messages, and $\beta$ comes from the largest, so the line ends in the last point by construction. The sizes
# between them test the model.
#
# Where the measurements leave the line, the model is too simple. On a CPU the "link" is a copy through the kernel or through memory: it is fast while
# everything fits into a cache or a socket's buffer, and slower for larger messages. And $\alpha$ includes the time to wake a waiting process, so it
# depends on the other work of the machine. On a real network, libraries use different protocols for different sizes, and each protocol has its own
# $\alpha$ and $\beta$.

# %% [markdown] name="substrate"
# ## 8. Real links
#
# | link | joins | GB/s in one direction | often advertised as |
# |---|---|---|---|
# | NVLink 4 (H100) | GPUs of one node, through NVSwitch | 450 | 900 GB/s, both directions |
# | NVLink 5 (B200) | GPUs of a node or a rack | 900 | 1.8 TB/s, both directions |
# | Infinity Fabric (MI300X) | GPUs of a node, each pair by a link of its own | 64 to one GPU, 448 to all seven | 128 GB/s a link, both directions |
# | PCIe 5 ×16 | GPU, CPU and network card | 63 | 128 GB/s, both directions |
# | InfiniBand NDR | nodes | 50 | 400 Gb/s, bits |
# | InfiniBand XDR | nodes | 100 | 800 Gb/s, bits |
# | 100 Gb Ethernet | nodes | 12.5 | 100 Gb/s, bits |
#
# (PCIe and Ethernet follow from their line rates; the others are vendors' figures. Of Infinity Fabric's 64 GB/s
# [AMD calls about 48 usable](https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi/README.html).) Latencies are of the order of a few µs; with TCP, where the operating system takes part, some tens of µs.
#
# **RDMA**, *remote direct memory access*, avoids that time: the network card reads the sender's memory and writes the receiver's directly, without a
# system call or a copy by the CPU. InfiniBand does it, and RoCE does it on Ethernet. With **GPUDirect RDMA** the card reads and writes GPU memory, so
# that data is not copied to the memory of the host first.
#
# Between two GPUs of a node NCCL prefers peer-to-peer copies over NVLink or PCIe, then shared memory, then the network; `NCCL_DEBUG=INFO` prints which.
#
# One example: a pipeline stage of my model sends the activations of one sequence, 4096 tokens with 4096 bfloat16 numbers each, to the next stage. How many milliseconds over NDR?

# %% name="activations"
nbytes = 4096 * 4096 * 2
print(f"{nbytes / 1e6:.0f} MB")
for name, a, rate in (
    ("NVLink 4", 2e-6, 450e9),
    ("PCIe 5", 3e-6, 63e9),
    ("NDR", 3e-6, 50e9),
    ("here", alpha, 1 / beta),
):
    print(f"{name:9}{1e3 * (a + nbytes / rate):9.2f} ms")

# %% [markdown] name="where"
# ### Find it in torch
#
# **Your task.** Open `torch/distributed/pipelining/stage.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `P2POp`. A pipeline stage receives its input and sends its output. Which calls make the two, and why is neither `send` nor `recv`?
#
# <details><summary><b>Answer</b></summary>
#
# `dist.P2POp(dist.irecv, ...)` and `dist.P2POp(dist.isend, ...)`: started, and waited for later. Where a stage sends to a neighbour that sends to it, both go into one batch; with blocking
# calls the two would wait for each other, as in section 3.
# </details>
#
# You also meet it here:
#
# - **Pipeline parallelism**: activations to the next stage, their gradients back.
# - **Ring attention** and other context parallelism: keys and values travel around the circle of section 3.
# - **Inference**: one machine reads the prompt and sends its keys and values (the KV cache) to the machine that writes the answer.
# - **Inside every collective**: the ring of later chapters is this circle; messages travel around it many times.

# %% [markdown] name="quiz"
# ## 9. Check yourself
#
# <details><summary>1. Two ranks call <code>recv</code> for each other and then <code>send</code>. Deadlock?</summary>
#
# Yes. Each waits for a message that the other sends only after its own receive. Two ranks are enough for a circle.
# </details>
#
# <details><summary>2. A program hangs on 64 ranks, and 63 of them wait in <code>recv</code> from their left-hand neighbour. Which rank do you look at?</summary>
#
# The 64th: it does not wait there, so there is no circle, and the others wait for it, directly or along the chain. If all 64 waited there, it would be a circle.
# </details>
#
# <details><summary>3. A message of 4 KB takes 6 µs on a link with 3 µs and 50 GB/s. Is the link broken?</summary>
#
# The model says 3 + 0.08 µs, so something doubles the latency: another hop, another protocol, a late receiver. The bandwidth can't explain it.
# </details>

# %% [markdown] name="on_nccl"
# ### On NCCL
#
# This chapter's story is told with Gloo. If your ranks are on GPUs, six things are different:
#
# - `send` only puts the message into the queue of a GPU stream and returns, so section 2 shows a small part of a millisecond. A small message (some
#   KB, at times some MB) goes into a buffer. For a longer one the *stream* waits for the receiver, and so does everything that is queued later.
# - The *first* message between two ranks makes their connection, and for that the call itself waits for the other rank. The circle of section 3 hangs
#   because its ranks are new. With three or more ranks it would hang for ever: the watchdog that ends a job after ten minutes counts only calls that are queued.
# - Between connected ranks one number would go into the buffer, and the circle would end. With tensors larger than the buffer it would hang again: a small
#   test runs, the training does not.
# - In a circle, use `batch_isend_irecv`. [What changes on NCCL](../4_real_cluster/42_what_changes_on_nccl.ipynb) asks what a lone `isend` does there. (Before 2.15 torch warns of
#   such sends and receives: "unbatched P2P op".) And `wait()` makes the stream wait, not your program.
# - In section 4 the copy and the 7 race each other on the GPU.
# - Both sides must name the same dtype and count, and `recv` its `src`. Otherwise NCCL refuses, hangs, crashes or delivers wrong data.

# %% [markdown] name="recap"
# ## Recap
#
# Each send needs a receive, and usually neither returns before the other is called; ranks that wait for each other in a circle are deadlocked. With
# `isend` and `batch_isend_irecv` a rank does not wait at the call, and both directions of a link work at once, but you must not use the buffer before
# `wait()`. One message costs $\alpha + m\beta$, and a ping-pong measures both. **Order sends and receives so that nobody would hang if every send waited for its receiver.**
#
# **Now you:** [Lab 1](../../labs/lab01_point_to_point/point_to_point.ipynb) judges your shift by the messages that your code sends.
#
# **Next question:** every rank has a gradient, and every rank needs the sum of all. How few bytes must each of them send? [All-reduce](04_all_reduce.ipynb)
#
# **Sources.** [PyTorch, point-to-point communication](https://docs.pytorch.org/docs/stable/distributed.html#point-to-point-communication) ·
# [NVIDIA, NCCL user guide](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html) (environment variables; point-to-point) ·
# MPI Forum, *MPI: A Message-Passing Interface Standard*, [4.0](https://www.mpi-forum.org/docs/mpi-4.0/mpi40-report.pdf) and [4.1](https://www.mpi-forum.org/docs/mpi-4.1/mpi41-report.pdf), section 3.4 (communication modes) ·
# E. Coffman, M. Elphick, A. Shoshani, *System Deadlocks*, ACM Computing Surveys 3(2), 1971 (circular wait) ·
# H. Liu, M. Zaharia, P. Abbeel, *Ring Attention*, [arXiv:2310.01889](https://arxiv.org/abs/2310.01889)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("03")
