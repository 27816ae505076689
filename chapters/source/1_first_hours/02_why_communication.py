# %% [markdown] name="title"
# # Why communication decides
#
# {{here}}
#
# **A training run takes 10,000 hours on one GPU. How many hours does it take on 1000 GPUs, and how many on 100,000?**
#
# {{picture}}
#
# One step on 256 GPUs, four of which are drawn, to scale: first they compute, then bytes move and nobody computes.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import World, bench, check, plots, predict, predictions

world = World()
world

# %% [markdown] name="guess_intro"
# The model has 7 billion parameters, and every step trains on 2 million tokens, for any number of GPUs. If there were only
# the work, the answers would be 10 hours and 6 minutes. Section 4 has better ones; say first what you expect.

# %% name="first_guess"
guess_1000 = predict(
    "How many hours does the run take on 1000 GPUs?",
    low=1,
    high=10000,
    unit="h",
    log=True,
    title="Hours on 1000 GPUs",
)
guess_100000 = predict(
    "And on 100,000 GPUs?",
    low=0.1,
    high=10000,
    unit="h",
    log=True,
    title="Hours on 100,000 GPUs",
)
display(guess_1000, guess_100000)

# %% [markdown] name="step"
# ## 1. One step, two parts
#
# In data-parallel training every rank holds the same model and computes a gradient from its own share of the samples. Then all
# ranks need the mean of these gradients, or their models would become different. So a step **computes**, and then it
# **communicates**. The next cell measures the time of each part.
#
# It does so for three batches, each four times as large as the one before.

# %% name="guess_batch"
guess_batch = predict(
    "The batch of each rank grows fourfold. How long does the communication take?",
    choices=["four times as long", "longer, but less than four times", "as long as before"],
    title="Batch times four: the communication",
)
guess_batch

# %% name="two_clocks"
# %%ranks
import time


def now():
    if device.type == "cuda":
        torch.cuda.synchronize()  # GPU calls only queue the work: without this the clock stops before it is done
    return time.perf_counter()


model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))


# %% name="one_step"
# %%ranks
def one_step(batch):
    """Seconds for the gradient of so many samples, and seconds for summing it over all ranks."""
    start = now()
    model(torch.randn(batch, 1024)).sum().backward()
    compute_s = now() - start
    dist.barrier()  # begin together, so that waiting for a late rank is not counted as communication
    start = now()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    return compute_s, now() - start


warm_up = one_step(16)

# %% name="two_parts"
# %%ranks
megabytes = sum(parameter.nbytes for parameter in model.parameters()) / 1e6
for batch in (16, 64, 256):
    runs = [one_step(batch) for _ in range(4)]
    compute_ms, communicate_ms = 1e3 * min(run[0] for run in runs), 1e3 * min(run[1] for run in runs)
    if rank == 0:
        print(
            f"{batch:4} samples, {megabytes:.1f} MB: compute {compute_ms:.1f} ms, communicate {communicate_ms:.1f} ms"
        )

# %% name="reveal_batch" jupyter={"source_hidden": true}
# the answer: run this cell
guess_batch.reveal(
    "as long as before",
    why="A rank sends one number for each parameter, however many samples it has. (Small changes from row to row are noise.)",
)

# %% [markdown] name="two_parts_explained"
# The communication of a step depends on the **model**; its computation
# depends on the model **and the batch**. (Each is the best of four; [Point to point](03_point_to_point.ipynb) says why. The first call is slow, because it allocates memory and makes
# connections; therefore the cell makes one call before it measures. On a GPU batches this small keep only a part of it busy, so the computation may
# hardly grow; try 4096 to 65,536 samples.)
#
# This is the problem. If you give the same batch to twice as many ranks, each rank computes half as long, but the gradient that they must exchange stays as large.

# %% [markdown] name="alpha_beta"
# ## 2. A message has two prices
#
# How long does a message take? First, all ranks sum 256 numbers in 256 calls, with one number in each call. Then they sum the same 256
# numbers in a single call.

# %% name="guess_factor"
guess_factor = predict(
    "256 numbers in one call instead of 256 calls: by what factor is it faster?",
    low=1,
    high=1000,
    log=True,
    title="One call instead of 256 is faster by",
)
guess_factor


# %% name="many_or_one"
# %%ranks
def seconds_for(calls, numbers):
    x = torch.zeros(numbers)
    dist.all_reduce(x)  # warm-up
    dist.barrier()
    start = now()
    for _ in range(calls):
        dist.all_reduce(x)
    return now() - start


many, one = seconds_for(256, 1), min(seconds_for(1, 256) for _ in range(5))

# %% name="reveal_factor" jupyter={"source_hidden": true}
# the answer: run this cell
many_s, one_s = max(world["many"]), max(world["one"])
print(f"256 calls: {1e3 * many_s:.1f} ms   1 call: {1e3 * one_s:.2f} ms   factor {many_s / one_s:.0f}")
guess_factor.reveal(
    many_s / one_s,
    why="Each call costs time before its first byte moves, and 256 calls pay it 256 times for the same bytes.",
    it=f"{many_s / one_s:.0f}",
)

# %% [markdown] name="alpha_beta_explained"
# The usual model gives a message two prices. With $m$ bytes it takes
#
# $$T(m) = \alpha + m\,\beta$$
#
# - $\alpha$, the **latency**: seconds until a message starts to move, whatever its size.
# - $\beta$: seconds for one byte; $1/\beta$ is the **bandwidth** in bytes a second, in one direction.
#
# At $m = \alpha/\beta$ both parts take the same time. The time of a much shorter message is nearly all latency; the time of a much longer one is nearly all bytes.
#
# An InfiniBand NDR port has 50 GB/s; assume that the latency is 3 µs. How many KB must a message have so that half of its time is spent on bytes? Work it out; the last column of the table has the answer.

# %% name="links"
links = {
    "NVLink 4 (H100)": (2e-6, 450e9),
    "PCIe 5 x16": (3e-6, 63e9),
    "InfiniBand NDR": (3e-6, 50e9),
    "100 Gb Ethernet, TCP": (30e-6, 12.5e9),
}
print(f"{'alpha, 1/beta per direction':42}{'4 B':>11}{'1 MB':>11}{'1 GB':>11}{'alpha/beta':>12}")
for name, (alpha, bandwidth) in links.items():
    times = [1e6 * (alpha + nbytes / bandwidth) for nbytes in (4, 10**6, 10**9)]
    label = f"{name}, {1e6 * alpha:g} µs, {bandwidth / 1e9:g} GB/s"
    print(f"{label:42}" + "".join(f"{t:8.0f} µs" for t in times) + f"{alpha * bandwidth / 1e3:9.0f} KB")

# %% [markdown] name="links_explained"
# The bandwidths are line rates in one direction. Advertisements add both directions (900 GB/s for NVLink 4) or count bits (400 Gb/s for NDR). The
# latencies in this table are only orders of magnitude, not measurements: never take $\alpha$ from a table, measure it. [Point to point](03_point_to_point.ipynb) measures it
# with a ping-pong.
#
# For 1 GB NVLink is nine times as fast as InfiniBand. For 4 bytes their bandwidths make no difference: only $\alpha$ counts, and
# these two are 1 µs apart.

# %% [markdown] name="more_ranks"
# ## 3. More ranks, live
#
# Now a small version of the opening question. A step has a fixed amount of work and ends with an all-reduce. `bench.lasting` first times the all-reduce of all ranks,
# 32 MB or, between fast GPUs, more. The work is chosen so that a rank's share, split over all ranks, takes just as long. We run the step with 1 rank, with 2, and so on, and always split
# the work evenly.
#
# Here the work is only a pause, `time.sleep`, because your machine may have fewer cores than ranks, and pauses need no core. Think of a GPU that
# works while its CPU waits. The all-reduce is real.
#
# How many times faster are all ranks together than one rank alone? The cell takes 5 to 15 s; the table after it has the answer.


# %% name="strong_scaling"
# %%ranks
from functools import partial

from allranks import bench


def step(group, work_s, gradient):
    dist.barrier(group)
    start = now()
    time.sleep(work_s / dist.get_world_size(group))
    dist.all_reduce(gradient, group=group)
    return now() - start


groups = [dist.new_group(list(range(p))) for p in range(1, world_size + 1)]
numel, sum_s = bench.lasting(lambda n: partial(dist.all_reduce, torch.zeros(n)), 8_000_000)
gradient, times = torch.zeros(numel), []
for p, group in enumerate(groups, start=1):
    if rank < p:
        times.append(min(step(group, world_size * sum_s, gradient) for _ in range(4)))
alpha = seconds_for(64, 1) / 64 / (2 * (world_size - 1))

# %% [markdown] name="model_intro"
# `new_group` makes a group of some of the ranks, and a collective with `group=` concerns only these.
#
# The table shows a model beside the measurement. An all-reduce on a ring of $p$ ranks has $2(p-1)$ steps with messages of $n/p$ bytes
# (the chapter on [all-reduce](04_all_reduce.ipynb) derives that). With $C$ seconds of work:
#
# $$T(p) = \frac{C}{p} + 2(p-1)\,\alpha + 2\,\frac{p-1}{p}\,n\,\beta$$
#
# $\alpha$ comes from the many small calls, $\beta$ from the row of 2 ranks. The other rows test the model.

# %% name="scaling_table"
measured, alpha = world["times"][0], max(world["alpha"])
n, work_s = 4 * world["numel"][0], measured[0]  # one rank alone sends no messages
beta = max(measured[1] - work_s / 2 - 2 * alpha, 0) / n
print(f"{world.ranks} ranks are {work_s / measured[-1]:.1f} times faster; the all-reduce has {n / 1e6:.0f} MB")
print(bench.fitted_words(world, alpha, beta) + "\n")
print(f"{'ranks':>5}{'work ms':>10}{'measured ms':>13}{'model ms':>10}{'speed-up':>10}{'efficiency':>12}")
for p, t in enumerate(measured, start=1):
    model_s = work_s / p + 2 * (p - 1) * alpha + 2 * (p - 1) / p * n * beta
    print(f"{p:5}{1e3 * work_s / p:10.1f}{1e3 * t:13.1f}{1e3 * model_s:10.1f}{work_s / t:10.2f}{work_s / t / p:12.0%}")

# %% [markdown] name="scaling_explained"
# The column *work* shrinks to $1/p$. *Measured* shrinks less; the difference is communication. **Speed-up** is
# $T(1)/T(p)$. **Efficiency** is the speed-up divided by $p$: the share of the machines' time that went into work.
#
# The model assumes that each rank has its own link, with the same $\beta$ for any $p$. On a CPU it is often too fast: processes of one
# machine share its cores and its memory. GPUs may have links of their own (NVLink) or share some (PCIe).
#
# Of the three terms of $T(p)$ the first one shrinks with $p$. Whether the other two grow, you find in [All-reduce](04_all_reduce.ipynb).

# %% [markdown] name="at_scale"
# ## 4. The question
#
# Training takes about 6 floating-point operations for each parameter and token (Kaplan et al. 2020). Assume that a GPU really
# achieves 400 TFLOP/s, that gradients are bfloat16, and that each GPU has one 50 GB/s link with 5 µs for each message. Communication does not overlap with work.

# %% name="step_times"
parameters, tokens = 7e9, 2**21
flops, alpha, beta = 400e12, 5e-6, 1 / 50e9


def step_seconds(p, parameters=parameters, tokens=tokens):
    """Seconds of one step on p GPUs: for the work, for the bytes, for the latency."""
    nbytes = 2 * parameters
    return 6 * parameters * tokens / flops / p, 2 * (p - 1) / p * nbytes * beta, 2 * (p - 1) * alpha


hours = {p: 10_000 * sum(step_seconds(p)) / sum(step_seconds(1)) for p in (1000, 100_000)}

# %% name="reveal_step_times" jupyter={"source_hidden": true}
# the answer: run this cell
display(
    guess_1000.reveal(
        hours[1000],
        why="Each GPU's share of the work shrinks to a thousandth, but the gradient that it must send stays as large.",
        marks={"work alone": 10},
    ),
    guess_100000.reveal(
        hours[100_000],
        why="Each rank adds two messages to the ring, one after the other, and with 100,000 ranks their latency takes most of the time.",
        marks={"work alone": 0.1},
    ),
)

# %% [markdown] name="predict_best"
# Between one GPU and 100,000 there is a best number.

# %% name="guess_best"
guess_best = predict(
    "With how many GPUs is the run fastest?",
    low=1,
    high=100000,
    log=True,
    title="GPUs with which the run is fastest",
)
guess_best

# %% name="best"
counts = [2**k for k in range(18)]
best = min(range(1, 100_001), key=lambda p: sum(step_seconds(p)))
gain = sum(step_seconds(1)) / sum(step_seconds(best))
print(f"the fastest is {best} GPUs: {gain:.0f} times as fast as one\n")
print(f"{'GPUs':>7}{'work s':>10}{'bytes s':>10}{'latency s':>11}{'speed-up':>10}{'efficiency':>12}")
for p in counts[::2]:
    parts = step_seconds(p)
    speedup = sum(step_seconds(1)) / sum(parts)
    print(f"{p:7}{parts[0]:10.3f}{parts[1]:10.3f}{parts[2]:11.3f}{speedup:10.1f}{speedup / p:12.1%}")

# %% name="reveal_best" jupyter={"source_hidden": true}
# the answer: run this cell
guess_best.reveal(
    best,
    why="Each added GPU takes a part of the work and adds two messages to the ring; from this number on the messages cost more than it saves.",
)

# %% name="figure"
figure, axes = plots.chart("GPUs", "seconds a step (model)")
axes.loglog(counts[1:], [sum(step_seconds(p)) for p in counts[1:]], label="the step")
parts = list(zip(*(step_seconds(p) for p in counts), strict=True))
for part, label in zip(parts, ("work", "bytes", "latency"), strict=True):
    axes.loglog(counts[1:], part[1:], label=label)
axes.legend()
figure

# %% [markdown] name="figure_explained"
# There are three ranges. First the work takes most of the time, and twice as many GPUs halve it. Then the bytes take most of it: more GPUs hardly
# help. Last, the latency takes most of it, and each further GPU makes the run slower.
#
# The limit in the second range comes from data parallelism with one all-reduce after the backward pass. The rise at the end comes from the *ring*. An
# algorithm with $2\lg p$ steps (the logarithm to base 2) instead of $2(p-1)$, and as few bytes, moves the rise far to the right and makes the second
# range longer. That is why a library has several algorithms.
#
# The model splits the work into as many parts as you like. Data parallelism can't: a sample is its smallest part. $2^{21}$ tokens are 1024 sequences
# of 2048, so from 1025 GPUs on, other kinds of parallelism must split a sequence, a layer or the model ([Tensor parallel](../3_one_model/24_tensor_parallel.ipynb), [Pipelines](../3_one_model/25_pipelines.ipynb)).

# %% [markdown] name="model_size"
# ### A larger model?
#
# Now take 1000 GPUs and a model with 70 instead of 7 billion parameters, same batch. Does the share of the time that is spent on communication change?

# %% name="shares"
for size in (7e9, 70e9):
    for batch in (2**21, 2**23):
        work, *rest = step_seconds(1000, size, batch)
        share = sum(rest) / (work + sum(rest))
        print(f"{size / 1e9:3.0f} billion, {batch / 1e6:.1f} million tokens: communication {share:.0%}")

# %% [markdown] name="share_explained"
# Ten times the parameters mean ten times the work *and* ten times the gradient, so the ratio stays. The number of tokens per GPU decides. With $t$
# tokens per GPU, $N$ parameters and $F$ operations a second, the work takes as long as the bytes if
#
# $$\frac{6Nt}{F} = \frac{2 \cdot 2N}{B} \quad\Longrightarrow\quad t = \frac{2F}{3B},$$
#
# for large $p$, where $2(p-1)/p$ is nearly 2, and with $B = 1/\beta$. (A gradient has 2 bytes and is sent nearly twice.) $N$ cancels out. For the machine above:

# %% name="tokens"
enough = 2 * flops * beta / 3
print(f"work and bytes take equal time at {enough:.0f} tokens per GPU; on 1000 GPUs each has {tokens / 1000:.0f}")

# %% [markdown] name="ways_out"
# So there are four ways to improve: **more tokens per GPU** (a larger batch; but beyond some size larger batches save hardly any steps, McCandlish et al.
# 2018), **faster links** ($B$), **fewer bytes** (smaller dtypes, other ways of splitting the model), or **hiding**
# communication behind the backward pass, as PyTorch's `DistributedDataParallel` (DDP) does. The rest of the course is about these four ways.
#
# Fixed work on more machines is called **strong scaling**; work that grows with the machines is **weak scaling**. When somebody
# reports an efficiency of 95 %, ask which of the two it is.

# %% [markdown] name="pitfall"
# ## 5. Read a profile
#
# You profile a step, and on rank 0 communication looks free, while on all others it takes a fifth of a second.

# %% name="guess_slow"
guess_slow = predict(
    "Communication looks free on rank 0 and takes a fifth of a second on all others. What is slow?",
    choices=["the links of the others", "rank 0's link", "rank 0's computation", "the others' computation"],
    title="Communication is short on rank 0 only: slow is",
)
guess_slow

# %% name="straggler"
# %%ranks
x = torch.zeros(1)
dist.barrier()
time.sleep(0.2 if rank == 0 else 0)  # the computation
start = now()
dist.all_reduce(x)
communicate_ms = 1e3 * (now() - start)
print(f"all_reduce took {communicate_ms:.0f} ms")

# %% name="reveal_slow" jupyter={"source_hidden": true}
# the answer: run this cell
guess_slow.reveal(
    "rank 0's computation",
    why="Rank 0 came last, because it computed longer: its own call returned at once, and the time of the others is the time that they waited for it.",
)

# %% [markdown] name="straggler_explained"
# The rank with the **shortest** time in collectives is the straggler. Read a
# profiler's "NCCL time" in the same way: it includes waiting for late ranks. (A slow link is different: it makes an all-reduce longer on every rank.)

# %% [markdown] name="yours"
# ## 6. Your turn: one call less
#
# At the end of an evaluation every rank has a tensor of metrics and wants the mean over all ranks. This version is right and pays $\alpha$
# twice. **Change it so that it needs only one `all_reduce`**, and run the cell; the function must not change its input. `check` runs your function on
# worlds of several sizes with unusual inputs, counts its messages, and says what is wrong.


# %% name="distributed_mean"
def distributed_mean(tensor):
    total = tensor.clone(memory_format=torch.contiguous_format)  # collectives need contiguous memory
    dist.all_reduce(total)
    count = torch.ones(1, dtype=tensor.dtype)
    dist.all_reduce(count)
    return total / count


check(distributed_mean)

# %% [markdown] name="mean_answer"
# <details><summary><b>A hint</b></summary>
#
# Each rank knows the number of ranks without asking the others.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def distributed_mean(tensor):
#     total = tensor.clone(memory_format=torch.contiguous_format)  # collectives need contiguous memory
#     dist.all_reduce(total)
#     return total / dist.get_world_size()
# ```
# </details>

# %% [markdown] name="quiz"
# ## 7. Check yourself
#
# <details><summary>1. A link has 100 GB/s and 5 µs. How long do 1000 messages of 1 KB take, and one of 1 MB?</summary>
#
# 1000 · (5 µs + 0.01 µs) = 5.01 ms for the short messages, 5 µs + 10 µs = 15 µs for the long one. The bytes are the same.
# </details>
#
# <details><summary>2. Twice the GPUs make a step 1.6 times faster. What is the efficiency of the step from the old to the new number?</summary>
#
# 1.6 / 2 = 80 %: a fifth of all the GPUs' time is lost. If you count only the GPUs that you added, two fifths are lost: they add 0.6 of what they could add.
# </details>
#
# <details><summary>3. Somebody doubles the bandwidth of all links, and the step does not become faster. What are two explanations?</summary>
#
# The messages are short, so the latency takes most of the time; or communication was already hidden behind computation. A straggler is a third explanation.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# If you split a batch over more ranks, each rank computes less, but the gradient that they must exchange stays as large as the model. A message costs
# $\alpha + m\beta$, and both terms set a limit. The bytes take a certain time, however many machines there are. The latency grows with their number, and from
# some number on it makes the run slower. These limits depend on the tokens that a GPU has per step, and on the ratio of its arithmetic to
# its link. **With more ranks the work per rank shrinks; the gradient that they exchange does not.**
#
# **Next question:** what does a single message really cost on this machine, and how can two ranks wait for each other for ever?
# [Point to point](03_point_to_point.ipynb) sends them one at a time.
#
# **Sources.** J. Kaplan et al., *Scaling Laws for Neural Language Models*, [arXiv:2001.08361](https://arxiv.org/abs/2001.08361) (6 operations per parameter and token) ·
# S. McCandlish et al., *An Empirical Model of Large-Batch Training*, [arXiv:1812.06162](https://arxiv.org/abs/1812.06162) ·
# R. Hockney, *The communication challenge for MPP*, Parallel Computing 20(3), 1994 (the model with two prices) ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("02")
